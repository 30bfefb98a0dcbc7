"""Formulas on arrays of scores: confidence intervals, p-values and sample sizes. Only numpy and scipy.

Two sources make a measured score uncertain. Intervals include both:

- Seeds (initial head, order of examples, dropout, subset). Their contribution is the covariance of the scores over seeds,
  divided by the number of seeds.
- The sample of validation examples. Its contribution is a jackknife over groups of rows.

Compared runs have the same seeds and rows, so differences are paired. The variances add. Student's t with Satterthwaite's
degrees of freedom gives the interval. Every interval is two-sided with 95 % confidence, and every verdict on a target is based
on its ends. With interim analyses, each one gets an equal part of the 5 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

QUANTILE = 0.975  # of a two-sided interval with 95 % confidence


def corrected_quantile(analyses: float) -> float:
    """The quantile with Bonferroni's correction: each of ``analyses`` analyses gets an equal part of the 5 %.

    Results may be analysed several times to decide whether more runs are needed. With the correction, the interval after
    stopping still has 95 % confidence. The same holds for the best of several intervals.
    """
    return 1 - (1 - QUANTILE) / analyses


def number_of_analyses(quantile: float) -> float:
    """The number of analyses of a corrected quantile: the inverse of :func:`corrected_quantile`."""
    return (1 - QUANTILE) / (1 - quantile)


Array = NDArray[np.float64]


@dataclass(frozen=True)
class Summary:
    """Descriptive statistics, and the interval of the mean, if it was asked for; None for what too few runs leave undefined."""

    n: int
    mean: float | None
    median: float | None
    std: float | None  # of a sample: divided by n - 1
    min: float | None
    lower_quartile: float | None
    upper_quartile: float | None
    max: float | None
    low: float | None = None
    high: float | None = None


def summarize(scores: Array) -> Summary:
    """Describe the scores ``[n]`` of the runs of one cell."""
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


GROUPS = 50


def row_groups(together: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """For each group, the rows that remain without it. Texts are assigned to groups at random, with a fixed seed.

    Rows that belong together are in the same group: a model is mostly right on all texts that read alike, or on none (a jackknife
    over clusters; Cameron and Miller 2015, Journal of Human Resources 50, section II).

    Args:
        together: A number for each row, ``[rows]``; rows that belong together have the same one.
    """
    _, text = np.unique(together, return_inverse=True)
    texts = int(text.max(initial=-1)) + 1
    group = (np.random.default_rng(0).permutation(texts) % min(GROUPS, texts))[text]
    return [np.flatnonzero(group != left_out) for left_out in range(min(GROUPS, texts))]


def row_covariance(left_out: Array, max_row_effect: float) -> Array:
    """The covariance ``[J, J]`` of J mean scores that the sample of rows causes, by a jackknife (Efron and Stein 1981).

    It includes one pseudo-row for each model that only this model predicts correctly. Without them, a few rows on which
    all models agree would prove a difference of 0. Agresti and Min (2005) do the same for paired proportions.

    Args:
        left_out: Scores without one group of rows, ``[groups, seeds, J]``.
        max_row_effect: How far one row can move a score.
    """
    groups = len(left_out)
    means = left_out.mean(1)  # [groups, J]
    centred = means - means.mean(0)
    covariance: Array = (groups - 1) / groups * centred.T @ centred + max_row_effect**2 * np.eye(means.shape[1])
    return covariance


def shared_row_covariance(
    left_out: Sequence[Mapping[str, Array]], max_row_effect: float | Array, *, own_rows: bool = False
) -> Array:
    """The covariance ``[J, J]`` of J mean scores that the sample of rows causes, without what their spread over seeds contains.

    A run is right on some rows by luck. That varies its score from seed to seed, and also from row to row: the spread over seeds
    and :func:`row_covariance` both count it. This covariance leaves it out, where a choice has at least two seeds.

    Args:
        left_out: For each choice and each of its seeds, the scores without one group of rows, ``[groups]``.
        max_row_effect: How far one row can move a score: of all choices, or ``[J]``. With folds, their numbers of rows differ.
        own_rows: Whether each seed has rows of its own, as with folds. Then the spread over seeds contains all that the rows
            cause, and leaves it out itself (:func:`squares_of_rows`); this covariance has all of it.
    """
    effects = np.broadcast_to(max_row_effect, len(left_out))
    means = np.stack([np.mean(list(runs.values()), 0) for runs in left_out], -1)
    known = row_covariance(means[:, None], 0.0)
    if own_rows:
        return known + np.diag(effects**2)
    known -= _luck([_deviations(runs) for runs in left_out])
    values, vectors = np.linalg.eigh(known / np.outer(effects, effects) + np.eye(len(effects)))  # in such effects
    covariance: Array = (vectors * np.maximum(values, 1.0)) @ vectors.T * np.outer(effects, effects)
    return covariance


def squares_of_rows(left_out: Sequence[Mapping[str, Array]]) -> Array:
    """What the rows are expected to add to the sum of squared deviations over seeds of each of J choices, ``[J]``."""
    return np.array([sum(values @ values for values in _deviations(runs).values()) for runs in left_out])


def _luck(deviations: Sequence[Mapping[str, Array]]) -> Array:
    """The covariance of J means over seeds that the rows cause in each run by itself, ``[J, J]``."""
    count = len(deviations)
    luck = np.zeros((count, count))
    for n, ours in enumerate(deviations):
        for m, theirs in enumerate(deviations[: n + 1]):
            products = [ours[seed] @ theirs[seed] for seed in ours if seed in theirs]
            freedom = max(1, len(ours) - 1) * max(1, len(theirs) - 1)
            luck[n, m] = luck[m, n] = sum(products) / np.sqrt(len(ours) * len(theirs) * freedom)
    return luck


def _deviations(runs: Mapping[str, Array]) -> dict[str, Array]:
    """How far each run deviates from the mean over seeds when groups of rows are left out, scaled as the jackknife does."""
    own = {seed: scores - np.mean(list(runs.values()), 0) for seed, scores in runs.items()}
    groups = len(next(iter(own.values())))
    return {seed: np.sqrt((groups - 1) / groups) * (values - values.mean()) for seed, values in own.items()}


# Weights of the two means in a contrast.
CELL_MEAN, FULL_MEAN, DIFFERENCE = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, -1.0])


@dataclass(frozen=True)
class Error:
    """One source of uncertainty of two means.

    Attributes:
        covariance: Of the two means, ``[2, 2]``.
        degrees_of_freedom: Those of the covariance.
    """

    covariance: Array
    degrees_of_freedom: float

    def variance(self, weights: Array) -> float:
        """The variance of ``weights @ means`` that it causes."""
        return float(weights @ self.covariance @ weights)


@dataclass(frozen=True)
class Pair:
    """The mean scores of a cell and of full fine-tuning, ``[2]``, and their errors.

    Attributes:
        means: The mean of the cell and that of full fine-tuning.
        seeds: The errors that the seeds cause: one of runs that are paired, else one of each mean.
        rows: The error that the sample of rows causes; None if predictions are unknown.
        runs: The smaller of both numbers of runs.
        quantile: The quantile of Student's t at the ends of an interval.
        covered: The share of the validation rows on which these runs are scored.
    """

    means: Array
    seeds: tuple[Error, ...]
    rows: Error | None
    runs: int
    quantile: float = QUANTILE
    covered: float = 1.0

    def variance_of_one_seed(self, weights: Array) -> float:
        """The variance of ``weights @ means`` that the seeds would cause if each mean were of one seed."""
        return sum((error.variance(weights) * (error.degrees_of_freedom + 1) for error in self.seeds), 0.0)

    def contrast(self, weights: Array) -> tuple[float, float, float]:
        """``weights @ means``: its value, standard error and degrees of freedom (Satterthwaite 1946)."""
        value = float(weights @ self.means)
        errors = self.seeds if self.rows is None else (*self.seeds, self.rows)
        parts = [(max(error.variance(weights), 0.0), error.degrees_of_freedom) for error in errors]
        total = sum(part for part, _ in parts)
        if total == 0:
            return value, 0.0, float(self.runs - 1)
        return value, total**0.5, total**2 / sum(part**2 / own for part, own in parts if part)

    def interval(self, weights: Array) -> tuple[float, float]:
        """The interval of ``weights @ means``. It needs at least two runs."""
        value, error, degrees_of_freedom = self.contrast(weights)
        half = float(scipy.stats.t.ppf(self.quantile, degrees_of_freedom)) * error
        return value - half, value + half

    def p_value(self, weights: Array) -> float:
        """The two-sided p-value of the hypothesis ``weights @ means == 0``, adjusted for interim analyses."""
        value, error, degrees_of_freedom = self.contrast(weights)
        if error == 0:
            return float(value == 0)
        analyses = number_of_analyses(self.quantile)
        return float(min(1.0, analyses * 2 * scipy.stats.t.sf(abs(value) / error, degrees_of_freedom)))


def pair(scores: Array, left_out: Array | None = None, max_row_effect: float = 0.0, quantile: float = QUANTILE) -> Pair:
    """The comparison of runs that are paired by seed.

    Args:
        scores: ``[seeds, 2]``, of the cell and of full fine-tuning.
        left_out: The same without one group of rows, ``[groups, seeds, 2]``; None if predictions are unknown.
        max_row_effect: How far one row can move a score.
        quantile: See :class:`Pair`.
    """
    runs = len(scores)
    seeds = Error(np.cov(scores.T, ddof=1) / runs if runs > 1 else np.full((2, 2), np.nan), runs - 1)
    return Pair(scores.mean(0), (seeds,), row_error(left_out, max_row_effect), runs, quantile)


def unpaired(
    cell: Array, full: Array, left_out: Array | None = None, max_row_effect: float = 0.0, quantile: float = QUANTILE
) -> Pair:
    """The comparison of runs that are not paired by seed, as in Welch's test.

    Args:
        cell: Scores ``[n]``.
        full: Scores ``[m]`` of full fine-tuning.
        left_out: Both means without one group of rows, ``[groups, 2]``; None if predictions are unknown.
        max_row_effect: How far one row can move a score.
        quantile: See :class:`Pair`.
    """
    seeds = [
        Error(
            np.outer(side, side) * (scores.var(ddof=1) / len(scores) if len(scores) > 1 else np.nan),
            len(scores) - 1,
        )
        for scores, side in ((cell, CELL_MEAN), (full, FULL_MEAN))
    ]
    rows = row_error(None if left_out is None else left_out[:, None], max_row_effect)
    return Pair(np.array([cell.mean(), full.mean()]), tuple(seeds), rows, min(len(cell), len(full)), quantile)


def row_error(left_out: Array | None, max_row_effect: float) -> Error | None:
    """The error that the sample of rows causes; None if predictions are unknown."""
    if left_out is None:
        return None
    return Error(row_covariance(left_out, max_row_effect), max(1, len(left_out) - 1))


def mean_interval(
    scores: Array, left_out: Array | None = None, max_row_effect: float = 0.0, quantile: float = QUANTILE
) -> tuple[float, float]:
    """The interval of the mean over seeds.

    Args:
        scores: ``[seeds]``, at least two.
        left_out: Scores without one group of rows, ``[groups, seeds]``; None if predictions are unknown.
        max_row_effect: How far one row can move a score.
        quantile: The quantile of Student's t at its ends.
    """
    twice = None if left_out is None else np.stack([left_out] * 2, -1)
    return pair(np.stack([scores] * 2, -1), twice, max_row_effect, quantile).interval(CELL_MEAN)


def score_interval(
    score: float, left_out: Array, max_row_effect: float, quantile: float = QUANTILE
) -> tuple[float, float]:
    """The interval of one model's score for the sample of rows; ``left_out``: scores without one group of rows, ``[groups]``."""
    if len(left_out) < 2 or not np.isfinite(left_out).all():  # a single row, or undefined without some rows
        return -np.inf, np.inf
    twice = np.stack([left_out] * 2, -1)[:, None]
    return Pair(np.full(2, score), (), row_error(twice, max_row_effect), 1, quantile).interval(CELL_MEAN)


