"""Confidence intervals of a mean score, of one model's score and of a failure rate."""

import numpy as np
from scipy import stats

from frostline.statistics.inference.pair import CELL_MEAN, Pair, pair, row_errors
from frostline.statistics.inference.quantile import QUANTILE
from frostline.statistics.inference.summary import Array


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
    return Pair(np.full(2, score), row_errors(twice, max_row_effect), 1, quantile).interval(CELL_MEAN)


def failure_interval(failed: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of a failure rate (Clopper and Pearson 1934)."""
    interval = stats.binomtest(failed, runs).proportion_ci(level, "exact")
    return float(interval.low), float(interval.high)
