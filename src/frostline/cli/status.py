"""`frostline status`: the runs of a sweep."""

import io
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frostline.cli.flags import FolderArgument
from frostline.cli.printing import print_damage, print_run_counts, print_table
from frostline.cli.program import PanelCommand, app
from frostline.data.wording import duration, unchecked

if TYPE_CHECKING:  # both import numpy, which --help does not need
    from frostline.sweep.results.folder import Folder
    from frostline.sweep.results.leases import Leases

SHOWN = ("recipe", "train_size", "seed", "learning_rate", "status", "outcome", "validation_best", "reason")
TRAINED_NOW = ("recipe", "train_size", "seed", "learning_rate", "process", "since", "sign_of_life")
LISTED = 1000  # of a sweep with more runs, only the numbers are shown
REFRESH = 2.0  # seconds between two looks at the folder
CLEAR = "\033[H\033[2J"  # moves the cursor of a terminal to the upper left corner and clears the screen

Watch = Annotated[
    bool, typer.Option("--watch", help="Keep the output up to date until all runs have ended, or Ctrl-C.")
]
All = Annotated[
    bool,
    typer.Option("--all", help=f"Verify and list all results, also those of a sweep with more than {LISTED:,} runs."),
]


@app.command(cls=PanelCommand, short_help="Show the runs of a sweep: done, failed or pending, and who trains which.")
def status(folder: FolderArgument, watch: Watch = False, all_runs: All = False) -> None:
    """Print every run of a sweep: done, failed (with the reason) or pending. Print which process trains which run, since when.

    Of a sweep with more than 1,000 runs, the numbers are printed for each k and train size. Its results are then not read.
    """
    from frostline.sweep.results.folder import Folder
    from frostline.sweep.results.leases import Leases

    sweep, leases = Folder(folder), Leases(folder)
    if all_runs or len(sweep.runs) <= LISTED:
        print_damage(folder)
    shown, on_terminal = _as_text(sweep, leases, all_runs=all_runs), sys.stdout.isatty()
    print(shown, _time_left(sweep, leases), sep="", end="", flush=True)
    while watch and not sweep.is_complete:
        sleep(REFRESH)
        sweep, before = Folder(folder), shown
        if (shown := _as_text(sweep, leases, all_runs=all_runs)) != before or on_terminal:
            print(CLEAR if on_terminal else "\n", end="", file=unchecked(sys.stdout))
            print(shown, _time_left(sweep, leases), sep="", end="", flush=True)


def _as_text(sweep: "Folder", leases: "Leases", *, all_runs: bool) -> str:
    """What is known of the runs now."""
    with redirect_stdout(io.StringIO()) as text:
        print_run_counts(sweep.out, sweep.counts())
        if all_runs or len(sweep.runs) <= LISTED:
            rows = [{**vars(row), "learning_rate": _rate(row.learning_rate)} for row in sweep.rows()]
            print_table(rows, SHOWN)
        else:
            print_table(_by_cell(sweep), ("recipe", "train_size", "done", "failed", "pending"))
        if trained := list(_trained_now(sweep, leases)):
            print()
            print_table(trained, TRAINED_NOW)
    return text.getvalue()


def _time_left(sweep: "Folder", leases: "Leases") -> str:
    """A line about the time that the pending runs will take; empty if there are none."""
    from frostline.sweep.time_left import FORECAST, MEASURED, SCALED, UNKNOWN, time_left

    left = time_left(sweep, leases, lambda sentence: print(sentence, file=sys.stderr))
    if not left.runs:
        return ""
    if left.runs.keys() == {UNKNOWN}:
        return "\nTime left: unknown until a run has ended with a result.\n"
    step = " of this step of the search" if sweep.search and not sweep.search.over else ""
    by = _counted(left.processes, "process", "processes") if left.processes else "one process, while none trains"
    sources = {
        MEASURED: "by measured times",
        FORECAST: "by the forecast",
        SCALED: "by the times of other k or sizes",
        UNKNOWN: "not counted",
    }
    counts = ", ".join(
        f"{_counted(left.runs[one], 'run', 'runs')} {how}" for one, how in sources.items() if one in left.runs
    )
    least = "at least" if left.at_least else "about"
    return f"\nTime left{step}: {least} {duration(left.seconds)} with {by} ({counts}).\n"


def _counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _rate(learning_rate: float | None) -> str:
    """A learning rate as text; empty for a run that has none."""
    return "" if learning_rate is None else f"{learning_rate:g}"


def _by_cell(sweep: "Folder") -> Iterator[dict[str, Any]]:
    """A row for each k and train size: how many of its runs are in each state."""
    found = Counter((run.train_size, run.recipe, state) for run, state in zip(sweep.runs, sweep.states(), strict=True))
    names = {(run.train_size, run.recipe): run.recipe for run in sweep.runs}
    for (size, tune), name in names.items():
        counts = {state: found[size, tune, state] for state in ("done", "failed", "pending")}
        yield {"recipe": name, "train_size": size, **counts}


def _trained_now(sweep: "Folder", leases: "Leases") -> Iterator[dict[str, Any]]:
    """A row for each run that a process trains: which process, and since when by its own clock."""
    held = {lease.run: lease for lease in leases.current()}
    for run in (run for run in sweep.runs if held and run.digest in held):
        lease = held[run.digest]
        yield {
            "recipe": run.recipe,
            "train_size": run.train_size,
            "seed": run.seed,
            "learning_rate": _rate(run.learning_rate),
            "process": f"{lease.pid} on {lease.host}",
            "since": lease.since.replace("T", " "),
            "sign_of_life": leases.sign_of_life(lease),
        }