def failure_interval(failed: int, runs: int) -> tuple[float, float]:
    """The 95 % interval of a failure rate (Clopper and Pearson 1934)."""
    interval = scipy.stats.binomtest(failed, runs).proportion_ci(0.95, "exact")
    return float(interval.low), float(interval.high)


LARGEST = 10  # a bound that is farther than this from the estimate counts as no bound


@dataclass(frozen=True)
class Ratio:
    """A share or a score with its interval, or its range over runs. None: undefined, or unbounded on that side."""

    estimate: float | None
    low: float | None
    high: float | None


def ratio(pair: Pair, base: float = 0.0, above: bool | None = None) -> Ratio:
    """``(cell - base) / (full - base)`` with the interval of Fieller (1954).

    The interval contains the shares ``p`` for which ``cell - base - p (full - base)`` does not differ significantly from 0. It
    is undefined unless full fine-tuning is significantly above the base.

    Args:
        pair: The means and their errors.
        base: The score of the constant baseline; 0 for a share of the score.
        above: The result of another test of whether full fine-tuning is above the base; None: no such test. Single runs may
            show it although the mean over seeds does not. The share then has an estimate without bounds.
    """
    cell, full = pair.means - base
    if not full > 0 or above is False:
        return Ratio(None, None, None)
    estimate = float(cell / full)
    if pair.runs < 2:
        return Ratio(estimate, None, None)
    if not is_above(pair, base):
        return Ratio(estimate if above else None, None, None)
    return Ratio(estimate, _bound(pair, base, estimate, -1), _bound(pair, base, estimate, +1))


