"""The command line: one file per command, around the functions that Python users call. May import every other folder.

Start with ``program.py`` (exit codes and errors), then ``sweep.py`` for a typical command. ``flags.py`` turns settings into
flags, and the ``*_output.py`` files print. Commands import heavy libraries inside their functions, so that ``--help`` is fast. A
new command needs its file, its import below, and its place in ``help.COMMANDS``.
"""

from frostline.cli import (  # noqa: F401  registers the commands
    analyze,
    bundle,
    cache,
    check,
    compare,
    demo,
    find,
    merge,
    predict,
    probe,
    report,
    status,
    study,
    sweep,
    work,
)
from frostline.cli.program import app, main

__all__ = ["app", "main"]
