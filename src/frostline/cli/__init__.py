"""The command line, around the functions that Python users call. May import every other folder.

Start with ``program.py`` (exit codes and errors), then ``find_and_sweep.py`` for typical commands. ``flags.py`` turns settings
into flags, and ``answer_output.py`` prints. Commands import heavy libraries inside their functions, so that ``--help`` is
fast. A new command needs its place in ``program.COMMANDS``.
"""

from frostline.cli import analyze, find_and_sweep, folders, models, predict  # noqa: F401  registers the commands
from frostline.cli.program import COMMANDS, app, main

# --help lists them in the order of a typical project
app.registered_commands.sort(key=lambda one: COMMANDS.index(one.name or getattr(one.callback, "__name__", "")))

__all__ = ["app", "main"]
