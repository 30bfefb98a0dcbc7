"""The jackknife over groups of rows, which measures how much a score depends on the sample of validation rows."""

from collections.abc import Mapping, Sequence

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


def shared_row_covariance(left_out: Sequence[Mapping[str, Array]], max_row_effect: float) -> Array:
    """The covariance ``[J, J]`` of J mean scores that the sample of rows causes, without what their spread over seeds contains.

    A run is right on some rows by luck. That varies its score from seed to seed, and also from row to row: the spread over seeds
    and :func:`row_covariance` both count it. This covariance leaves it out, where a choice has at least two seeds.

    Args:
        left_out: For each choice and each of its seeds, the scores without one group of rows, ``[groups]``.
        max_row_effect: How far one row can move a score.
    """
    means = np.stack([np.mean(list(runs.values()), 0) for runs in left_out], -1)
    whole = row_covariance(means[:, None], max_row_effect)
    values, vectors = np.linalg.eigh(whole - _luck([_deviations(runs) for runs in left_out]))
    covariance: Array = (vectors * np.maximum(values, max_row_effect**2)) @ vectors.T
    return covariance


def _luck(deviations: Sequence[Mapping[str, Array]]) -> Array:
    """The covariance of J means over seeds that the rows cause in each run by itself, ``[J, J]``."""
    count = len(deviations)
    luck = np.zeros((count, count))
    for n, ours in enumerate(deviations):
        for m, theirs in enumerate(deviations[: n + 1]):
            products = [ours[seed] @ theirs[seed] for seed in ours.keys() & theirs.keys()]
            freedom = max(1, len(ours) - 1) * max(1, len(theirs) - 1)
            luck[n, m] = luck[m, n] = sum(products) / np.sqrt(len(ours) * len(theirs) * freedom)
    return luck


def _deviations(runs: Mapping[str, Array]) -> dict[str, Array]:
    """How far each run deviates from the mean over seeds when groups of rows are left out, scaled as the jackknife does."""
    own = {seed: scores - np.mean(list(runs.values()), 0) for seed, scores in runs.items()}
    groups = len(next(iter(own.values())))
    return {seed: np.sqrt((groups - 1) / groups) * (values - values.mean()) for seed, values in own.items()}
