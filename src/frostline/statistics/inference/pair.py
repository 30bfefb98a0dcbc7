"""The mean scores of a cell and of full fine-tuning with their covariance. Every comparison is based on them."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from frostline.statistics.inference.jackknife import row_covariance
from frostline.statistics.inference.quantile import QUANTILE, number_of_analyses
from frostline.statistics.inference.summary import Array

# Weights of the two means in a contrast.
CELL_MEAN, FULL_MEAN, DIFFERENCE = np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, -1.0])


@dataclass(frozen=True)
class Error:
    """One source of uncertainty of two means.

    Attributes:
        source: ``seeds`` or ``rows``.
        covariance: Of the two means, ``[2, 2]``.
        degrees_of_freedom: Those of the covariance.
    """

    source: str
    covariance: Array
    degrees_of_freedom: float


@dataclass(frozen=True)
class Pair:
    """The mean scores of a cell and of full fine-tuning, ``[2]``, and their errors.

    Attributes:
        means: The mean of the cell and that of full fine-tuning.
        errors: The sources of their uncertainty.
        runs: The smaller of both numbers of runs.
        quantile: The quantile of Student's t at the ends of an interval.
        covered: The share of the validation rows on which these runs are scored.
    """

    means: Array
    errors: tuple[Error, ...]
    runs: int
    quantile: float = QUANTILE
    covered: float = 1.0

    def variance(self, weights: Array, source: str) -> float:
        """The variance of ``weights @ means`` that one source causes."""
        parts = (float(weights @ error.covariance @ weights) for error in self.errors if error.source == source)
        return sum(parts, 0.0)

    def variance_of_one_seed(self, weights: Array) -> float:
        """The variance of ``weights @ means`` that the seeds would cause if each mean were of one seed."""
        seeds = [error for error in self.errors if error.source == "seeds"]
        parts = (float(weights @ error.covariance @ weights) * (error.degrees_of_freedom + 1) for error in seeds)
        return sum(parts, 0.0)

    def contrast(self, weights: Array) -> tuple[float, float, float]:
        """``weights @ means``: its value, standard error and degrees of freedom (Satterthwaite 1946)."""
        value = float(weights @ self.means)
        parts = [
            (max(float(weights @ error.covariance @ weights), 0.0), error.degrees_of_freedom) for error in self.errors
        ]
        total = sum(part for part, _ in parts)
        if total == 0:
            return value, 0.0, float(self.runs - 1)
        return value, total**0.5, total**2 / sum(part**2 / own for part, own in parts if part)

    def interval(self, weights: Array) -> tuple[float, float]:
        """The interval of ``weights @ means``. It needs at least two runs."""
        value, error, degrees_of_freedom = self.contrast(weights)
        half = float(stats.t.ppf(self.quantile, degrees_of_freedom)) * error
        return value - half, value + half

    def p_value(self, weights: Array) -> float:
        """The two-sided p-value of the hypothesis ``weights @ means == 0``, adjusted for interim analyses."""
        value, error, degrees_of_freedom = self.contrast(weights)
        if error == 0:
            return float(value == 0)
        analyses = number_of_analyses(self.quantile)
        return float(min(1.0, analyses * 2 * stats.t.sf(abs(value) / error, degrees_of_freedom)))


def pair(scores: Array, left_out: Array | None = None, max_row_effect: float = 0.0, quantile: float = QUANTILE) -> Pair:
    """The comparison of runs that are paired by seed.

    Args:
        scores: ``[seeds, 2]``, of the cell and of full fine-tuning.
        left_out: The same without one group of rows, ``[groups, seeds, 2]``; None if predictions are unknown.
        max_row_effect: How far one row can move a score.
        quantile: See :class:`Pair`.
    """
    runs = len(scores)
    seeds = Error("seeds", np.cov(scores.T, ddof=1) / runs if runs > 1 else np.full((2, 2), np.nan), runs - 1)
    return Pair(scores.mean(0), (seeds, *row_errors(left_out, max_row_effect)), runs, quantile)


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
    errors = [
        Error(
            "seeds",
            np.outer(side, side) * (scores.var(ddof=1) / len(scores) if len(scores) > 1 else np.nan),
            len(scores) - 1,
        )
        for scores, side in ((cell, CELL_MEAN), (full, FULL_MEAN))
    ]
    rows = row_errors(None if left_out is None else left_out[:, None], max_row_effect)
    return Pair(np.array([cell.mean(), full.mean()]), (*errors, *rows), min(len(cell), len(full)), quantile)


def row_errors(left_out: Array | None, max_row_effect: float) -> tuple[Error, ...]:
    """The error that the sample of rows causes, as a tuple of one; empty if predictions are unknown."""
    if left_out is None:
        return ()
    return (Error("rows", row_covariance(left_out, max_row_effect), max(1, len(left_out) - 1)),)


def pairing_gain(scores: Array) -> float | None:
    """How many times larger the standard error of the difference would be without pairing, from scores ``[seeds, 2]``.

    A value below 1 means that pairing makes the interval wider. None for fewer than three seeds, or if the difference has no
    spread.
    """
    if len(scores) < 3:
        return None
    without, paired = scores.var(0, ddof=1).sum(), (scores[:, 0] - scores[:, 1]).var(ddof=1)
    return float((without / paired) ** 0.5) if paired > 0 else None
