"""The tables over all models and tasks of an analysis, and of each model on a task over its train sizes."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from frostline.report import formatting, names
from frostline.report.answer.analysis import Analysis
from frostline.report.answer.sentence import taken_for_all_layers
from frostline.report.tables.curve_tables import (
    THREE_WAYS,
    TUNED,
    Read,
    place_of,
    sufficient_columns,
)
from frostline.report.tables.table import Column, Ends, ReportTable, Row
from frostline.statistics.answer import KOverSizes, TaskAnswer
from frostline.statistics.recipe import FULL

MODEL, TASK = Column("model", "model", number=False), Column("task", "task", number=False)
UNDECIDED, NO_ANSWER = "undecided", "no answer"


def recommendations_table(analysis: Analysis) -> ReportTable:
    """What is recommended for every task (rows) and model (columns), as ``last 5 of 12 (0.3 below, 98 % sure)``.

    Of several train sizes, the largest one with an answer is shown.
    """
    settings = analysis.settings
    known = {(group.task, group.model): recommendation(group, by_mean=settings.by_mean) for group in analysis.groups}
    layers = {group.model: group.layers for group in analysis.groups}

    def columns_of(model: str) -> list[Column]:
        def part(n: int) -> Read:
            return lambda task: known.get((task, model), (None, None, None))[n]

        def text(task: str) -> str:
            choice = part(0)(task) or formatting.UNKNOWN
            if not layers[model] or not choice.startswith("last "):
                return names.printed(choice)
            what, for_, length = choice.partition(" for ")
            return f"{what} of {layers[model]}{for_}{length}"

        def beside(task: str) -> list[str]:
            _, below, probability = known.get((task, model), (None, None, None))
            if below is None:
                return []
            sure = "" if probability is None else f", {formatting.short_probability(probability)} sure"
            return [formatting.unbroken(f"{formatting.points(abs(below))} {'below' if below >= 0 else 'above'}{sure}")]

        def place(task: str) -> int | None:
            choice = part(0)(task)
            return None if choice in (UNDECIDED, NO_ANSWER) else place_of(choice)

        shown: dict[str, Any] = {"number": False, "strong": True, "user_text": "title"}
        return [
            Column(f"{model} choice", model, of=part(0), whole=text, small=beside, rank=place, **shown),
            Column(f"{model} layers", of=lambda task: layers[model] if part(0)(task) else None),
            *(Column(f"{model} {key}", of=part(n)) for n, key in enumerate(("below_full", "probability"), 1)),
        ]

    of_gain = {group.sizes[0].deciding_point.corrected for group in analysis.groups}
    target = f"{formatting.target(settings.target)} of full fine-tuning’s {_whole(of_gain)}"
    caption = (
        "How many of the last layers to tune. Beside it: the expected points below or above full fine-tuning, and how sure it "
        f"is to reach {target}."
    )
    if settings.by_mean:
        caption = (
            f"The smallest number of last layers whose mean reaches {target}. Beside it: the points below or above full "
            "fine-tuning."
        )
    elif settings.sure is None and any(taken_for_all_layers(group.sizes[0], group.layers) for group in analysis.groups):
        caption += f" The largest k is taken to cost as much as full fine-tuning: {names.GIVE_LAYERS}."
    if any(group.sizes[0].reference and not group.sizes[0].reference_is_full for group in analysis.groups):
        caption += " Where full fine-tuning has no result, the largest k that has one takes its place."
    models = [column for model in layers for column in columns_of(model)]
    rows = tuple(map(Row, dict.fromkeys(group.task for group in analysis.groups)))
    columns = (Column("task", "task", of=str, number=False), *models)
    return ReportTable("recommendations", "What to tune", caption, columns, rows)


def _whole(of_gain: set[bool]) -> str:
    """What the target is a share of; ``of_gain`` says for which curves it is the gain."""
    mixed = " (of its score where the baseline is unknown)" if len(of_gain) > 1 else ""
    return f"{'gain over the baseline' if True in of_gain else 'score'}{mixed}"


def recommendation(group: TaskAnswer, *, by_mean: bool) -> tuple[str, float | None, float | None]:
    """What is recommended for a model and task, or ``undecided`` or ``no answer``.

    Also the points that it is below full fine-tuning, and the probability that it reaches the target. These are None for full
    fine-tuning itself. If the decision is by mean scores, there is no probability.
    """
    size = group.sizes[0]
    name = size.recommended.recipe if size.recommended else size.decision.choice if size.decision else NO_ANSWER
    if name != NO_ANSWER and "Undecided: " in group.sentence:
        return UNDECIDED, None, None
    choice = next((choice for choice in size.choices if choice.choice == name), None)
    if name == size.reference or choice is None:
        return name, None, None
    if by_mean:
        cell = size.cell(name)
        assert cell is not None and cell.difference is not None
        return name, -100 * cell.difference.estimate, None
    return name, choice.below_full, choice.probability


def answers_table(analysis: Analysis) -> ReportTable:
    """The smallest k that reaches the target, for every model and task."""

    def full(group: TaskAnswer) -> tuple[float | None, float | None, float | None]:
        """The mean score of full fine-tuning, or of the reference if that was not run, and the ends of its interval."""
        cell = group.sizes[0].cell(group.sizes[0].reference)
        return (cell.validation.mean, cell.validation.low, cell.validation.high) if cell else (None, None, None)

    def ends(group: TaskAnswer) -> Ends:
        return full(group)[1:]

    def instead(group: TaskAnswer) -> list[str]:
        reference = group.sizes[0].reference
        return [] if reference in (FULL, None) else [f"here {names.printed(reference)}"]

    groups, settings = analysis.groups, analysis.settings
    columns = (
        *(MODEL, TASK, Column("metric", "metric", names.metric, number=False)),
        Column("layers", "layers" if len({group.layers for group in groups}) > 1 else ""),
        Column("chance", "baseline", formatting.score),
        Column("full", "full", formatting.score, of=lambda group: full(group)[0], ends=ends, small=instead),
        Column("reference", of=lambda group: group.sizes[0].reference),
        *sufficient_columns(of=lambda group: group.sizes[0].deciding_point),
        Column("verdict", of=lambda group: group.sizes[0].deciding_point.verdict),
        Column("seeds_to_decide", "seeds\nneeded", formatting.count, of=lambda group: group.sizes[0].seeds_to_decide),
    )
    whole = _whole({group.sizes[0].deciding_point.corrected for group in groups})
    caption = (
        f"The smallest number of tuned layers that reaches {formatting.target(settings.target)} of full "
        f"fine-tuning’s {whole}. {THREE_WAYS} Seeds needed: roughly how many seeds in total would probably decide."
    )
    return ReportTable("answers", "Every task", caption, columns, tuple(map(Row, groups)))


def points_over_tasks_table(analysis: Analysis) -> ReportTable:
    """The smallest k that reaches the target in every task, for each model."""
    columns = (
        Column("model", "model", of=lambda of: of[0].model, number=False),
        Column("layers", "layers", of=lambda of: of[0].layers),
        Column("target", "share\nof full", formatting.target, of=lambda of: of[1].target),
        *sufficient_columns(of=itemgetter(1)),
        Column("left_out", "tasks\nexcluded", of=lambda of: ", ".join(of[0].excluded), number=False),
    )
    caption = (
        f"The smallest number of tuned layers that reaches each share of full fine-tuning in every task. {THREE_WAYS}"
    )
    rows = (
        Row((tasks, point), chosen=point.target == analysis.settings.target)
        for tasks in analysis.over_tasks
        for point in tasks.points
    )
    return ReportTable("points_over_tasks", "Operating points over all tasks", caption, columns, tuple(rows))


def train_sizes_table(rows: Sequence[KOverSizes]) -> ReportTable:
    """Each k over the train sizes of one model and task: from which size full fine-tuning is better, and how k compares."""
    slope = "change of the\ndifference per\ntenfold examples"
    columns = (
        TUNED,
        Column("full_better_from", "full is better\nfrom … examples", formatting.count),
        Column("slope", slope, formatting.difference, ends=("slope_low", "slope_high")),
        Column("slope_p"),
        Column("slope_p_holm", "p-value of\nthe change\n(Holm)", formatting.p_value),
    )
    caption = (
        "Compared with full fine-tuning over all train sizes. The difference is the score of k less that of full fine-tuning: "
        "if it falls, full fine-tuning gains more from more examples."
    )
    return ReportTable("sizes", "Train sizes", caption, columns, tuple(map(Row, rows)))
