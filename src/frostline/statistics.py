"""Means, intervals and operating points, from scores by run and predictions by row. No torch here.

Two things make a measured score uncertain: the seed (head, order, dropout, subset) and the rows that happen to be
in the validation set. Both are counted. The runs that are compared share seeds and rows, so all differences are
paired. Seeds: the covariance of the scores over seeds, divided by their number. Rows: a jackknife over groups of
rows (Efron and Stein 1981) of the scores' means over seeds, as if two more rows had been seen, of which each of the two
that are compared alone gets one right: so that few rows, on which two models happen to agree, prove nothing (Agresti and
Min 2005 do so for paired proportions). The variances add; Student's t with Satterthwaite's degrees of freedom turns
them into an interval. There is one kind of interval: two-sided, 95 %, and every decision rests on its ends.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

Array = NDArray[np.float64]

GROUPS = 50  # of rows, in the jackknife
QUANTILE = 0.975  # of Student's t: the ends of a two-sided interval of 95 %


@dataclass(frozen=True)
class Summary:
    """Scores of the runs of one cell."""

    n: int
    mean: float | None
    median: float | None
    std: float | None  # of a sample: n - 1
    min: float | None
    max: float | None


def summarize(scores: Array) -> Summary:
    """Describe scores; what too few runs cannot say is None."""
    n = len(scores)
    if not n:
        return Summary(0, None, None, None, None, None)
    return Summary(
        n=n,
        mean=float(scores.mean()),
        median=float(np.median(scores)),
        std=float(scores.std(ddof=1)) if n > 1 else None,
        min=float(scores.min()),
        max=float(scores.max()),
    )


def failure_interval(failed: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a failure rate."""
    interval = stats.binomtest(failed, runs).proportion_ci(level, "exact")
    return float(interval.low), float(interval.high)


@dataclass(frozen=True)
class Pair:
    """Mean scores of a cell and of full, ``[2]``, with what is known of their errors.

    ``seeds``: covariance of the two means from the seeds, ``[2, 2]``, on ``runs - 1`` degrees of freedom;
    ``rows``: covariance from the rows, on ``groups - 1``.
    """

    means: Array
    seeds: Array
    runs: int
    rows: Array
    groups: int

    def contrast(self, weights: Array) -> tuple[float, float, float]:
        """``weights @ means``: its value, standard error and degrees of freedom."""
        value = float(weights @ self.means)
        by_seed, by_row = float(weights @ self.seeds @ weights), float(weights @ self.rows @ weights)
        total = max(by_seed, 0.0) + max(by_row, 0.0)
        if total == 0:
            return value, 0.0, float(self.runs - 1)
        freedom = total**2 / (by_seed**2 / (self.runs - 1) + by_row**2 / (self.groups - 1))
        return value, total**0.5, freedom


def pair(scores: Array, jackknife: Array, one_row: float) -> Pair:
    """The paired comparison of two columns: scores ``[seeds, 2]``, and the same with a group of rows left out,
    ``[groups, seeds, 2]``; ``one_row`` is how far one row can move a score."""
    runs, groups = len(scores), len(jackknife)
    means = jackknife.mean(1)  # [groups, 2]
    centred = means - means.mean(0)
    return Pair(
        means=scores.mean(0),
        seeds=np.cov(scores.T, ddof=1) / runs if runs > 1 else np.full((2, 2), np.nan),
        runs=runs,
        rows=(groups - 1) / groups * centred.T @ centred + one_row**2 * np.eye(2),
        groups=groups,
    )


def row_groups(rows: int, groups: int = GROUPS) -> list[NDArray[np.int64]]:
    """For each group, the rows that stay when it is left out; rows are dealt at random, by a fixed seed."""
    deal = np.random.default_rng(0).permutation(rows) % min(groups, rows)
    return [np.flatnonzero(deal != group) for group in range(min(groups, rows))]


def mean_interval(scores: Array, jackknife: Array, one_row: float) -> tuple[float, float]:
    """The interval of the mean of scores ``[seeds]``, two at least, with ``[groups, seeds]`` left-out scores."""
    both = pair(np.stack([scores] * 2, -1), np.stack([jackknife] * 2, -1), one_row)
    value, error, freedom = both.contrast(np.array([1.0, 0.0]))
    half = float(stats.t.ppf(QUANTILE, freedom)) * error
    return value - half, value + half


@dataclass(frozen=True)
class Ratio:
    """A share of full: ``estimate`` and its interval. None: not defined, or no bound on that side."""

    estimate: float | None
    low: float | None
    high: float | None


def ratio(pair: Pair, base: float = 0.0) -> Ratio:
    """``(cell - base) / (full - base)`` with Fieller's interval; ``base`` is what guessing scores.

    The shares inside the interval are those ``p`` for which ``cell - base - p (full - base)`` does not differ from 0.
    Not defined unless full is surely above ``base``.
    """
    cell, full = pair.means - base
    if not full > 0:
        return Ratio(None, None, None)
    estimate = float(cell / full)
    if pair.runs < 2:
        return Ratio(estimate, None, None)
    if not surely_above(pair, base):
        return Ratio(None, None, None)
    return Ratio(estimate, _bound(pair, base, estimate, -1), _bound(pair, base, estimate, +1))


def surely_above(pair: Pair, base: float) -> bool:
    """Whether the interval of full's mean lies above ``base``."""
    value, error, freedom = pair.contrast(np.array([0.0, 1.0]))
    return value - base > stats.t.ppf(QUANTILE, freedom) * error


def _bound(pair: Pair, base: float, estimate: float, side: int) -> float | None:
    """Where ``|cell - p full|`` reaches its error times t, going from the estimate to one side; None beyond +-10."""

    def excess(p: float) -> float:
        value, error, freedom = pair.contrast(np.array([1.0, -p]))
        value -= base * (1 - p)
        return abs(value) - float(stats.t.ppf(QUANTILE, freedom)) * error

    step = 1e-3
    while step < 10:
        if excess(estimate + side * step) > 0:
            if excess(estimate) >= 0:  # no error at all: the estimate is exact
                return estimate
            return float(optimize.brentq(excess, estimate, estimate + side * step, xtol=1e-9))
        step *= 1.5
    return None
