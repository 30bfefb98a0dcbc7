"""Compare measured with published numbers. Imports no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from frostline.data.wording import counted, normalized_name
from frostline.report import formatting, names
from frostline.report.answer.analysis import Analysis, shares_of_head_only
from frostline.report.pages.analysis_page import Publication
from frostline.report.tables.table import Column, ReportTable, Row
from frostline.statistics.answer import Cell, SizeAnswer, TaskAnswer
from frostline.statistics.metrics import METRICS
from frostline.statistics.recipe import HEAD_ONLY, Recipe
from frostline.studies.protocol import Protocol, PublishedNumber

STATISTICS = ("mean", "median", "std", "min", "max")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A published number with its measured counterpart.

    Attributes:
        published: The number.
        model: The study's name of the measured model, or the own name of any other model; None: of all models.
        tuned, train_size: What was measured; None for an unknown train size.
        measured: The measured value, of ``runs`` runs; None: it is no mean.
    """

    published: PublishedNumber
    model: str | None = None
    tuned: Recipe
    train_size: int | None = None
    measured: float
    runs: int | None = None

    @property
    def gap(self) -> float:
        """The measured value less the published one."""
        return self.measured - self.published.value


def compare(protocol: Protocol, analysis: Analysis) -> list[Compared]:
    """Each published number that has a measured counterpart.

    A model of the study is compared with its own numbers. Any other model is compared with the numbers of all models, at the
    same share of tuned layers. Scores in two metrics are not compared.
    """
    return [found for published in protocol.published for found in _measured(protocol, published, analysis)]


def _in_other_metric(published: PublishedNumber, group: TaskAnswer) -> bool:
    """Whether a number is of the task of a group, and a score in another metric, as far as that is known."""
    same_task = normalized_name(group.task) == normalized_name(published.task or "")
    return same_task and group.metric in METRICS and published.metric not in (None, group.metric)


def means_of_same_models(rows: Sequence[Compared]) -> list[Compared]:
    """The published means that were measured with the same model."""
    return [row for row in rows if row.published.statistic == "mean" and row.model == row.published.model]


def gaps_of(rows: Sequence[Compared]) -> tuple[float, float]:
    """The mean and the largest distance between measured and published numbers, in points."""
    gaps = [100 * abs(row.gap) for row in rows]
    return sum(gaps) / len(gaps), max(gaps)


def publication_of(protocol: Protocol, analysis: Analysis) -> Publication:
    """What the page of an analysis says of the study."""
    rows = compare(protocol, analysis)
    same, gaps = means_of_same_models(rows), ""
    if same:
        mean, largest = gaps_of(same)
        worst = max(same, key=lambda row: abs(row.gap)).published
        where = f"{worst.table}, {worst.model}, {worst.task}"
        gaps = f"{len(same)} means of the same models differ by {mean:.2f} points on average and {largest:.2f} at most ({where})."
    left_out = {
        (group.task, names.metric(group.metric), names.metric(one.metric or ""))
        for group in analysis.groups
        for one in protocol.published
        if _in_other_metric(one, group)
    }
    for task, ours, theirs in sorted(left_out):
        gaps += f"{' ' if gaps else ''}The {ours} of {task} is not compared, because {theirs} was published."
    for task in dict.fromkeys(group.task for group in analysis.groups):
        same_task = [one for one in protocol.published if normalized_name(one.task or "") == normalized_name(task)]
        known = {one.train_size for one in same_task if one.train_size}
        sizes = {
            size.train_size for one in analysis.groups if one.task == task for size in one.sizes if size.train_size
        }
        if len(known) > 1 and (others := sizes - known):
            ours, theirs = (", ".join(f"{size:,}" for size in sorted(some)) for some in (others, known))
            gaps += f"{' ' if gaps else ''}{task} with {ours} examples is not compared: {theirs} were published."
    return Publication(study=protocol, gaps=gaps, table=published_table(rows) if rows else None)