def is_above(pair: Pair, base: float) -> bool:
    """Whether the whole interval of full fine-tuning's mean lies above ``base``."""
    return pair.runs > 1 and bool(pair.interval(FULL_MEAN)[0] > base)


def _bound(pair: Pair, base: float, estimate: float, side: int) -> float | None:
    """One end of Fieller's interval, on this side of the estimate; None if it is too far away.

    There the absolute value of ``cell - base - p (full - base)`` equals t times its standard error.
    """

    def excess(p: float) -> float:
        value, error, degrees_of_freedom = pair.contrast(np.array([1.0, -p]))
        value -= base * (1 - p)
        return abs(value) - float(scipy.stats.t.ppf(pair.quantile, degrees_of_freedom)) * error

    step = 1e-3
    while step < LARGEST:
        if excess(estimate + side * step) > 0:
            if excess(estimate) >= 0:  # no error at all: the estimate is exact
                return estimate
            return float(scipy.optimize.brentq(excess, estimate, estimate + side * step, xtol=1e-9))
        step *= 1.5
    return None


MOST, POWER = 1000, 0.8  # seeds; the probability of a significant result


def seeds_needed(
    distance: float,
    by_seed: float,
    by_row: float,
    row_degrees_of_freedom: float,
    *,
    quantile: float = QUANTILE,
) -> int | None:
    """The number of seeds that detects a difference of ``distance`` with probability ``POWER``; None: more than ``MOST``.

    Args:
        distance: The difference.
        by_seed: The variance of the difference over seeds, for one seed.
        by_row: The variance that the sample of rows causes. More seeds do not reduce it.
        row_degrees_of_freedom: The degrees of freedom of ``by_row``.
        quantile: The quantile of Student's t at the ends of the interval.
    """

    def suffices(seeds: int) -> bool:
        total = by_seed / seeds + by_row
        if total == 0:
            return distance != 0
        parts = (by_seed / seeds) ** 2 / (seeds - 1) + (by_row**2 / row_degrees_of_freedom)
        degrees_of_freedom = total**2 / parts
        quantiles = float(
            scipy.stats.t.ppf(quantile, degrees_of_freedom) + scipy.stats.t.ppf(POWER, degrees_of_freedom)
        )
        return bool(abs(distance) >= quantiles * total**0.5)

    if not suffices(MOST):
        return None
    low, high = 1, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979). They control the probability of any false rejection, at every level."""
    order = np.argsort(p_values, kind="stable")
    adjusted, most = [0.0] * len(order), 0.0
    for rank, n in enumerate(order.tolist()):
        most = max(most, min(1.0, (len(order) - rank) * p_values[n]))
        adjusted[n] = most
    return adjusted
