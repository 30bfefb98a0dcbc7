"""Means, intervals and operating points, from scores by run and predictions by row. No torch here.

Two things make a measured score uncertain: the seed (head, order, dropout, subset) and the rows that happen to be
in the validation set. Both are counted. The runs that are compared share seeds and rows, so all differences are
paired. Seeds: the covariance of the scores over seeds, divided by their number. Rows: a jackknife over groups of
rows (Efron and Stein 1981) of the scores' means over seeds, as if two more rows had been seen, of which each of the two
that are compared alone gets one right: so that few rows, on which two models happen to agree, prove nothing (Agresti and
Min 2005 do so for paired proportions). The variances add; Student's t with Satterthwaite's degrees of freedom turns
them into an interval. There is one kind of interval: two-sided, 95 %, and every decision rests on its ends. Where results
were looked at several times, to see whether more runs are wanted, each look gets its part of the 5 % (Bonferroni's), so that
the interval at which somebody stops is a 95 % one still.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

Array = NDArray[np.float64]

GROUPS = 50  # of rows, in the jackknife
QUANTILE = 0.975  # of Student's t: the ends of a two-sided interval of 95 %


def quantile_of(looks: float) -> float:
    """Of Student's t, where results are looked at up to so many times, or the best of so many is."""
    return 1 - (1 - QUANTILE) / looks


@dataclass(frozen=True)
class Summary:
    """Scores of the runs of one cell."""

    n: int
    mean: float | None
    median: float | None
    std: float | None  # of a sample: n - 1
    min: float | None
    lower_quartile: float | None
    upper_quartile: float | None
    max: float | None


def summarize(scores: Array) -> Summary:
    """Describe scores; what too few runs cannot say is None."""
    n = len(scores)
    if not n:
        return Summary(0, None, None, None, None, None, None, None)
    lower, upper = np.quantile(scores, [0.25, 0.75])
    return Summary(
        n=n,
        mean=float(scores.mean()),
        median=float(np.median(scores)),
        std=float(scores.std(ddof=1)) if n > 1 else None,
        min=float(scores.min()),
        lower_quartile=float(lower),
        upper_quartile=float(upper),
        max=float(scores.max()),
    )


def failure_interval(failed: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a failure rate."""
    interval = stats.binomtest(failed, runs).proportion_ci(level, "exact")
    return float(interval.low), float(interval.high)


@dataclass(frozen=True)
class Error:
    """What makes two means uncertain: their covariance from the ``seeds`` or the ``rows``, ``[2, 2]``, and its degrees
    of freedom."""

    source: str
    covariance: Array
    freedom: float


@dataclass(frozen=True)
class Pair:
    """Mean scores of a cell and of full, ``[2]``, and what makes them uncertain; ``runs`` of the one that has fewer.
    ``quantile`` of Student's t: where intervals of it end. ``covered``: the share of all rows that these runs are scored on."""

    means: Array
    errors: tuple[Error, ...]
    runs: int
    quantile: float = QUANTILE
    covered: float = 1.0

    def contrast(self, weights: Array) -> tuple[float, float, float]:
        """``weights @ means``: its value, standard error and degrees of freedom (Satterthwaite's)."""
        value = float(weights @ self.means)
        parts = [(max(float(weights @ error.covariance @ weights), 0.0), error.freedom) for error in self.errors]
        total = sum(part for part, _ in parts)
        if total == 0:
            return value, 0.0, float(self.runs - 1)
        return value, total**0.5, total**2 / sum(part**2 / freedom for part, freedom in parts if part)

    def interval(self, weights: Array) -> tuple[float, float]:
        """The interval of ``weights @ means``; two runs at least."""
        value, error, freedom = self.contrast(weights)
        half = float(stats.t.ppf(self.quantile, freedom)) * error
        return value - half, value + half

    def p_value(self, weights: Array) -> float:
        """Of the hypothesis that ``weights @ means`` is 0, two-sided; adjusted where there are several looks."""
        value, error, freedom = self.contrast(weights)
        if error == 0:
            return float(value == 0)
        looks = (1 - QUANTILE) / (1 - self.quantile)
        return float(min(1.0, looks * 2 * stats.t.sf(abs(value) / error, freedom)))


CELL, FULL, DIFFERENCE = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, -1.0])


def pair(scores: Array, jackknife: Array | None = None, one_row: float = 0.0, quantile: float = QUANTILE) -> Pair:
    """The paired comparison of two columns: scores ``[seeds, 2]``, and where rows are known the same with a group of
    rows left out, ``[groups, seeds, 2]``; ``one_row`` is how far one row can move a score."""
    runs = len(scores)
    seeds = Error("seeds", np.cov(scores.T, ddof=1) / runs if runs > 1 else np.full((2, 2), np.nan), runs - 1)
    return Pair(scores.mean(0), (seeds, *_rows(jackknife, one_row)), runs, quantile)


def unpaired(
    cell: Array, full: Array, jackknife: Array | None = None, one_row: float = 0.0, quantile: float = QUANTILE
) -> Pair:
    """The comparison of scores ``[n]`` with scores ``[m]`` of other seeds, or of seeds that have nothing in common; where rows
    are known, the means of both with a group of rows left out, ``[groups, 2]``."""
    errors = [
        Error(
            "seeds",
            np.outer(one, one) * (scores.var(ddof=1) / len(scores) if len(scores) > 1 else np.nan),
            len(scores) - 1,
        )
        for scores, one in ((cell, CELL), (full, FULL))
    ]
    rows = _rows(None if jackknife is None else jackknife[:, None], one_row)
    return Pair(np.array([cell.mean(), full.mean()]), (*errors, *rows), min(len(cell), len(full)), quantile)


