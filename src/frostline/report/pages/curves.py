"""What every page shows of the curves of a model on a task: their tables, figures and sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from frostline.report import formatting, names
from frostline.report.answer.scores_on_test import sentences_on_test
from frostline.report.figures.quality_against_cost import quality_against_cost
from frostline.report.figures.score_figures import learning_curves, validation_curve
from frostline.report.tables.analysis_tables import train_sizes_table
from frostline.report.tables.curve_tables import (
    choices_table,
    costs_table,
    failures_table,
    operating_points_table,
    renamed,
    scores_table,
    shares_table,
    ways_table,
)
from frostline.report.tables.table import ReportTable
from frostline.statistics.answer import SizeAnswer, TaskAnswer


@dataclass(frozen=True)
class Curve:
    """One train size on a page; ``suffix`` ends the names of its files."""

    answer: SizeAnswer
    suffix: str
    test_sentences: Sequence[str]
    tables: Mapping[str, Sequence[ReportTable]]  # by the part of the page that shows them

    @property
    def mark(self) -> str:
        """What the page calls the chosen k."""
        return names.mark_of_choice(self.answer.decision)


@dataclass(frozen=True)
class Curves:
    """The curves of a model on a task, and the tables over all of them."""

    answer: TaskAnswer
    suffix: str
    sizes: Sequence[Curve]
    failures: ReportTable
    over_sizes: ReportTable | None
    figures: Mapping[str, Figure]

    @property
    def tables(self) -> list[ReportTable]:
        """Every table."""
        of_sizes = [table for size in self.sizes for part in size.tables.values() for table in part]
        return [*of_sizes, self.failures, *([self.over_sizes] if self.over_sizes else [])]


def curves_of(
    answer: TaskAnswer,
    *,
    price: float,
    tested: bool = False,
    ways: Mapping[str, str] | None = None,
    suffix: str = "",
    about: str = "",
) -> Curves:
    """The tables, figures and sentences of every train size.

    Args:
        answer: Of a model on a task.
        price: The score that the training time of full fine-tuning is worth.
        tested: Whether test scores are known.
        ways: What each way to tune changes, in words.
        suffix: The end of the names of files, if a page has several models or tasks.
        about: The same for the titles of tables.
    """
    first, metric, chance = answer.sizes[0].train_size, answer.metric, answer.chance
    sizes, figures = [], {}
    for size in answer.sizes:
        is_first = size.train_size == first
        own = suffix if is_first else f"{suffix}_{size.train_size}"
        examples = f"{size.train_size:,} examples" if (about and size.train_size) or not is_first else ""
        tables = _tables(size, metric, price, ways or {}, tested=tested).items()
        title = ", ".join(filter(None, (about, examples)))
        sizes.append(
            Curve(
                size,
                own,
                [formatting.unbroken(text) for text in sentences_on_test(size, metric)] if tested else [],
                {part: [renamed(table, own, title) for table in some] for part, some in tables},
            )
        )
        if figure := quality_against_cost(size, metric=metric):
            figures[f"quality_against_cost{own}"] = figure
        if len(size.cells) > 1:
            figures[f"validation_curve{own}"] = validation_curve(size, metric=metric, chance=chance)
    if len(sizes) > 1:
        task = answer.task if about else ""
        figures[f"learning_curves{suffix}"] = learning_curves(answer.sizes, metric=metric, chance=chance, task=task)
    over_sizes = renamed(train_sizes_table(answer.over_sizes), suffix, about) if answer.over_sizes else None
    return Curves(answer, suffix, sizes, renamed(failures_table(answer.rates), suffix, about), over_sizes, figures)


def _tables(
    size: SizeAnswer, metric: str, price: float, ways: Mapping[str, str], *, tested: bool
) -> dict[str, list[ReportTable]]:
    """The tables of a train size, by the part of the page that shows them. A table that would be about nothing is left out."""
    return {
        "choices": [*([choices_table(size, price=price)] if size.choices else []), operating_points_table(size)],
        "ways": [ways_table(size, ways)] if any(cell.recipe.is_way for cell in size.cells) else [],
        "curve": [
            scores_table(size, metric, tested=tested),
            *([] if size.reference is None else [shares_table(size, metric)]),
        ],
        "cost": [costs_table(size)] if any(cell.seconds is not None for cell in size.cells) else [],
    }
