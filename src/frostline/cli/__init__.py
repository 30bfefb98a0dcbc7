"""The command line: one file per verb, around the objects that Python users call. May import every other folder.

Start with ``program.py`` (exit codes and errors), then ``sweep.py`` for a typical verb. ``flags.py`` turns settings into flags,
and the ``*_output.py`` files print. Verbs import heavy libraries inside their functions, so that ``--help`` is fast.
"""

from frostline.cli import analyze, cache, check, demo, find, folder, predict, probe, study, sweep  # noqa: F401  registers the verbs
from frostline.cli.program import app, main

__all__ = ["app", "main"]
