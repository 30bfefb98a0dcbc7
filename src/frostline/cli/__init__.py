"""The command line: one file for each verb, over the same objects that Python users have.

``program.py`` holds the program and its exit codes, ``flags.py`` turns settings into flags, and the ``*_output.py`` files
print. Heavy libraries are imported inside the verbs, so ``--help`` is quick. This folder may import every other one.
"""

from frostline.cli import analyze, cache, check, demo, find, folder, predict, probe, study, sweep  # noqa: F401  each adds its verb
from frostline.cli.program import app, main

__all__ = ["app", "main"]
