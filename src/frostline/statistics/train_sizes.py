"""Several train sizes, or several tasks of one model, compared.

Of sizes: from which one full fine-tuning is better, and whether the best k depends on the size. Of tasks: the smallest k that
reaches the target in every one.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import scipy

from frostline.data.wording import normalized_name
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Cell, Difference, KOverSizes, OperatingPoint, SizeAnswer, TaskAnswer
from frostline.statistics.curve import DECIDED, UNDECIDED
from frostline.statistics.inference import QUANTILE, Ratio, holm
from frostline.statistics.recipe import FULL, Recipe

Shares = Mapping[str, Mapping[Recipe, Ratio | None]]  # task -> k -> share of full fine-tuning's score or gain


@dataclass(kw_only=True)
class OverTasks:
    """What the tasks of a model say together.

    Attributes:
        layers: The number of layers of the model; None: unknown.
        without_full: Tasks without a usable score of full fine-tuning, which are not among ``tasks``.
        left_out: Tasks excluded by choice.
        undefined: Tasks in which full fine-tuning is not significantly above the baseline. Shares of its gain have no meaning
            there, so these tasks do not count.
        raw: Tasks whose baseline is unknown. Their shares are of the score.
        points: The smallest k that reaches each target in every task that counts.
    """

    model: str
    layers: int | None
    sentence: str = ""
    tasks: list[str]
    without_full: list[str]
    left_out: list[str]
    undefined: list[str]
    raw: list[str]
    points: list[OperatingPoint]

    @property
    def excluded(self) -> list[str]:
        """The tasks that do not count."""
        return [*self.without_full, *self.left_out, *self.undefined]

    @property
    def counted(self) -> int:
        """The number of tasks that count."""
        return len(self.tasks) - len(self.left_out) - len(self.undefined)


def across_tasks(answers: Sequence[TaskAnswer], settings: AnalysisSettings) -> OverTasks | None:
    """What the tasks of a model say together, at the first train size of each; None for fewer than two tasks or two k.

    Args:
        answers: Of one model.
        settings: Targets, tasks to leave out, and whether shares are of the gain.
    """
    tasks = {one.task: one.sizes[0] for one in answers if one.sizes[0].reference_is_full}
    if len(tasks) < 2:
        return None
    cells = {task: {cell.recipe: cell for cell in curve.cells} for task, curve in tasks.items()}
    full = {task: curve.reference or FULL for task, curve in tasks.items()}
    first = next(iter(cells.values()))
    names = [k for k in first if k.is_k and all(_mean(some, k) is not None for some in cells.values())]
    if len(names) < 2:
        return None
    left_out = [
        task for task in tasks if normalized_name(task) in {normalized_name(name) for name in settings.leave_out}
    ]
    raw = [task for task, some in cells.items() if settings.corrected and some[full[task]].share_corrected is None]
    shares = {
        task: {
            k: cell.share_corrected if settings.corrected and task not in raw else cell.share
            for k, cell in some.items()
        }
        for task, some in cells.items()
    }
    undefined = [task for task, some in shares.items() if _estimate(some[full[task]]) is None]
    counting = [task for task in tasks if task not in (*left_out, *undefined)]
    return OverTasks(
        model=answers[0].model,
        layers=max((one.layers for one in answers if one.layers), default=None),
        tasks=list(tasks),
        without_full=[one.task for one in answers if one.task not in tasks],
        left_out=left_out,
        undefined=[task for task in undefined if task not in left_out],
        raw=[task for task in raw if task in counting],
        points=[
            _operating_point(names, shares, counting, target, {*full.values()}, corrected=settings.corrected)
            for target in settings.targets
        ],
    )


def _mean(cells: Mapping[Recipe, Cell], k: Recipe) -> float | None:
    return cells[k].comparable if k in cells else None


def _estimate(share: Ratio | None) -> float | None:
    return None if share is None else share.estimate


def _operating_point(
    names: Sequence[Recipe],
    shares: Shares,
    counting: Sequence[str],
    target: float,
    full: Set[Recipe],
    *,
    corrected: bool,
) -> OperatingPoint:
    """The smallest k that reaches the target in every task: by its means, with 95 % confidence, or not ruled out."""

    def smallest(end: str, *, unknown: bool = False) -> Recipe | None:
        """The smallest k of which this end of the interval reaches the target in every task; or ``unknown`` ends count, too."""

        def reaches(k: Recipe) -> bool:
            values = [None if (share := shares[task][k]) is None else getattr(share, end) for task in counting]
            return bool(values) and all(unknown if value is None else value >= target for value in values)

        return next((k for k in names if {k} == full or reaches(k)), None)

    confident, not_ruled_out = smallest("low"), smallest("high", unknown=True)
    return OperatingPoint(
        target=target,
        corrected=corrected,
        estimate=smallest("estimate"),
        confident=confident,
        not_ruled_out=not_ruled_out,
        verdict=DECIDED if confident == not_ruled_out else UNDECIDED,
    )


def over_sizes(curves: Sequence[SizeAnswer]) -> list[KOverSizes]:
    """Each k but the reference over several train sizes, compared with full fine-tuning.

    The slope is the least-squares slope of the sizes' differences over log10 of the train size. Their errors are treated as
    independent, with Satterthwaite's degrees of freedom. A k needs two sizes with at least two runs each.
    """
    rising = sorted(curves, key=_size)
    # full is no k to compare, also at a size where all its runs have failed
    full = {curve.reference for curve in rising if curve.reference_is_full}
    names = dict.fromkeys(
        cell.recipe for curve in rising for cell in curve.cells if cell.recipe not in {curve.reference, *full}
    )
    found = []
    for name in names:
        found.append(row := KOverSizes(recipe=name, full_better_from=_full_better_from(rising, name)))
        _add_slope(row, rising)
    known = [(row, row.slope_p) for row in found if row.slope_p is not None]
    for (row, _), p in zip(known, holm([p for _, p in known]), strict=True):
        row.slope_p_holm = p
    return found


def _size(curve: SizeAnswer) -> int:
    """The train size; curves of several sizes have one."""
    assert curve.train_size is not None
    return curve.train_size


def _full_better_from(rising: Sequence[SizeAnswer], name: Recipe) -> int | None:
    """The smallest size at which the whole interval of ``k - full`` lies below 0, as at every larger size."""
    differences = _differences(rising, name)
    worse = [n for n, difference in differences if difference.high is not None and difference.high < 0]
    return min((n for n, _ in differences if all(m in worse for m, _ in differences if m >= n)), default=None)


def _add_slope(row: KOverSizes, rising: Sequence[SizeAnswer]) -> None:
    """Add how much ``k - full`` changes with ten times as many examples, with interval and p-value."""
    known = [(n, d) for n, d in _differences(rising, row.recipe) if d.error is not None]
    if len(known) < 2:
        return
    x = np.log10([n for n, _ in known])
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    row.slope = slope = float(weights @ [d.estimate for _, d in known])
    parts = [(w * d.error) ** 2 for w, (_, d) in zip(weights, known, strict=True)]
    error = sum(parts) ** 0.5
    own = [d.degrees_of_freedom for _, d in known]
    degrees_of_freedom = error**4 / sum(part**2 / df for part, df in zip(parts, own, strict=True)) if error else 1.0
    half = float(scipy.stats.t.ppf(QUANTILE, degrees_of_freedom)) * error
    row.slope_low, row.slope_high = slope - half, slope + half
    row.slope_p = float(2 * scipy.stats.t.sf(abs(slope) / error, degrees_of_freedom)) if error else float(slope == 0)


def _differences(rising: Sequence[SizeAnswer], name: Recipe) -> list[tuple[int, Difference]]:
    """``k - full`` at each size that has both k and full fine-tuning."""
    known = [(_size(curve), curve.cell(name)) for curve in rising if curve.reference_is_full]
    return [(size, cell.difference) for size, cell in known if cell and cell.difference]
