"""`frostline analyze`: analyze existing results from any source. `frostline study`: run a published protocol."""

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from frostline import FrostlineError
from frostline.cli.flags import of_setting, split_pairs, split_words, with_settings
from frostline.cli.program import FAILED_RUNS, PanelCommand, app, runs_saved
from frostline.data.kinds import TABLES, either
from frostline.data.wording import counted, did_you_mean, harmless, normalized_name
from frostline.report.formatting import UNBROKEN
from frostline.report.plain_text import aligned, wrapped

if TYPE_CHECKING:
    from frostline.report.answer.analysis import Analysis
    from frostline.report.pages.analysis_page import Publication

results = partial(typer.Option, rich_help_panel="Results")
of_analysis = partial(typer.Option, rich_help_panel="Settings")


@app.command(cls=PanelCommand, short_help="Analyze existing results from any source.")
def analyze(
    sources: Annotated[
        list[Path], typer.Argument(help=f"Tables with one row per run ({either(*TABLES)}), or folders of sweeps.")
    ],
    *,
    out: Annotated[Path, results(help="Folder for report, tables and figures.")],
    columns: Annotated[
        list[str] | None, results("--columns", help="OURS=THEIRS: frostline's name and the table's name of a column.")
    ] = None,
    set_: Annotated[
        list[str] | None, results("--set", help="OURS=VALUE: a constant value for a column that the table lacks.")
    ] = None,
    encoding: Annotated[
        str | None, results(help="Encoding of tables that are not UTF-8, such as cp1252. [default: UTF-8]")
    ] = None,
    metric: Annotated[
        list[str] | None, results(help="NAME or TASK=NAME: the metric to use, if runs have several.")
    ] = None,
    chance: Annotated[list[str] | None, results(help="TASK=SCORE: the score of the best constant prediction.")] = None,
    target: Annotated[
        float | None,
        of_analysis(
            min=0, max=1, help="Share of full fine-tuning's gain that k must reach. [default: 0.95, or the study's]"
        ),
    ] = None,
    margin: Annotated[
        float | None,
        of_analysis(min=0, help="Also find the smallest k at most this far below full fine-tuning. [default: 0.01]"),
    ] = None,
    as_published: Annotated[
        str | None, of_analysis(help="Use the settings of this study and compare with its numbers.")
    ] = None,
) -> None:
    """Analyze results: scores of each k, failures, the recommended k with intervals, train sizes, several tasks.

    Prints one table of what to tune, with tasks down and models across, and a sentence over all tasks. The report and
    analysis.json in --out have the details.

    Needs neither model nor data, only a table with one row per run. Columns are found by their usual names, or mapped with
    --columns: score (or value), tuned_layers (or k, frozen_layers, full), seed, model, task, metric, train_size,
    learning_rate, num_train_epochs (or epochs), outcome, costs. Other columns are not read.
    """
    from frostline.data.files import make_folder
    from frostline.report.answer.run_groups import load_groups

    protocol = None
    if as_published is not None:
        from frostline.studies.protocol import load_protocol

        protocol = load_protocol(as_published)
    words = split_words("--metric", metric) or []
    for_every_task = [word for word in words if "=" not in word]
    if len(for_every_task) > 1:
        raise FrostlineError(
            f"--metric has {' and '.join(for_every_task)} for all tasks: give one, or TASK=NAME for each."
        )
    of_tables = {"--columns": columns, "--set": set_, "--encoding": encoding, "--metric": metric, "--chance": chance}
    given = [flag for flag, value in of_tables.items() if value]
    if given and all(source.is_dir() for source in sources):
        raise FrostlineError(
            f"{given[0]} is for tables of results, and the sweep in {sources[0]} has its own: leave it out."
        )
    metrics = split_pairs("--metric", [word for word in words if "=" in word])
    metrics |= {"": for_every_task[0]} if for_every_task else {}
    chances = split_pairs("--chance", chance)
    groups = load_groups(
        sources,
        columns=split_pairs("--columns", columns),
        constants=split_pairs("--set", set_),
        encoding=encoding,
        metrics=metrics,
        chances={task: _number("--chance", value) for task, value in chances.items()},
    )
    tasks = {group.task for group in groups}
    _require_tasks("--chance", chances, tasks)
    _require_tasks("--metric", filter(None, metrics), tasks)
    out = out.expanduser()
    _require_no_sweep(out)
    make_folder(out, inside=out)
    from frostline.report.answer.analysis import analyze as analyze_groups
    from frostline.report.pages.analysis_page import write_analysis
    from frostline.statistics.analysis_settings import AnalysisSettings

    settings = AnalysisSettings() if protocol is None else protocol.as_published
    settings = settings if target is None else replace(settings, target=target)
    settings = settings if margin is None else replace(settings, margin=margin)
    analysis = analyze_groups(groups, settings)
    title = ", ".join(source.name for source in sources) if protocol is None else protocol.title
    publication = None
    if protocol is not None:
        from frostline.studies.comparison import publication_of

        publication = publication_of(protocol, analysis)
    page = write_analysis(out, analysis, groups, title, publication)
    print_analysis(analysis, publication)
    print(f"\n{page}")


