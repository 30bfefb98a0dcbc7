"""Simulated scores and predictions with a known truth, and vectorised intervals of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from frostline.statistics.inference import GROUPS, QUANTILE
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult

Array = NDArray[Any]

# What scores look like, from the results per seed of Lee, Tang and Lin (2019; four models on eight GLUE tasks, 306 points
# with 5 to 20 seeds): standard deviation of .001 to .027, .01 and more on the small tasks; skewness between -.4 and .2 for
# half of the points; 1.6 % of runs below 90 % of the best of their point (CoLA's heads apart), most of them at chance;
# correlation over seeds between a k and full .05 in the mean, which is 0 within its error.
CHANCE, FULL, SPREAD = 0.5, 0.85, 0.01
ROWS = 200  # where it matters how many there are
HARD = (
    3.0  # spread of the rows' difficulty against that of one answer: two runs disagree on 8 % of rows at accuracy .85
)


@dataclass(frozen=True)
class Pairs:
    """Many :class:`frostline.statistics.inference.Pair` at once.

    Means are ``[...]``. The errors are the variance of the cell, the covariance, the variance of full and the degrees of freedom.
    """

    cell: Array
    full: Array
    errors: tuple[tuple[Array, Array, Array, Any], ...]
    twice: tuple[Array, Array, Array, float] | None = None  # of the rows' error, what the seeds' error holds too; rows

    def contrast(self, share: Any, base: float = 0.0) -> tuple[Array, Array, Array]:
        """``cell - base - share (full - base)``: value, standard error, degrees of freedom."""
        parts = [(a - 2 * share * ab + share**2 * b, freedom) for a, ab, b, freedom in self.errors]
        if self.twice is not None:
            a, ab, b, rows = self.twice
            least = (1 + share**2) / rows**2
            parts[-1] = np.maximum(parts[-1][0] - (a - 2 * share * ab + share**2 * b), least), parts[-1][1]
        total = sum(part for part, _ in parts)
        freedom = total**2 / sum(part**2 / freedom for part, freedom in parts)
        return self.cell - base - share * (self.full - base), np.sqrt(total), freedom

    def interval(self, share: Any, base: float = 0.0) -> tuple[Array, Array]:
        value, error, freedom = self.contrast(share, base)
        half = special.stdtrit(freedom, QUANTILE) * error
        return value - half, value + half

    def surely_above(self, base: float) -> Array:
        swapped = Pairs(self.full, self.cell, tuple((b, ab, a, freedom) for a, ab, b, freedom in self.errors))
        return swapped.interval(0.0, 0.0)[0] > base


def pairs(cell: Array, full: Array, rows: tuple[Array, Array, float] | None = None, paired: bool = True) -> Pairs:
    """Of scores ``[..., seeds]``; ``rows``: the same means with a group left out, ``[..., groups]``, and how many rows."""
    cell, full = np.broadcast_arrays(cell, full)
    n = cell.shape[-1]
    a, b = cell.var(-1, ddof=1) / n, full.var(-1, ddof=1) / n
    zero = np.zeros_like(a)
    errors: list[tuple[Array, Array, Array, Any]] = [(a, zero, zero, n - 1), (zero, zero, b, n - 1)]
    if paired:
        errors = [(a, _covariance(cell, full) * n / (n - 1) / n, b, n - 1)]
    if rows is not None:
        ours, theirs = np.broadcast_arrays(*rows[:2])
        groups, one = ours.shape[-1], rows[2] ** -2
        a, b, ab = (groups - 1) * ours.var(-1), (groups - 1) * theirs.var(-1), (groups - 1) * _covariance(ours, theirs)
        errors.append((a + one, ab, b + one, groups - 1))
    return Pairs(cell.mean(-1), full.mean(-1), tuple(errors))


def counted_twice(groups: Array) -> tuple[Array, Array, Array]:
    """The luck of a run with a row is in its seed's score and in its row's: its variance, from ``[tries, groups, seeds, 2]``."""
    own = groups - groups.mean(2, keepdims=True)
    ours, theirs, times = own[..., 0], own[..., 1], (groups.shape[1] - 1) / (groups.shape[2] * (groups.shape[2] - 1))
    ours, theirs = ours.swapaxes(1, 2), theirs.swapaxes(1, 2)
    a, ab, b = (times * value.sum(1) for value in (ours.var(-1), _covariance(ours, theirs), theirs.var(-1)))
    return a, ab, b


def _covariance(a: Array, b: Array) -> Array:
    centred = (a - a.mean(-1, keepdims=True)) * (b - b.mean(-1, keepdims=True))
    return np.asarray(centred.mean(-1))


def fieller(p: Pairs, base: float) -> tuple[Array, Array]:
    """As in :func:`frostline.statistics.inference.ratio`; NaN where not defined, infinite where there is no bound."""
    estimate = (p.cell - base) / (p.full - base)

    def excess(share: Array) -> Array:
        value, error, freedom = p.contrast(share, base)
        return np.abs(value) - special.stdtrit(freedom, QUANTILE) * error

    def bound(side: int) -> Array:
        far, step = np.full_like(estimate, np.inf), 1e-3
        while step < 10:
            found = np.isinf(far) & (excess(estimate + side * step) > 0)
            far[found] = step
            step *= 1.5
        low, high = np.zeros_like(far), np.where(np.isinf(far), 0.0, far)
        for _ in range(30):
            middle = (low + high) / 2
            outside = excess(estimate + side * middle) > 0
            low, high = np.where(outside, low, middle), np.where(outside, middle, high)
        return np.where(np.isinf(far), side * np.inf, estimate + side * high)

    defined = p.surely_above(base)
    return np.where(defined, bound(-1), np.nan), np.where(defined, bound(+1), np.nan)


def seed_scores(draw: np.random.Generator, tries: int, seeds: int, truth: Array, correlation: float) -> Array:
    """Scores ``[tries, seeds, k]`` around ``truth`` ``[k]``; those of one seed are correlated."""
    shared = draw.standard_normal((tries, seeds, 1)) * correlation**0.5
    own = draw.standard_normal((tries, seeds, len(truth))) * (1 - correlation) ** 0.5
    return np.asarray(truth + SPREAD * (shared + own))


def predictions(draw: np.random.Generator, scores: Array, rows: int) -> Iterator[Array]:
    """Which rows are right, ``[some tries, rows, seeds, k]``, by runs whose scores on endless rows are ``scores``."""
    cut = (special.ndtri(scores) * np.sqrt(1 + HARD**2)).astype(np.float32)[:, None]
    some = max(1, 4_000_000 // (rows * scores[0].size))
    for start in range(0, len(scores), some):
        part = cut[start : start + some]
        hard = np.float32(HARD) * draw.standard_normal((len(part), rows, 1, 1), np.float32)
        yield draw.standard_normal((len(part), rows, *scores.shape[1:]), np.float32) + hard < part


def left_out(right: Array) -> tuple[Array, Array]:
    """Scores ``[tries, seeds, k]``, and with each group of rows left out ``[tries, groups, seeds, k]``."""
    rows = right.shape[1]
    sizes = np.array([len(part) for part in np.array_split(np.arange(rows), min(GROUPS, rows))])
    sums = np.add.reduceat(right, np.cumsum(sizes) - sizes, axis=1, dtype=np.float64)
    total = sums.sum(1)
    return total / rows, (total[:, None] - sums) / (rows - sizes)[:, None, None]


def judge(low: Array, high: Array, truth: float) -> dict[str, float]:
    """Coverage and the two one-sided errors in percent, its simulation error, the median width."""
    known = ~np.isnan(low)
    low, high = low[known], high[known]
    covers = np.mean((low <= truth) & (truth <= high))
    return {
        "covers": 100 * covers,
        "+-": 100 * np.sqrt(covers * (1 - covers) / len(low)),
        "low end wrong": 100 * np.mean(low > truth),
        "high end wrong": 100 * np.mean(high < truth),
        "width": float(np.median(high - low)),
        "defined": 100 * np.mean(known),
    }


def run(k: str, seed: int, score: float) -> RunResult:
    return RunResult(
        recipe=Recipe(k),
        tuned_layers=6 if k == "all" else int(k),
        tune_embeddings=k == "all",
        seed=seed,
        learning_rate=1e-4,
        train_size=100,
        run=f"{k}-{seed}",
        validation_best=float(score),
        validation_last=float(score),
        train_last=1.0,
        outcome="ok",
        train_seconds=1.0,
        cache_seconds=0.0,
        trainable_parameters=1,
        peak_memory_bytes=1,
    )
