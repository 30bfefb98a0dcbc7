"""Several train sizes: from which size full fine-tuning is better, and whether the best k depends on the size.

Several tasks of one model: ranks, the worst task, and the smallest k that reaches the target in every task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from frostline.data.wording import normalized_name
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Cell, Difference, SizeAnswer
from frostline.statistics.inference import QUANTILE, Array, Ratio, holm
from frostline.statistics.recipe import FULL, Recipe

Shares = Mapping[str, Mapping[Recipe, Ratio | None]]  # task -> k -> share of full fine-tuning's score or gain


@dataclass(frozen=True, kw_only=True)
class KOverTasks:
    """A k that every task has: its mean rank (1 is best, ties share), its shares of full fine-tuning, and its worst task."""

    recipe: Recipe
    tuned_layers: int | None
    mean_rank: float | None
    mean_share: float | None
    worst_share: float | None
    worst_task: str | None
    tasks: int


@dataclass(frozen=True, kw_only=True)
class PointOverTasks:
    """The smallest k that reaches the target in every task that counts: by its means, with 95 % confidence, or not ruled out."""

    target: float
    estimate: Recipe | None
    confident: Recipe | None
    not_ruled_out: Recipe | None


@dataclass(frozen=True, kw_only=True)
class OverTasks:
    """Each k over all tasks of a model.

    Attributes:
        left_out: Tasks excluded by choice.
        undefined: Tasks in which full fine-tuning is not significantly above the baseline. Shares of its gain have no meaning
            there, so these tasks do not count.
        raw: Tasks whose baseline is unknown. Their shares are of the score.
    """

    tasks: list[str]
    left_out: list[str]
    undefined: list[str]
    raw: list[str]
    rows: list[KOverTasks]
    points: list[PointOverTasks]

    @property
    def counted(self) -> int:
        """The number of tasks that count."""
        return len(self.tasks) - len(self.left_out) - len(self.undefined)


def across_tasks(curves: Mapping[str, SizeAnswer], settings: AnalysisSettings) -> OverTasks | None:
    """Each k over all tasks of a model; None for fewer than two tasks or two k.

    Args:
        curves: By task.
        settings: Targets, tasks to leave out, and whether shares are of the gain.
    """
    tasks = {task: curve for task, curve in curves.items() if curve.reference == FULL}
    if len(tasks) < 2:
        return None
    cells = {task: {cell.recipe: cell for cell in curve.cells} for task, curve in tasks.items()}
    first = next(iter(cells.values()))
    names = [k for k in first if Recipe(k).is_k and all(_mean(some, k) is not None for some in cells.values())]
    if len(names) < 2:
        return None
    ranks = {
        task: dict(zip(names, stats.rankdata([-(_mean(some, k) or 0.0) for k in names]), strict=True))
        for task, some in cells.items()
    }
    left_out = [
        task for task in tasks if normalized_name(task) in {normalized_name(name) for name in settings.leave_out}
    ]
    raw = [task for task, some in cells.items() if settings.corrected and some[FULL].share_corrected is None]
    shares = {
        task: {
            k: cell.share_corrected if settings.corrected and task not in raw else cell.share
            for k, cell in some.items()
        }
        for task, some in cells.items()
    }
    undefined = [task for task, some in shares.items() if _estimate(some[FULL]) is None]
    counting = [task for task in tasks if task not in (*left_out, *undefined)]
    return OverTasks(
        tasks=list(tasks),
        left_out=left_out,
        undefined=[task for task in undefined if task not in left_out],
        raw=[task for task in raw if task in counting],
        rows=[_row(k, first[k].tuned_layers, shares, counting, ranks) for k in names],
        points=[_operating_point(names, shares, counting, target) for target in settings.targets],
    )


def _mean(cells: Mapping[Recipe, Cell], k: Recipe) -> float | None:
    return cells[k].comparable if k in cells else None


def _estimate(share: Ratio | None) -> float | None:
    return None if share is None else share.estimate


def _row(
    k: Recipe, layers: int | None, shares: Shares, counting: Sequence[str], ranks: Mapping[str, Mapping[Recipe, float]]
) -> KOverTasks:
    known = {task: value for task in counting if (value := _estimate(shares[task][k])) is not None}
    worst = min(known, key=lambda task: known[task], default=None)
    return KOverTasks(
        recipe=k,
        tuned_layers=layers,
        mean_rank=float(np.mean([ranks[task][k] for task in counting])) if counting else None,
        mean_share=float(np.mean(list(known.values()))) if known else None,
        worst_share=None if worst is None else known[worst],
        worst_task=worst,
        tasks=len(known),
    )


def _operating_point(names: Sequence[Recipe], shares: Shares, counting: Sequence[str], target: float) -> PointOverTasks:
    """The smallest k that reaches the target in every task: by its means, with 95 % confidence, or not ruled out."""

    def reaches(k: Recipe, end: str, unknown: bool) -> bool:
        values = [None if share is None else getattr(share, end) for share in (shares[task][k] for task in counting)]
        return bool(values) and all(unknown if value is None else value >= target for value in values)

    estimate, confident, not_ruled_out = (
        next((k for k in names if k == FULL or reaches(k, end, unknown)), None)
        for end, unknown in (("estimate", False), ("low", False), ("high", True))
    )
    return PointOverTasks(target=target, estimate=estimate, confident=confident, not_ruled_out=not_ruled_out)


PERMUTATIONS = 10_000


def _size(curve: SizeAnswer) -> int:
    """The train size; curves of several sizes have one."""
    assert curve.train_size is not None
    return curve.train_size


@dataclass(frozen=True, kw_only=True)
class PaysFrom:
    """From which train size full fine-tuning is significantly better than a k; None: from none."""

    recipe: Recipe
    sizes: list[int]
    full_better_from: int | None


@dataclass(frozen=True, kw_only=True)
class Slope:
    """How much ``k - full`` changes with ten times as many examples."""

    recipe: Recipe
    slope: float
    low: float
    high: float
    p: float
    p_holm: float | None = None


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The spread between seeds relative to that of full fine-tuning; None if the latter is 0."""

    recipe: Recipe
    sizes: list[int]
    ratio: float | None
    p: float
    p_holm: float | None = None


