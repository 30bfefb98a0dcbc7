"""`frostline status`: the runs of a sweep."""

from collections.abc import Iterator
from typing import Any

from frostline.cli.flags import FolderArgument
from frostline.cli.help import PanelCommand
from frostline.cli.printing import print_damage, print_run_counts, print_table
from frostline.cli.program import app

SHOWN = ("trainable", "train_size", "seed", "learning_rate", "status", "outcome", "validation_best", "reason")
TRAINED_NOW = ("trainable", "train_size", "seed", "learning_rate", "process", "since", "sign_of_life")


@app.command(cls=PanelCommand, short_help="Show the runs of a sweep: done, failed or pending, and who trains which.")
def status(folder: FolderArgument) -> None:
    """Print every run of a sweep: done, failed (with the reason) or pending. Print which process trains which run, since when."""
    from frostline.sweep.results.folder import Folder

    print_damage(folder)
    sweep = Folder(folder)
    rows = [{**row, "learning_rate": f"{row['learning_rate']:g}"} for row in sweep.rows()]
    print_run_counts(folder, sweep.counts())
    print_table(rows, SHOWN)
    if trained := list(_trained_now(sweep)):
        print()
        print_table(trained, TRAINED_NOW)


def _trained_now(sweep: Any) -> Iterator[dict[str, Any]]:
    """A row for each run that a process trains: which process, and since when by its own clock."""
    from frostline.sweep.results.leases import Leases

    leases, runs = Leases(sweep.out), {run.digest: run for run in sweep.runs}
    for lease in leases.current():
        if run := runs.get(lease.run):
            yield {
                "trainable": run.trainable,
                "train_size": run.train_size,
                "seed": run.seed,
                "learning_rate": f"{run.learning_rate:g}",
                "process": f"{lease.pid} on {lease.host}",
                "since": lease.since.replace("T", " "),
                "sign_of_life": leases.sign_of_life(lease),
            }
