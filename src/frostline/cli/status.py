"""`frostline status`: the runs of a sweep."""

from frostline.cli.flags import FolderArgument
from frostline.cli.help import PanelCommand
from frostline.cli.printing import print_counts, print_damage, print_table
from frostline.cli.program import app

SHOWN = ("trainable", "train_size", "seed", "learning_rate", "status", "outcome", "validation_best", "reason")


@app.command(cls=PanelCommand, short_help="Show the runs of a sweep: done, failed or pending.")
def status(folder: FolderArgument) -> None:
    """Print every run of a sweep: done, failed (with the reason) or pending."""
    from frostline.sweep.results.folder import Folder

    print_damage(folder)
    sweep = Folder(folder)
    rows = [{**row, "learning_rate": f"{row['learning_rate']:g}"} for row in sweep.rows()]
    print_counts(folder, sweep.counts())
    print_table(rows, SHOWN)