def pays_from(curves: Sequence[SizeAnswer]) -> list[PaysFrom]:
    """For each smaller k: the train size from which full fine-tuning is significantly better.

    ``full_better_from`` is the smallest size at which the whole interval of ``k - full`` lies below 0, as at every larger size.
    None: there is no such size.
    """
    found = []
    rising = sorted(curves, key=lambda curve: _size(curve))
    for name in _names(rising):
        differences = [(_size(curve), difference) for curve, difference in _differences(rising, name)]
        worse = [n for n, difference in differences if difference.high is not None and difference.high < 0]
        tail = [n for n, _ in differences if all(m in worse for m, _ in differences if m >= n)]
        sizes = [n for n, _ in differences]
        found.append(PaysFrom(recipe=name, sizes=sizes, full_better_from=min(tail, default=None)))
    return found


def interaction(curves: Sequence[SizeAnswer]) -> list[Slope]:
    """For each k: how much ``k - full`` changes with ten times as many examples, with interval and p-value.

    This is the least-squares slope of the sizes' differences over log10 of the train size. Their errors are treated as
    independent, with Satterthwaite's degrees of freedom. ``p_holm`` is adjusted over all k. A k needs two sizes with at least
    two runs each.
    """
    found: list[Slope] = []
    rising = sorted(curves, key=lambda curve: _size(curve))
    for name in _names(rising):
        known = [(_size(c), d) for c, d in _differences(rising, name) if d.error is not None]
        if len(known) < 2:
            continue
        x = np.log10([n for n, _ in known])
        weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
        slope = float(weights @ [d.estimate for _, d in known])
        parts = [(w * d.error) ** 2 for w, (_, d) in zip(weights, known, strict=True)]
        error = sum(parts) ** 0.5
        own = [d.degrees_of_freedom for _, d in known]
        degrees_of_freedom = error**4 / sum(part**2 / df for part, df in zip(parts, own, strict=True)) if error else 1.0
        half = float(stats.t.ppf(QUANTILE, degrees_of_freedom)) * error
        p = float(2 * stats.t.sf(abs(slope) / error, degrees_of_freedom)) if error else float(slope == 0)
        found.append(Slope(recipe=name, slope=slope, low=slope - half, high=slope + half, p=p))
    return _adjusted(found)


