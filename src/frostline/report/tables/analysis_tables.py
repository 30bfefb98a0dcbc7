"""The tables over all models and tasks of an analysis, and of each model on a task over its train sizes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frostline.report import formatting, names
from frostline.report.answer.analysis import Analysis, GroupAnalysis, ModelAnalysis
from frostline.report.tables.curve_tables import THREE_WAYS, failure_columns, sufficient_columns
from frostline.report.tables.table import Column, ReportTable, Row, Value
from frostline.statistics.recipe import FULL, Recipe
from frostline.statistics.run_result import ALTERNATIVES

MODEL, TASK = Column("model", "model", number=False), Column("task", "task", number=False)
UNDECIDED, NO_ANSWER = "undecided", "no answer"
Read = Callable[[Any], Any]


def recommendations_table(analysis: Analysis) -> ReportTable:
    """What is recommended for every task (rows) and model (columns), as ``last 5 of 12 (0.3 below, 98 % sure)``.

    Of several train sizes, the largest one with an answer is shown.
    """
    settings = analysis.settings
    found = {(group.task, group.model): recommendation(group, by_mean=settings.by_mean) for group in analysis.groups}

    def columns_of(model: str) -> list[Column]:
        def fact(key: str) -> Read:
            return lambda task: getattr(found.get((task, model)), key, None)

        def text(task: str) -> str:
            return str(fact("text")(task) or formatting.UNKNOWN)

        def beside(task: str) -> list[str]:
            below, probability = fact("below_full")(task), fact("probability")(task)
            sure = "" if probability is None else f", {formatting.short_probability(probability)} sure"
            side = "below" if below is not None and below >= 0 else "above"
            return [] if below is None else [formatting.unbroken(f"{formatting.points(abs(below))} {side}{sure}")]

        shown: dict[str, Any] = {"number": False, "strong": True, "user_text": "title"}
        return [
            Column(f"{model} choice", model, of=fact("choice"), whole=text, small=beside, rank=fact("place"), **shown),
            *(Column(f"{model} {key}", of=fact(key)) for key in ("layers", "below_full", "probability")),
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
    models = [column for model in analysis.models for column in columns_of(model.model)]
    rows = tuple(map(Row, dict.fromkeys(group.task for group in analysis.groups)))
    columns = (Column("task", "task", of=str, number=False), *models)
    return ReportTable("recommendations", "What to tune", caption, columns, rows)


def _whole(of_gain: set[bool]) -> str:
    """What the target is a share of; ``of_gain`` says for which curves it is the gain."""
    mixed = " (of its score where the baseline is unknown)" if len(of_gain) > 1 else ""
    return f"{'gain over the baseline' if True in of_gain else 'score'}{mixed}"


@dataclass(frozen=True)
class Recommendation:
    """What is recommended for a model and task.

    Attributes:
        choice: The choice, or ``undecided`` or ``no answer`` if nothing is recommended.
        layers: The number of layers of the model.
        below_full: The points that it is below full fine-tuning; None for full fine-tuning itself.
        probability: That it reaches the target; None if the decision is by mean scores, too.
    """

    choice: str
    layers: int | None
    below_full: float | None = None
    probability: float | None = None

    @property
    def place(self) -> int | None:
        """The number of tuned layers, for sorting. Full fine-tuning is larger than every k, an alternative smaller."""
        if self.choice in (UNDECIDED, NO_ANSWER):
            return None
        if self.choice == FULL:
            return (self.layers or 0) + 1
        return -1 if self.choice in ALTERNATIVES else Recipe(self.choice).k

    @property
    def text(self) -> str:
        """``last 5 of 12``."""
        if self.choice in (*ALTERNATIVES, UNDECIDED, NO_ANSWER):
            return names.printed(self.choice)
        return f"{self.choice} of {self.layers}" if Recipe(self.choice).k and self.layers else self.choice


def recommendation(group: GroupAnalysis, *, by_mean: bool) -> Recommendation:
    """What is recommended for a model and task."""
    size, layers = group.sizes[0], group.layers
    recommended, decision = size.recommended, size.decision
    if recommended is None and decision is None:
        return Recommendation(NO_ANSWER, layers)
    if "Undecided: " in group.sentence:
        return Recommendation(UNDECIDED, layers)
    name = recommended.recipe if recommended else decision.choice if decision else NO_ANSWER
    choice = next((choice for choice in size.choices if choice.choice == name), None)
    if name == size.reference or choice is None:
        return Recommendation(name, layers)
    if by_mean:
        cell = size.cell(name)
        assert cell is not None and cell.difference is not None
        return Recommendation(name, layers, -100 * cell.difference.estimate)
    return Recommendation(name, layers, choice.below_full, choice.probability)


def answers_table(analysis: Analysis) -> ReportTable:
    """The smallest k that reaches the target, for every model and task."""

    def size(key: str) -> Read:
        return lambda group: getattr(group.sizes[0], key)

    def full(key: str) -> Read:
        """Reads a part of the scores of full fine-tuning, or of the reference if that was not run."""

        def read(group: GroupAnalysis) -> Value:
            cell = group.sizes[0].cell(size("reference")(group))
            value: Value = getattr(cell.validation, key) if cell else None
            return value

        return read

    def beside(group: GroupAnalysis) -> list[str]:
        reference = size("reference")(group)
        instead = "" if reference in (FULL, None) else f"here {names.printed(reference)}"
        return [formatting.score_interval(full("low")(group), full("high")(group)), instead]

    groups, settings = analysis.groups, analysis.settings
    columns = (
        *(MODEL, TASK, Column("metric", "metric", names.metric, number=False)),
        Column("layers", "layers" if len({group.layers for group in groups}) > 1 else ""),
        Column("chance", "baseline", formatting.score),
        Column("full", "full", formatting.score, of=full("mean"), small=beside),
        *(Column("full_low", of=full("low")), Column("full_high", of=full("high"))),
        Column("reference", of=size("reference")),
        *sufficient_columns(of=lambda group: group.sizes[0].deciding_point),
        Column("verdict", of=lambda group: group.sizes[0].deciding_point.verdict),
        Column("seeds_to_decide", "seeds\nneeded", formatting.count, of=size("seeds_to_decide")),
    )
    whole = _whole({group.sizes[0].deciding_point.corrected for group in groups})
    caption = (
        f"The smallest number of tuned layers that reaches {formatting.target(settings.target)} of full "
        f"fine-tuning’s {whole}. {THREE_WAYS} Seeds needed: roughly how many seeds in total would probably decide."
    )
    return ReportTable("answers", "Every task", caption, columns, tuple(map(Row, groups)))


def failures_by_depth_table(analysis: Analysis) -> ReportTable:
    """The failed runs of all models and tasks, by how much was trained."""
    columns = (Column("what", "trained", number=False), *failure_columns())
    caption = (
        "Failed runs of all models and tasks, with the 95 % confidence interval (Clopper-Pearson) of the rate. Diverged: no "
        "score. Degenerate: the same prediction for every example, where predictions are known. At chance and collapsed: far "
        "below the other runs of its cell, with less (at chance) or more (collapsed) than a tenth of the best run’s gain over "
        "the baseline. Where predictions are known, the distance must exceed what the sample of examples explains. Where the "
        "baseline is unknown, only lost scores can be counted. Runs that are not above the baseline are counted separately."
    )
    rows = tuple(map(Row, analysis.failures))
    return ReportTable("failures_by_depth", "Failures by how much was trained", caption, columns, rows)


def above_full_table(analysis: Analysis) -> ReportTable:
    """Every k whose mean is above that of full fine-tuning."""
    columns = (
        *(MODEL, TASK, Column("recipe", "tuned", names.printed, number=False)),
        *(Column("tuned_layers"), Column("layers")),
        Column("estimate", "above full", formatting.difference, small=_interval("low", "high")),
        *(Column("low"), Column("high")),
        Column("p", "p-value", formatting.p_value),
        Column("p_holm", "p-value\n(Holm)", formatting.p_value),
    )
    caption = (
        "Every k whose mean is above that of full fine-tuning. Of many comparisons some are above by chance; Holm’s method "
        f"adjusts for all {analysis.comparisons} comparisons of this page."
    )
    rows = sorted(analysis.above_full, key=lambda row: (row.p_holm is None, row.p_holm or 0.0))
    return ReportTable("above_full", "Above full fine-tuning", caption, columns, tuple(map(Row, rows)))


def _interval(low: str, high: str) -> Callable[[Any], list[str]]:
    return lambda row: [formatting.difference_interval(getattr(row, low), getattr(row, high))]


def tasks_table(model: ModelAnalysis, analysis: Analysis, suffix: str) -> ReportTable:
    """Each k over all tasks of a model: mean rank, mean share, and the worst task."""
    found = model.tasks
    assert found is not None
    whole = "gain" if analysis.settings.corrected else "score"
    columns = (
        Column("recipe", "tuned", names.printed, number=False, rank="place"),
        Column("tuned_layers"),
        Column("mean_rank", "mean\nrank", lambda value: f"{value:.1f}"),
        Column("mean_share", f"mean share\nof the {whole}", formatting.percent),
        Column("worst_share", "worst\nshare", formatting.percent),
        Column("worst_task", "worst\ntask", number=False),
        Column("tasks", "tasks"),
    )
    layers = f", {model.layers} layers" if model.layers else ""
    excluded = f" Excluded by choice: {', '.join(found.left_out)}." if found.left_out else ""
    caption = (
        f"{model.model}{layers}, over {len(found.tasks)} tasks. Rank 1 is the best mean of a task; ties share their "
        f"ranks. Shares are of full fine-tuning’s {whole}, as the mean over tasks and for the worst task.{excluded}"
    )
    title = f"{model.model} over all tasks"
    return ReportTable(f"over_tasks{suffix}", title, caption, columns, tuple(map(Row, found.rows)))


def points_over_tasks_table(analysis: Analysis) -> ReportTable:
    """The smallest k that reaches the target in every task, for each model."""
    columns = (
        Column("model", "model", of=lambda of: of[0].model, number=False),
        Column("layers", "layers", of=lambda of: of[0].layers),
        Column("target", "share\nof full", formatting.target, of=lambda of: of[1].target),
        *sufficient_columns(of=lambda of: of[1]),
        Column("left_out", "tasks\nexcluded", of=lambda of: ", ".join(of[0].tasks.left_out), number=False),
    )
    caption = (
        f"The smallest number of tuned layers that reaches each share of full fine-tuning in every task. {THREE_WAYS}"
    )
    rows = (
        Row((model, point), chosen=point.target == analysis.settings.target)
        for model in analysis.models
        if model.tasks
        for point in model.tasks.points
    )
    return ReportTable("points_over_tasks", "Operating points over all tasks", caption, columns, tuple(rows))


def train_sizes_table(group: GroupAnalysis) -> ReportTable:
    """Each k over the train sizes of one model and task: from which size full fine-tuning is better, and how k compares."""
    found = group.train_sizes
    assert found is not None
    slopes = {row.recipe: row for row in found.interaction}
    spreads = {row.recipe: row for row in found.spread}

    def of(rows: Mapping[Recipe, Any], key: str) -> Read:
        return lambda row: getattr(rows.get(row.recipe), key, None)

    def between(row: Any) -> list[str]:
        return [formatting.difference_interval(of(slopes, "low")(row), of(slopes, "high")(row))]

    slope = "change of the\ndifference per\ntenfold examples"
    columns = (
        Column("tuned", "tuned", names.printed, of=lambda row: str(row.recipe), number=False, rank="place"),
        Column("full_better_from", "full is better\nfrom … examples", formatting.count),
        Column("slope_slope", slope, formatting.difference, of=of(slopes, "slope"), small=between),
        *(Column(f"slope_{key}", of=of(slopes, key)) for key in ("low", "high", "p")),
        Column("slope_p_holm", "p-value of\nthe change\n(Holm)", formatting.p_value, of=of(slopes, "p_holm")),
        Column("spread_ratio", "spread between\nseeds relative\nto full", formatting.times, of=of(spreads, "ratio")),
        Column("spread_p", of=of(spreads, "p")),
        Column("spread_p_holm", "p-value of\nthe spread\n(Holm)", formatting.p_value, of=of(spreads, "p_holm")),
    )
    caption = (
        "Compared with full fine-tuning over all train sizes. The difference is the score of k less that of full fine-tuning: "
        "if it falls, full fine-tuning gains more from more examples. The spread is the standard deviation between seeds, with "
        "failed runs, pooled over the sizes; below 1, k varies less than full fine-tuning."
    )
    rows = tuple(map(Row, found.pays_from))
    return ReportTable("sizes", "Train sizes", caption, columns, rows)


def published_table(rows: Sequence[Mapping[str, Any]]) -> ReportTable:
    """Each published number with its measured counterpart, from :func:`frostline.studies.comparison.compare`."""
    printed, measured = ({row[name] for row in rows} - {None} for name in ("model", "measured_model"))
    sizes = {row.get("measured_size") for row in rows} - {None}
    other_model = any(row["measured_model"] not in (row["model"], None) for row in rows)
    other_size = any(row["train_size"] and row.get("measured_size") not in (row["train_size"], None) for row in rows)

    def runs(row: Mapping[str, Any]) -> list[str]:
        return [f"{row['runs']} {'run' if row['runs'] == 1 else 'runs'}"] if row["runs"] else []

    def tuned(row: Mapping[str, Any]) -> str | None:
        return None if row["tuned"] is None else row["tuned"]

    columns = (
        Column("table", "in", number=False, rank="place"),
        Column("model", "model" if len(printed) > 1 else "", number=False),
        TASK,
        Column("train_size", "examples" if any(row["train_size"] for row in rows) else "", formatting.count),
        Column("tuned", "tuned", names.printed, of=tuned, number=False),
        Column("of_layers", "of\nlayers"),
        Column("statistic", "statistic", lambda text: text.replace("_", " "), number=False),
        Column("value", "published", _number, strong=True),
        Column("measured_model", "measured\nmodel" if other_model and len(measured) > 1 else "", number=False),
        Column("measured_tuned", "measured\ntuned" if other_model else "", names.printed, number=False),
        Column("measured_size", "measured\nexamples" if other_size and len(sizes) > 1 else "", formatting.count),
        Column("measured", "measured", _number, small=runs),
        Column("runs"),
        Column("gap", "" if other_model else "measured less\npublished, points", _gap),
    )
    caption = "Every published number that was measured too."
    if len(printed) == 1:
        caption += f" Published for {printed.pop()}."
    if other_model:
        name = f" ({measured.pop()})" if len(measured) == 1 else ""
        caption += f" Another model{name} is compared at the same share of its layers: its scores need not be the same."
    if other_size and len(sizes) == 1:
        caption += f" Measured with {sizes.pop():,} examples."
    return ReportTable("published", "Published and measured", caption, columns, tuple(map(Row, rows)))


def _number(value: float) -> str:
    """A number of a publication: a score or a count."""
    return f"{value:,.0f}" if abs(value) >= 1000 or (value == int(value) and value > 1) else formatting.score(value)


def _gap(gap: float) -> str:
    """A difference of scores in percentage points, or a difference of counts."""
    return f"{100 * gap:+.2f}".replace("-", "−") if abs(gap) < 1 else f"{gap:+,.0f}".replace("-", "−")
