"""`frostline analyze`: analyze existing results from any source."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from frostline import FrostlineError
from frostline.cli.analysis_output import print_analysis, protocol_named, settings_for, write_analysis_page
from frostline.cli.help import PanelCommand
from frostline.cli.program import app
from frostline.cli.values import split_pairs, split_words
from frostline.data.kinds import TABLES, either
from frostline.data.wording import comma_separated, normalized_name

RESULTS, SETTINGS = "Results", "Settings"

Sources = Annotated[
    list[Path],
    typer.Argument(help=f"Tables with one row per run ({either(*TABLES)}), or folders of sweeps."),
]
Out = Annotated[Path, typer.Option(help="Folder for report, tables and figures.", rich_help_panel=RESULTS)]
ColumnNames = Annotated[
    list[str] | None,
    typer.Option(
        "--columns", help="OURS=THEIRS: frostline's name and the table's name of a column.", rich_help_panel=RESULTS
    ),
]
Constants = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="OURS=VALUE: a constant value for a column that the table lacks.", rich_help_panel=RESULTS
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="Encoding of tables that are not UTF-8, such as cp1252. [default: UTF-8]", rich_help_panel=RESULTS
    ),
]
Metric = Annotated[
    list[str] | None,
    typer.Option(help="NAME or TASK=NAME: the metric to use, if runs have several.", rich_help_panel=RESULTS),
]
Chance = Annotated[
    list[str] | None,
    typer.Option(help="TASK=SCORE: the score of the best constant prediction.", rich_help_panel=RESULTS),
]
Paired = Annotated[
    bool,
    typer.Option("--paired/--unpaired", help="Pair runs of the same seed in comparisons.", rich_help_panel=SETTINGS),
]
AsPublished = Annotated[
    str | None,
    typer.Option(help="Use the settings of this study and compare with its numbers.", rich_help_panel=SETTINGS),
]
Target = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Share of full fine-tuning's gain that k must reach. [default: 0.95, or the study's]",
        rich_help_panel=SETTINGS,
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Also find the smallest k at most this far below full fine-tuning. [default: 0.01]",
        rich_help_panel=SETTINGS,
    ),
]
OneLearningRate = Annotated[
    bool | None,
    typer.Option(
        "--one-learning-rate/--own-learning-rate",
        help="Use full fine-tuning's best learning rate for every k, or each k's own best.",
        rich_help_panel=SETTINGS,
    ),
]
FailedBelow = Annotated[
    float | None,
    typer.Option(help="Exclude runs that score at most this share of their cell's best run.", rich_help_panel=SETTINGS),
]
LeaveOut = Annotated[
    list[str] | None,
    typer.Option(help="Tasks to exclude from the summary over several tasks.", rich_help_panel=SETTINGS),
]
ByMean = Annotated[
    bool | None,
    typer.Option(
        "--by-mean/--by-interval",
        help="Compare the mean of each k with the target, or its interval.",
        rich_help_panel=SETTINGS,
    ),
]
Corrected = Annotated[
    bool | None,
    typer.Option(
        "--corrected/--raw",
        help="Shares of the gain over the constant baseline, or of the score.",
        rich_help_panel=SETTINGS,
    ),
]


@app.command(cls=PanelCommand, short_help="Analyze existing results from any source.")
def analyze(
    sources: Sources,
    *,
    out: Out,
    columns: ColumnNames = None,
    set_: Constants = None,
    encoding: Encoding = None,
    metric: Metric = None,
    chance: Chance = None,
    paired: Paired = True,
    as_published: AsPublished = None,
    target: Target = None,
    margin: Margin = None,
    one_learning_rate: OneLearningRate = None,
    failed_below: FailedBelow = None,
    leave_out: LeaveOut = None,
    by_mean: ByMean = None,
    corrected: Corrected = None,
) -> None:
    """Analyze results: scores of each k, failures, the recommended k with intervals, train sizes, several tasks.

    Prints one table of what to tune, with tasks down and models across, and a sentence over all tasks. The report and
    analysis.json in --out have the details.

    Needs neither model nor data, only a table with one row per run. Columns are found by their usual names, or mapped with
    --columns: score (or value), tuned_layers (or k, frozen_layers, full), seed, model, task, metric, train_size,
    learning_rate, outcome, costs.
    """
    from frostline.report.answer.groups import load_groups

    protocol = protocol_named(as_published)
    metrics, chances = by_task(metric), split_pairs("--chance", chance)
    excluded = tuple(split_words(leave_out) or ())
    groups = load_groups(
        sources,
        columns=split_pairs("--columns", columns),
        constants=split_pairs("--set", set_),
        encoding=encoding,
        metrics=metrics,
        chances={task: number("--chance", value) for task, value in chances.items()},
        paired=paired,
    )
    tasks = {group.task for group in groups}
    for flag, names in (("--chance", chances), ("--metric", filter(None, metrics)), ("--leave-out", excluded)):
        require_known_tasks(flag, names, tasks)
    settings = settings_for(
        protocol,
        target=target,
        margin=margin,
        one_learning_rate=one_learning_rate,
        failed_below=failed_below,
        by_mean=by_mean,
        corrected=corrected,
        leave_out=excluded or None,
    )
    title = ", ".join(source.name for source in sources)
    print(f"\n{analyze_and_print(out.expanduser(), groups, settings, protocol, title)}")


def analyze_and_print(out: Path, groups: Sequence[Any], settings: Any, protocol: Any, title: str) -> Path:
    """Analyze groups of runs, write the page and print the answers; returns the path of the page."""
    from frostline.data.files import make_folder
    from frostline.report.answer.analysis import analyze as analyze_groups

    make_folder(out, inside=out)
    analysis = analyze_groups(groups, settings)
    page = write_analysis_page(out, analysis, protocol, title, groups)
    print_analysis(analysis, protocol)
    return page


def require_known_tasks(flag: str, names: Iterable[str], tasks: Collection[str]) -> None:
    """Refuse a task that has no results.

    Raises:
        FrostlineError: A task is unknown; the message gives the nearest task and all tasks.
    """
    from frostline.data.wording import did_you_mean

    known = {normalized_name(task) for task in tasks}
    unknown = next((name for name in names if normalized_name(name) not in known), None)
    if unknown is not None:
        raise FrostlineError(
            f"{flag} {unknown}: there is no such task{did_you_mean(unknown, tasks)}; choose from {', '.join(sorted(tasks))}."
        )


def by_task(words: Sequence[str] | None) -> dict[str, str]:
    """Metrics by task. ``f1`` is for every task, under the empty name; ``MRPC=f1`` is for one task."""
    single = [word for some in words or () for word in comma_separated(some) if "=" not in word]
    paired = [word for some in words or () for word in comma_separated(some) if "=" in word]
    return {**({"": single[0]} if single else {}), **split_pairs("--metric", paired)}


def number(flag: str, value: str) -> float:
    """The value of a flag as a number.

    Raises:
        FrostlineError: It is not a number.
    """
    try:
        return float(value)
    except ValueError:
        raise FrostlineError(f"{flag}: {value!r} is not a number; give one, such as 0.5.") from None