def spread(curves: Sequence[SizeAnswer]) -> list[Spread]:
    """For each k: the spread between seeds relative to that of full fine-tuning, over all train sizes, including failed runs.

    At each size, k and full fine-tuning are compared on the same number of runs: their first seeds. ``ratio`` is that of the
    standard deviations, pooled over the sizes. ``p`` is from a permutation test of Brown and Forsythe's statistic: within each
    size, absolute deviations from the cell's median are reassigned between k and full. With equal spreads, p is below 0.05 in at
    most 5 % of the cases, on normal and on heavy-tailed scores.
    """
    generator = np.random.default_rng(0)
    found: list[Spread] = []
    rising = sorted(curves, key=lambda curve: _size(curve))
    for name in _names(rising):
        both = [
            (_size(curve), pair)
            for curve in rising
            if curve.reference == FULL and len((pair := _equally_many(curve, name))[0]) > 1
        ]
        if not both:
            continue
        ours, theirs = (sum(float(pair[side].var(ddof=1)) * (len(pair[0]) - 1) for _, pair in both) for side in (0, 1))
        ratio = (ours / theirs) ** 0.5 if theirs > 0 else None
        p = _permutation_p([pair for _, pair in both], generator)
        found.append(Spread(recipe=name, sizes=[n for n, _ in both], ratio=ratio, p=p))
    return _adjusted(found)


def _equally_many(curve: SizeAnswer, name: str) -> tuple[Array, Array]:
    """The scores of k and of full fine-tuning at one size: of both the first n, where n is the smaller number of runs."""
    both = [
        [
            p.validation_best
            for cell in curve.cells
            if cell.recipe == k
            for p in cell.points
            if p.validation_best is not None
        ]
        for k in (name, FULL)
    ]
    fewest = min(map(len, both))
    return np.array(both[0][:fewest], float), np.array(both[1][:fewest], float)


def _deviations(scores: Array) -> Array:
    """Absolute deviations from the median without the smallest one, so that they can be permuted (Hines and Hines 2000).

    For an odd number of scores the smallest deviation is 0. For an even number it equals the next one.
    """
    return np.sort(abs(scores - np.median(scores)))[1:]


def _permutation_p(both: Sequence[tuple[Array, Array]], generator: np.random.Generator) -> float:
    blocks = []
    for ours, theirs in both:
        deviations = np.concatenate([_deviations(side) for side in (ours, theirs)])
        scale = deviations.mean()
        if scale > 0:
            blocks.append((deviations / scale, len(ours) - 1))
    if not blocks:
        return 1.0

    def statistic(permuted: bool) -> Any:
        total = np.zeros(PERMUTATIONS if permuted else 1)
        for deviations, count in blocks:
            assigned = np.tile(deviations, (len(total), 1))
            assigned = generator.permuted(assigned, axis=1) if permuted else assigned
            total += assigned[:, :count].mean(1) - assigned[:, count:].mean(1)
        return total

    observed = abs(float(statistic(False)[0]))
    return float((1 + (abs(statistic(True)) >= observed - 1e-12).sum()) / (1 + PERMUTATIONS))


Row = TypeVar("Row", Slope, Spread)


def _adjusted(rows: list[Row]) -> list[Row]:
    """The rows with Holm's adjustment of their p-values over all of them."""
    return [replace(row, p_holm=p) for row, p in zip(rows, holm([row.p for row in rows]), strict=True)]


def _names(curves: Sequence[SizeAnswer]) -> list[Recipe]:
    """Every k of any size, except the reference."""
    names = [cell.recipe for curve in curves for cell in curve.cells if cell.recipe != curve.reference]
    return list(dict.fromkeys(names))


def _differences(curves: Sequence[SizeAnswer], name: str) -> list[tuple[SizeAnswer, Difference]]:
    """``k - full`` at each size that has both k and full fine-tuning."""
    found = []
    for curve in curves:
        cell = next((cell for cell in curve.cells if cell.recipe == name), None)
        if cell and cell.difference and curve.reference_is_full:
            found.append((curve, cell.difference))
    return found
