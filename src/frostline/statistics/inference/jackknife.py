"""The jackknife over groups of rows, which measures how much a score depends on the sample of validation rows."""

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.inference.summary import Array

GROUPS = 50


def row_groups(rows: int, groups: int = GROUPS) -> list[NDArray[np.int64]]:
    """For each group, the rows that remain without it. Rows are assigned to groups at random, with a fixed seed."""
    group = np.random.default_rng(0).permutation(rows) % min(groups, rows)
    return [np.flatnonzero(group != left_out) for left_out in range(min(groups, rows))]


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