def _require_tasks(flag: str, names: Iterable[str], tasks: Collection[str]) -> None:
    """Refuse a name that is none of these tasks."""
    known = {normalized_name(task) for task in tasks}
    if unknown := next((name for name in names if normalized_name(name) not in known), None):
        raise FrostlineError(
            f"{flag} {unknown}: there is no such task{did_you_mean(unknown, tasks)}; choose from {', '.join(sorted(tasks))}."
        )


def _require_no_sweep(out: Path) -> None:
    """Refuse the folder of a sweep or search, whose report would be replaced."""
    from frostline.statistics.answer import is_of_models

    if (out / "sweep.toml").is_file() or is_of_models(out):
        raise FrostlineError(f"{out} holds a sweep or search, whose report would be replaced: choose another --out.")


def _number(flag: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise FrostlineError(f"{flag}: {value!r} is not a number; give one, such as 0.5.") from None


def print_analysis(analysis: "Analysis", publication: "Publication | None" = None) -> None:
    """Print one table with tasks down and models across, and the sentence over all tasks of each model."""
    counts = [rate.failures for group in analysis.groups if not group.same_runs for rate in group.rates]
    if diverged := sum(one.diverged for one in counts):
        print(f"Runs without a score, counted as diverged: {diverged}.")
    if undefined := sum(one.undefined for one in counts):
        print(f"Runs without a score that did not fail, as where a metric is not defined: {undefined}.")
    if len(analysis.groups) == 1:
        (group,) = analysis.groups
        print("\n".join(wrapped(f"{group.model}, {group.task}: {group.sentence}")))
    else:
        _print_recommendations(analysis)
    for tasks in analysis.over_tasks:
        print("\n".join(["", *wrapped(f"{tasks.model}: {tasks.sentence}")]))
    if publication and publication.gaps:
        print("\n".join(["", *wrapped(publication.gaps)]))


def _print_recommendations(analysis: "Analysis") -> None:
    """Print what to tune for every task and model; below each other if the terminal is too narrow for the table."""
    from frostline.report.tables.analysis_tables import recommendations_table

    table = recommendations_table(analysis)
    head = [column.title for column in table.shown]
    lines = [head, *([_cell(entry) for entry in entries] for _, entries in table.entries())]
    shown = aligned(lines, [True] * len(head))
    if max(map(len, shown)) > get_terminal_size().columns:
        shown = [
            f"{task}, {model}: {one}" for task, *cells in lines[1:] for model, one in zip(head[1:], cells, strict=True)
        ]
    print(*shown, sep="\n")
    print("\n".join(["", *wrapped(table.caption.replace(UNBROKEN, " "))]))


def _cell(entry: Any) -> str:
    """``last 5 of 12 (0.3 below, 98 % sure)``."""
    text = f"{entry.text} ({entry.small[0]})" if entry.small else str(entry.text)
    return harmless(text.replace(UNBROKEN, " "), keep="")


OWN = ("model", "data", "task", "out", "glue", "train")
OF_SAVED_MODEL = ("keep_adapter", "embed", "calibrate", "threshold")  # a study saves no model


@app.command(cls=PanelCommand, short_help="Run a published protocol and compare with its numbers.")
@with_settings(file=False, leave_out=(*OWN, *OF_SAVED_MODEL), defaults="the study's or sweep's")
def study(
    settings: dict[str, Any],
    name: Annotated[
        str, typer.Argument(help="Study: amazon-tutorial, jeong2025, lee2019, lowdata2021 or transferred2018.")
    ],
    *,
    model: Annotated[list[str] | None, typer.Option(help="Hub names or folders. [default: the study's models]")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Tasks to run. [default: the study's tasks]")] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="TASK=FOLDER or TASK=HUB-NAME: where the data of a task are.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for sweeps, report, tables and figures. [default: NAME]")
    ] = None,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Show the sweeps and their settings; run nothing."),
    ] = False,
) -> None:
    """Run a published protocol as sweeps, one for each model and task, and compare with the published numbers.

    Any setting of a sweep replaces the protocol's. Run the same command again to continue where it stopped. More seeds, train
    sizes or tasks add to it.
    """
    from frostline.studies.protocol import load_protocol
    from frostline.studies.sweeps import study_sweeps

    protocol, folder = load_protocol(name), (out or Path(name)).expanduser()
    _require_no_sweep(folder)
    of_tasks = split_pairs("--data", data)
    models, tasks = split_words("--model", model), split_words("--task", task)
    sweeps = study_sweeps(protocol, folder, models=models, tasks=tasks, data=of_tasks, settings=settings)
    if plan:
        print_study(sweeps)
    else:
        run_study(protocol, sweeps, folder)


def print_study(sweeps: Sequence[Any]) -> None:
    """Print the sweeps of a study. Neither weights nor data are read."""
    shared = [
        (key, value)
        for key, value in sweeps[0].settings.items()
        if all(sweep.settings.get(key) == value for sweep in sweeps)
    ]
    print("Every sweep:" if len(sweeps) > 1 else "The sweep:")
    for key, value in shared:
        print(f"    {key} = {of_setting(key, value)}")
    for sweep in sweeps:
        own = {key: value for key, value in sweep.settings.items() if (key, value) not in shared}
        print(f"{sweep.model} on {sweep.task}, in {sweep.out}")
        for key, value in own.items():
            print(f"    {key} = {of_setting(key, value)}")


@runs_saved()
def run_study(protocol: Any, sweeps: Sequence[Any], folder: Path) -> None:
    """Run every sweep of a study, then write two reports: with frostline's settings, and with those of the publication."""
    from frostline.data.files import make_folder
    from frostline.data.wording import model_name
    from frostline.report.answer.analysis import analyze as analyze_groups
    from frostline.report.answer.run_groups import load_groups
    from frostline.report.pages.analysis_page import write_analysis
    from frostline.statistics.analysis_settings import AnalysisSettings
    from frostline.studies.comparison import publication_of

    failed = 0
    for sweep in sweeps:
        answer = sweep.run()
        print(f"{sweep.task}, {model_name(sweep.model)}: {answer.sentence}", flush=True)
        failed += answer.runs.failed
    groups = load_groups([folder])
    ours, theirs = (analyze_groups(groups, one) for one in (AnalysisSettings(), protocol.as_published))
    publication = publication_of(protocol, theirs)
    print_analysis(theirs, publication)
    page = write_analysis(folder, ours, groups, protocol.title, publication_of(protocol, ours))
    print(f"\nWith frostline's settings: {page}")
    make_folder(folder / "as-published", inside=folder)
    page = write_analysis(folder / "as-published", theirs, groups, protocol.title, publication)
    print(f"With the publication's settings: {page}")
    leave_if_failed(failed)


def leave_if_failed(runs: int) -> None:
    """Say how many runs ended in an error, and exit with their code if there are any."""
    if runs:
        print(f"{counted(runs, 'run')} ended in an error; the same command tries again.")
        sys.exit(FAILED_RUNS)