def _measured(protocol: Protocol, published: PublishedNumber, analysis: Analysis) -> Iterator[Compared]:
    models = dict.fromkeys(group.model for group in analysis.groups)
    known = {model: protocol.short_name(model) or model for model in models}
    own = [model for model in models if known[model] == published.model]
    others = [model for model in models if known[model] not in protocol.model]
    sizes = {other.train_size for other in protocol.published if other.task == published.task}
    for model in own or others:
        if published.statistic == "operating_point":
            for tasks in (tasks for tasks in analysis.over_tasks if tasks.model == model):
                point = next(point for point in tasks.points if point.target == 0.9).estimate
                if point and (k := point.k) is not None:
                    yield Compared(published=published, model=known[model], tuned=point, measured=k)
            continue
        for group in analysis.groups:
            same_task = normalized_name(group.task) == normalized_name(published.task or "")
            if group.model == model and same_task and not _in_other_metric(published, group):
                for size, cell, value in _cells(group, published, one_size=len(sizes) == 1):
                    yield Compared(
                        published=published,
                        model=known[model],
                        tuned=cell.recipe,
                        train_size=size,
                        measured=value,
                        runs=cell.validation.n,
                    )
    if published.statistic == "mean_share_of_full" and (shares := shares_of_head_only(analysis.groups)):
        mean = sum(shares) / len(shares)
        yield Compared(published=published, tuned=HEAD_ONLY, measured=mean)


def _cells(
    group: TaskAnswer, published: PublishedNumber, *, one_size: bool
) -> Iterator[tuple[int | None, Cell, float]]:
    """The train sizes, cells and measured values to compare a published number with.

    With ``one_size`` all numbers of the task were published for one train size, which may differ from the measured one.
    """
    for size in group.sizes[:1] if one_size else group.sizes:
        if not one_size and published.train_size is not None and size.train_size not in (None, published.train_size):
            continue
        cell = _cell(size, group.layers, published)
        value = _value(cell, published, alone=len(size.cells) == 1) if cell else None
        if cell and value is not None:
            yield size.train_size, cell, value


def _cell(size: SizeAnswer, layers: int | None, published: PublishedNumber) -> Cell | None:
    """The cell with the same share of tuned layers as the published number."""
    if published.tuned is None or published.tuned.k is None:
        return size.cell(published.tuned)
    k = published.tuned.k * (layers or published.of_layers or 1) / (published.of_layers or layers or 1)
    return next((cell for cell in size.cells if cell.recipe.k is not None and round(k, 6) == cell.recipe.k), None)


def _value(cell: Cell, published: PublishedNumber, *, alone: bool) -> float | None:
    """The statistic of a cell. ``alone``: the curve has no other k, as in a search for the learning rate of full fine-tuning."""
    searched = len(cell.learning_rates_tried) > 1
    if published.statistic == "mean_at_best_rate":
        return cell.validation.mean if searched else None
    if published.statistic in STATISTICS and not (alone and searched):
        value = getattr(cell.validation, published.statistic)
    else:
        value = cell.trainable_parameters if published.statistic == "trainable_parameters" else None
    return None if value is None else float(value)


def published_table(rows: Sequence[Compared]) -> ReportTable:
    """Each published number with its measured counterpart. Columns that all rows share are left out of the page."""
    printed, measured = {row.published.model for row in rows} - {None}, {row.model for row in rows} - {None}
    sizes = {row.train_size for row in rows} - {None}
    other_model = any(row.model not in (row.published.model, None) for row in rows)
    other_size = any(
        row.published.train_size and row.train_size not in (row.published.train_size, None) for row in rows
    )
    with_size = any(row.published.train_size for row in rows)

    def title(of: str, shown: bool) -> str:
        return f"measured\n{of}" if shown else ""

    def runs(row: Compared) -> list[str]:
        return [counted(row.runs, "run")] if row.runs else []

    columns = (
        Column("table", "in", of="published.table", number=False, rank="place"),
        Column("model", "model" if len(printed) > 1 else "", of="published.model", number=False),
        Column("task", "task", of="published.task", number=False),
        Column("train_size", "examples" if with_size else "", formatting.count, of="published.train_size"),
        Column("tuned", "tuned", names.printed, of="published.tuned", number=False),
        Column("of_layers", "of\nlayers", of="published.of_layers"),
        Column("statistic", "statistic", lambda text: text.replace("_", " "), of="published.statistic", number=False),
        Column("value", "published", _number, of="published.value", strong=True),
        Column("measured_model", title("model", other_model and len(measured) > 1), of="model", number=False),
        Column("measured_tuned", title("tuned", other_model), names.printed, of="tuned", number=False),
        Column("measured_size", title("examples", other_size and len(sizes) > 1), formatting.count, of="train_size"),
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
    return f"{100 * gap:+z.2f}".replace("-", "−") if abs(gap) < 1 else f"{gap:+z,.0f}".replace("-", "−")
