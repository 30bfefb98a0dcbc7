from frostline.cli.program import main

main()
