"""`frostline status` and `frostline report`: read the folder of a sweep."""

import json
from pathlib import Path
from typing import Annotated

import typer

from frostline.cli.help import PanelCommand
from frostline.cli.printing import print_table
from frostline.cli.program import app

FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="The --out folder of a sweep or search.")]
SHOWN = ("trainable", "train_size", "seed", "learning_rate", "status", "outcome", "validation_best", "reason")


@app.command(cls=PanelCommand, short_help="Show the runs of a sweep: done, failed or pending.")
def status(folder: FolderArgument) -> None:
    """Print every run of a sweep: done, failed (and why) or pending."""
    from frostline.sweep.results.folder import Folder

    rows = [{**row, "learning_rate": f"{row['learning_rate']:g}"} for row in Folder(folder).rows()]
    counts = {state: sum(row["status"] == state for row in rows) for state in ("done", "failed", "pending")}
    print(f"{folder}: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    print_table(rows, SHOWN)


@app.command(cls=PanelCommand, short_help="Rebuild the tables, answer and report of a sweep.")
def report(folder: FolderArgument) -> None:
    """Rebuild the tables, answer.json and report.html from the runs in a folder."""
    from frostline.report.rebuild import write_report

    path = write_report(folder)
    print(json.loads((folder / "answer.json").read_text())["sentence"])
    print(path)
