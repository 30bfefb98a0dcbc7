"""`frostline analyze`: results that exist already."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

from frostline import FrostlineError
from frostline.cli.analysis_output import choices_for, print_analysis, protocol_named, write_analysis_page
from frostline.cli.help import PanelCommand
from frostline.cli.program import app
from frostline.cli.values import split_pairs, split_words
from frostline.data.parsing import comma_separated, normalized_name

INPUT, CHOICES = "Results", "Choices"

Sources = Annotated[
    list[Path],
    typer.Argument(help="Tables with one row per run (CSV, TSV, JSON lines, Parquet), or folders of sweeps."),
]
Out = Annotated[Path, typer.Option(help="Folder for the page, tables and figures.", rich_help_panel=INPUT)]
ColumnNames = Annotated[
    list[str] | None,
    typer.Option("--columns", help="OURS=THEIRS, with commas: what the table calls a column.", rich_help_panel=INPUT),
]
Constants = Annotated[
    list[str] | None,
    typer.Option("--set", help="OURS=VALUE: one value for a column that the table lacks.", rich_help_panel=INPUT),
]
Metric = Annotated[
    list[str] | None,
    typer.Option(help="NAME, or TASK=NAME: which metric, where a run has several.", rich_help_panel=INPUT),
]
Chance = Annotated[
    list[str] | None,
    typer.Option(help="TASK=SCORE: the score of the best constant prediction.", rich_help_panel=INPUT),
]
Paired = Annotated[
    bool,
    typer.Option("--paired/--unpaired", help="Compare runs of the same seed with each other.", rich_help_panel=CHOICES),
]
AsPublished = Annotated[
    str | None,
    typer.Option(help="A study: make its choices, and show its published numbers.", rich_help_panel=CHOICES),
]
Target = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="Share of full's gain that a k must reach. [default: 0.95, or the study's]",
        rich_help_panel=CHOICES,
    ),
]
Margin = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="One more operating point: at most this far below full. [default: 0.01]",
        rich_help_panel=CHOICES,
    ),
]
OneRate = Annotated[
    bool | None,
    typer.Option(
        "--one-rate/--own-rate",
        help="Use full's best learning rate for every k, or each k's own.",
        rich_help_panel=CHOICES,
    ),
]
FailedBelow = Annotated[
    float | None,
    typer.Option(help="Leave out runs at or below this share of the best run of their cell.", rich_help_panel=CHOICES),
]
LeaveOut = Annotated[
    list[str] | None,
    typer.Option(help="Tasks that do not count in operating points over several tasks.", rich_help_panel=CHOICES),
]
ByMean = Annotated[
    bool | None,
    typer.Option(
        "--by-mean/--by-interval", help="Decide an operating point by means, or by intervals.", rich_help_panel=CHOICES
    ),
]
Corrected = Annotated[
    bool | None,
    typer.Option(
        "--corrected/--raw",
        help="Shares of the gain over the constant baseline, or of the score.",
        rich_help_panel=CHOICES,
    ),
]


@app.command(cls=PanelCommand, short_help="Analyze results that exist already, from any source.")
def analyze(
    sources: Sources,
    *,
    out: Out,
    columns: ColumnNames = None,
    set_: Constants = None,
    metric: Metric = None,
    chance: Chance = None,
    paired: Paired = True,
    as_published: AsPublished = None,
    target: Target = None,
    margin: Margin = None,
    one_rate: OneRate = None,
    failed_below: FailedBelow = None,
    leave_out: LeaveOut = None,
    by_mean: ByMean = None,
    corrected: Corrected = None,
) -> None:
    """Analyze results: cells, failures, operating points with intervals, train sizes, several tasks.

    Needs no model and no data: a table with one row per run is enough. Columns are found by their usual names (score or
    value, tuned_layers or k or frozen_layers, full, seed, model, task, metric, train_size, learning_rate, outcome, costs), or
    mapped with --columns.
    """
    from frostline.data.files import make_folder
    from frostline.report.answer.analysis import analyze as analyze_groups
    from frostline.report.answer.groups import load_groups

    protocol = protocol_named(as_published)
    names, metrics, chances = split_pairs("--columns", columns), by_task(metric), split_pairs("--chance", chance)
    groups = load_groups(
        sources,
        columns=names,
        constants=split_pairs("--set", set_),
        metrics=metrics,
        chances={task: number("--chance", value) for task, value in chances.items()},
        paired=paired,
    )
    excluded = split_words(leave_out) or []
    for flag, tasks in (
        ("--chance", list(chances)),
        ("--metric", list(filter(None, metrics))),
        ("--leave-out", excluded),
    ):
        require_known_tasks(flag, tasks, {group.task for group in groups})
    given = {
        "target": target,
        "margin": margin,
        "one_rate": one_rate,
        "failed_below": failed_below,
        "by_mean": by_mean,
        "corrected": corrected,
        "leave_out": tuple(excluded) or None,
    }
    out = out.expanduser()
    choices = choices_for(protocol, given)
    make_folder(out)
    analysis = analyze_groups(groups, choices)
    page = write_analysis_page(out, analysis, protocol, ", ".join(source.name for source in sources), groups)
    print_analysis(analysis, protocol)
    print(f"\n{page}")


def require_known_tasks(flag: str, names: Sequence[str], tasks: Collection[str]) -> None:
    """Refuse a task that no result belongs to.

    Raises:
        FrostlineError: With the nearest task and all that are known.
    """
    from frostline.data.wording import nearest

    known = {normalized_name(task) for task in tasks}
    unknown = next((name for name in names if normalized_name(name) not in known), None)
    if unknown is not None:
        raise FrostlineError(
            f"{flag} {unknown}: there is no such task{nearest(unknown, tasks)}; there are {', '.join(sorted(tasks))}."
        )


def by_task(words: Sequence[str] | None) -> dict[str, str]:
    """``f1`` for every task (under the empty name), or ``MRPC=f1`` for one."""
    single = [word for some in words or () for word in comma_separated(some) if "=" not in word]
    paired = [word for some in words or () for word in comma_separated(some) if "=" in word]
    return {**({"": single[0]} if single else {}), **split_pairs("--metric", paired)}


def number(flag: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise FrostlineError(f"{flag}: {value!r} is not a number.") from None
