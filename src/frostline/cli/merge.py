"""`frostline merge`: one folder from several folders of one sweep."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from frostline.cli.printing import print_damage, print_run_counts
from frostline.cli.program import FAILED_RUNS, PanelCommand, app

Folders = Annotated[list[Path], typer.Argument(metavar="FOLDERS", help="Folders of one sweep.")]
Out = Annotated[Path, typer.Option(help="The new folder, with the runs of all of them.")]


@app.command(cls=PanelCommand, short_help="Merge folders of one sweep into one.")
def merge(folders: Folders, out: Out) -> None:
    """Merge folders of one sweep, from machines that share nothing, into a new folder.

    Model, data and settings must be the same; the grids may differ. A run that is in several folders must have the same
    predictions in each, up to rounding.

    Example: frostline merge reviews-here reviews-there --out reviews
    """
    from frostline.sweep.merge import merge as merged

    for folder in folders:
        print_damage(folder)
    counts = merged(folders, out)
    print_run_counts(out, counts)
    print(f"`frostline report {out}` writes the report. The sweep's command with --out {out} also saves the model.")
    if counts["failed"]:
        sys.exit(FAILED_RUNS)