def _rows(jackknife: Array | None, one_row: float) -> tuple[Error, ...]:
    if jackknife is None:
        return ()
    groups = len(jackknife)
    means = jackknife.mean(1)  # [groups, 2]
    centred = means - means.mean(0)
    return (Error("rows", (groups - 1) / groups * centred.T @ centred + one_row**2 * np.eye(2), max(1, groups - 1)),)


def pairing_gain(scores: Array) -> float | None:
    """How many times wider the standard error of a difference is when seeds are not paired: scores ``[seeds, 2]``.

    Below 1 pairing costs more than it gives. None where it cannot be told: fewer than three seeds, or no spread.
    """
    if len(scores) < 3:
        return None
    apart, together = scores.var(0, ddof=1).sum(), (scores[:, 0] - scores[:, 1]).var(ddof=1)
    return float((apart / together) ** 0.5) if together > 0 else None


def row_groups(rows: int, groups: int = GROUPS) -> list[NDArray[np.int64]]:
    """For each group, the rows that stay when it is left out; rows are dealt at random, by a fixed seed."""
    deal = np.random.default_rng(0).permutation(rows) % min(groups, rows)
    return [np.flatnonzero(deal != group) for group in range(min(groups, rows))]


def mean_interval(
    scores: Array, jackknife: Array | None = None, one_row: float = 0.0, quantile: float = QUANTILE
) -> tuple[float, float]:
    """The interval of the mean of scores ``[seeds]``, two at least, with ``[groups, seeds]`` left-out scores."""
    twice = None if jackknife is None else np.stack([jackknife] * 2, -1)
    return pair(np.stack([scores] * 2, -1), twice, one_row, quantile).interval(CELL)


def score_interval(score: float, jackknife: Array, one_row: float, quantile: float = QUANTILE) -> tuple[float, float]:
    """The interval of one model's score, with ``[groups]`` left-out scores: it knows the rows, and no seed."""
    if len(jackknife) < 2 or not np.isfinite(jackknife).all():  # of a single row, or not defined for some of them
        return -np.inf, np.inf
    twice = np.stack([jackknife] * 2, -1)[:, None]
    return Pair(np.full(2, score), _rows(twice, one_row), 1, quantile).interval(CELL)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values (1979): the chance that any true hypothesis is among those below a level is at most it."""
    order = np.argsort(p_values, kind="stable")
    adjusted, most = [0.0] * len(order), 0.0
    for rank, n in enumerate(order.tolist()):
        most = max(most, min(1.0, (len(order) - rank) * p_values[n]))
        adjusted[n] = most
    return adjusted


def seeds_needed(
    distance: float,
    by_seed: float,
    by_row: float,
    row_freedom: float,
    *,
    power: float = 0.8,
    quantile: float = QUANTILE,
) -> int | None:
    """So many seeds would likely (with ``power``) show that a difference of ``distance`` is not 0.

    ``by_seed``: variance of the difference between two seeds; ``by_row``: variance from the rows, which no seed makes
    smaller, with its degrees of freedom. None: more than 1,000, or no number of seeds.
    """

    def shown(seeds: int) -> bool:
        total = by_seed / seeds + by_row
        if total == 0:
            return distance != 0
        freedom = total**2 / ((by_seed / seeds) ** 2 / (seeds - 1) + (by_row**2 / row_freedom))
        quantiles = float(stats.t.ppf(quantile, freedom) + stats.t.ppf(power, freedom))
        return bool(abs(distance) >= quantiles * total**0.5)

    if not shown(1000):
        return None
    low, high = 1, 1000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shown(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class Ratio:
    """A share of full: ``estimate`` and its interval. None: not defined, or no bound on that side."""

    estimate: float | None
    low: float | None
    high: float | None


def ratio(pair: Pair, base: float = 0.0, above: bool | None = None) -> Ratio:
    """``(cell - base) / (full - base)`` with Fieller's interval; ``base`` is what guessing scores.

    The shares inside the interval are those ``p`` for which ``cell - base - p (full - base)`` does not differ from 0.
    Not defined unless full is surely ``above`` the base, which single runs may show where the seeds' mean does not: then there
    are no bounds. None: nobody has said whether it is.
    """
    cell, full = pair.means - base
    if not full > 0 or above is False:
        return Ratio(None, None, None)
    estimate = float(cell / full)
    if pair.runs < 2:
        return Ratio(estimate, None, None)
    if not surely_above(pair, base):
        return Ratio(estimate if above else None, None, None)
    return Ratio(estimate, _bound(pair, base, estimate, -1), _bound(pair, base, estimate, +1))


def surely_above(pair: Pair, base: float) -> bool:
    """Whether the interval of full's mean lies above ``base``."""
    return pair.runs > 1 and bool(pair.interval(FULL)[0] > base)


def _bound(pair: Pair, base: float, estimate: float, side: int) -> float | None:
    """Where ``|cell - p full|`` reaches its error times t, going from the estimate to one side; None beyond +-10."""

    def excess(p: float) -> float:
        value, error, freedom = pair.contrast(np.array([1.0, -p]))
        value -= base * (1 - p)
        return abs(value) - float(stats.t.ppf(pair.quantile, freedom)) * error

    step = 1e-3
    while step < 10:
        if excess(estimate + side * step) > 0:
            if excess(estimate) >= 0:  # no error at all: the estimate is exact
                return estimate
            return float(optimize.brentq(excess, estimate, estimate + side * step, xtol=1e-9))
        step *= 1.5
    return None
