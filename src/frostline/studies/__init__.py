"""Published protocols that run as sweeps, and the comparison with their published numbers.

Each study is a TOML file here with its numbers in ``published/`` and the model configurations in ``configurations/``.
``protocol.py`` reads it, ``sweeps.py`` runs it, ``parameters.py`` counts what each k trains, ``comparison.py`` compares.
"""
