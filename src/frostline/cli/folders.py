"""The commands on the folder of a sweep: `frostline work`, `status`, `merge`, `report` and `track`."""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frostline import FrostlineError
from frostline.cli.flags import TrustRemoteCode, retry_option
from frostline.cli.program import FAILED_RUNS, PanelCommand, app, runs_saved
from frostline.data.wording import counted, duration, unchecked
from frostline.report.plain_text import table_lines, wrapped
from frostline.sweeps.results.leases import SILENT_AFTER, Leases
from frostline.sweeps.settings import TRACKERS, retry_kinds

if TYPE_CHECKING:  # it imports numpy, which --help does not need
    from frostline.sweeps.results.folder import Folder

LISTED = 1000  # of a sweep with more runs, only the numbers are shown
REFRESH = 2.0  # seconds between two looks at the folder
CLEAR = "\033[H\033[2J"  # moves the cursor of a terminal to the upper left corner and clears the screen
FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", help="The --out folder of a sweep or search.")]


@app.command(cls=PanelCommand, short_help="Train runs of a sweep together with other processes.")
def work(
    folder: FolderArgument,
    *,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until all runs have ended, and take over those of dead processes.")
    ] = False,
    retry: Annotated[str | None, retry_option("none")] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Runs trained at the same time here. [default: as in the sweep]", show_default=False),
    ] = None,
    silent_after: Annotated[
        float,
        typer.Option(
            min=10,
            max=86_400,
            help="Seconds without a sign of life after which this process takes over the runs of another one.",
        ),
    ] = SILENT_AFTER,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Train runs of the sweep or search in a folder that no other process trains.

    Start it as often as you like, on any machine that can open the folder, the model and the data. It ends when there is no run
    left that it could take. Relative paths of the sweep start from here or, if there is no such file, from where the sweep was
    started.

    Example: frostline work reviews --wait
    """
    from frostline.sweeps.results.folder import Folder

    kinds = retry_kinds(retry or ())
    Folder(folder)  # refuses another folder before torch is imported
    from frostline.api.work import work as train

    own = {"workers": workers, "silent_after": silent_after, "trust_remote_code": trust_remote_code}
    with runs_saved():
        try:
            counts = train(folder, wait=wait, retry=kinds, **own)  # type: ignore[arg-type]
        except FrostlineError as error:
            # the flags that it names are those of the command that made the sweep, whose settings they are
            named = dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][a-z-]+", str(error)))
            flags = ", ".join(
                flag for flag in named if flag not in ("--wait", "--retry", "--workers", "--silent-after")
            )
            owner = f" The command that made {folder} takes {flags}." if flags else ""
            raise FrostlineError(f"{error}{owner}") from error
    report = f"`frostline report {folder}` writes the report. The sweep's command also saves the model."
    _end_with_counts(folder, counts, "" if counts["pending"] else report)


@app.command(cls=PanelCommand, short_help="Show the runs of a sweep, and who trains which.")
def status(
    folder: FolderArgument,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep the output up to date until all runs have ended, or Ctrl-C.")
    ] = False,
    all_runs: Annotated[
        bool,
        typer.Option(
            "--all", help=f"Verify and list all results, also those of a sweep with more than {LISTED:,} runs."
        ),
    ] = False,
) -> None:
    """Print every run of a sweep: done, failed (with the reason) or pending. Print which process trains which run, since when.

    Of a sweep with more than 1,000 runs, the numbers are printed for each k and train size. Its results are then not read.
    """
    from frostline.sweeps.results.folder import NO_RUNS_YET, Folder, folders_of, has_no_runs_yet

    if has_no_runs_yet(folder):
        print(*wrapped(f"{folder} {NO_RUNS_YET}"), sep="\n", flush=True)
        while watch and has_no_runs_yet(folder):
            sleep(REFRESH)
        if not watch:
            return
    sweeps, shown = [*map(Folder, folders_of(folder))], list[list[str]]()
    listed = all_runs or sum(len(sweep.runs) for sweep in sweeps) <= LISTED
    for sweep in sweeps if listed else ():
        _print_damage(sweep.out)
    on_terminal = watch and sys.stdout.isatty()
    while True:
        before = shown
        shown = [[*_status_lines(sweep, Leases(sweep.out), listed=listed)] for sweep in sweeps]
        if shown != before or on_terminal:
            if before:
                print(CLEAR if on_terminal else "\n", end="", file=unchecked(sys.stdout))
            for n, (sweep, lines) in enumerate(zip(sweeps, shown, strict=True)):
                gap = [""] if n else []
                print(*gap, *lines, *_time_left(sweep, Leases(sweep.out)), sep="\n", flush=True)
        if not watch or all(sweep.is_complete for sweep in sweeps):
            return
        sleep(REFRESH)
        sweeps = [Folder(sweep.out) for sweep in sweeps]


@app.command(cls=PanelCommand, short_help="Merge folders of one sweep into one.")
def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDERS", help="Folders of one sweep.")],
    out: Annotated[Path, typer.Option(help="The new folder, with the runs of all of them.")],
) -> None:
    """Merge folders of one sweep, from machines that share nothing, into a new folder.

    Model, data and settings must be the same; the grids may differ. A run that is in several folders must have the same
    predictions in each, up to rounding.

    Example: frostline merge reviews-here reviews-there --out reviews
    """
    from frostline.sweeps.merge import merge as merged
    from frostline.sweeps.results.folder import Folder

    for folder in folders:
        _print_damage(Folder(folder).out)  # refuses what is no sweep
    report = f"`frostline report {out}` writes the report. The sweep's command with --out {out} also saves the model."
    _end_with_counts(out, merged(folders, out), report)


@app.command(cls=PanelCommand, short_help="Rebuild the tables, answer and report of a sweep.")
def report(folder: FolderArgument) -> None:
    """Rebuild the tables, answer.json and report.html from the runs in a folder.

    With several models, those of each are rebuilt. The command that trained them rebuilds the page about all.
    """
    from frostline.sweeps.results.folder import Folder, folders_of

    folders = folders_of(folder)
    for one in folders:
        _print_damage(Folder(one).out)
    from frostline.api.results import open as opened  # another folder is refused before these are imported
    from frostline.report.rebuild import write_report
    from frostline.statistics.answer import is_of_models

    for one in folders:
        write_report(one)
    for one in [*folders, *([folder] if is_of_models(folder) else [])]:
        results = opened(one)
        print(*wrapped(results.answer.sentence), results.report, sep="\n")


@app.command(cls=PanelCommand, short_help="Write the runs of a sweep into MLflow, TensorBoard or W&B.")
def track(
    folder: FolderArgument,
    to: Annotated[str, typer.Option(metavar="LIST", help=f"Trackers, such as {','.join(TRACKERS)}.")],
) -> None:
    """Write every finished run of a sweep into trackers, with settings, scores and cost; then the answer.

    What is there already is not written again. `--track` of `find` and `sweep` does the same in the end.

    Example: frostline track reviews --to tensorboard
    """
    from frostline.report.trackers import track as write

    for name, count in write(folder, to).items():
        print(f"{name}: {counted(count, 'run')} written")


def _print_damage(folder: Path) -> None:
    """Verify all results in the folder of a sweep. Set damaged ones aside, and print a sentence on stderr for each."""
    from frostline.sweeps.results.store import Store

    for damage in Store(folder).check():
        print(damage, file=sys.stderr)


def _counts_line(folder: Path, counts: Mapping[str, int]) -> str:
    # a run that is done may have failed, too: it diverged, or predicts a constant
    words = {"failed": "ended in an error"}
    return f"{folder}: " + ", ".join(f"{count} {words.get(state, state)}" for state, count in counts.items())


def _end_with_counts(folder: Path, counts: Mapping[str, int], hint: str) -> None:
    """Print how many runs are in each state, and what to do next. Exits with code 1 if a run ended in an error."""
    print(_counts_line(folder, counts), *filter(None, [hint]), sep="\n")
    if counts["failed"]:
        sys.exit(FAILED_RUNS)


def _status_lines(sweep: "Folder", leases: Leases, *, listed: bool) -> Iterator[str]:
    """What is known of the runs now: a line for each run if they are ``listed``, else for each k and train size."""
    yield _counts_line(sweep.out, sweep.counts())
    if listed:
        rows: Sequence[Mapping[str, Any]] = [
            {**vars(row), "learning_rate": _rate(row.learning_rate)} for row in sweep.rows
        ]
        columns = ("recipe", "train_size", "seed", "learning_rate", "status", "outcome", "validation_best", "reason")
        yield from table_lines(rows, columns)
    else:
        kinds = [(run.named_among(sweep.lengths), run.train_size) for run in sweep.runs]
        found, states = Counter(zip(kinds, sweep.states(), strict=True)), ("done", "failed", "pending")
        rows = [
            {"recipe": kind[0], "train_size": kind[1], **{state: found[kind, state] for state in states}}
            for kind in dict.fromkeys(kinds)
        ]
        yield from table_lines(rows, ("recipe", "train_size", *states))
    held = {lease.run: lease for lease in leases.current()}
    trained_now = [
        {
            "recipe": run.named_among(sweep.lengths),
            "train_size": run.train_size,
            "seed": run.seed,
            "learning_rate": _rate(run.learning_rate),
            "process": f"{lease.pid} on {lease.host}",
            "since": lease.since.replace("T", " "),
            "sign_of_life": "dead" if leases.is_dead(lease) else "lives",
        }
        for run in (sweep.runs if held else ())
        if (lease := held.get(run.digest))
    ]
    if trained_now:
        yield from ("", *table_lines(trained_now, tuple(trained_now[0])))


def _rate(learning_rate: float | None) -> str:
    """A learning rate as text; empty for a run that has none."""
    return "" if learning_rate is None else f"{learning_rate:g}"


def _time_left(sweep: "Folder", leases: Leases) -> Iterator[str]:
    """Lines about the time that the pending runs will take; none if there are no such runs."""
    from frostline.sweeps.time_left import FORECAST, MEASURED, SCALED, UNKNOWN, time_left

    left = time_left(sweep, leases, lambda sentence: print(sentence, file=sys.stderr))
    if not left.runs:
        return
    yield ""
    if left.runs.keys() == {UNKNOWN}:
        yield "Time left: unknown until a run has ended with a result."
        return
    step = " of this step of the search" if sweep.search and not sweep.search.over else ""
    by = counted(left.processes, "process", "processes") if left.processes else "one process, while none trains"
    sources = {
        MEASURED: "by measured times",
        FORECAST: "by the forecast",
        SCALED: "by the times of other k or sizes",
        UNKNOWN: "not counted",
    }
    counts = ", ".join(f"{counted(left.runs[one], 'run')} {how}" for one, how in sources.items() if one in left.runs)
    least = "at least" if UNKNOWN in left.runs else "about"
    yield f"Time left{step}: {least} {duration(left.seconds)} with {by} ({counts})."
