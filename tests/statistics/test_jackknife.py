"""The jackknife over groups of rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.statistics.inference import row_covariance, row_groups, shared_row_covariance

ROWS, SEEDS, CHOICES = 400, 6, 3


def left_out(right: np.ndarray) -> list[dict[str, np.ndarray]]:
    """Scores by seed without each group, for each choice; ``right`` is ``[rows, seeds, J]``."""
    scores = np.stack([right[rest].mean(0) for rest in row_groups(len(right))])
    return [{str(seed): scores[:, seed, n] for seed in range(scores.shape[1])} for n in range(scores.shape[2])]


def both(right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row covariance of the means, and what of it the seeds share."""
    runs = left_out(right)
    means = np.stack([np.mean(list(one.values()), 0) for one in runs], -1)
    return row_covariance(means[:, None], 1 / len(right)), shared_row_covariance(runs, 1 / len(right))


@given(st.integers(0, 10**6))
def test_equal_runs_share_everything(seed: int) -> None:
    right = np.random.default_rng(seed).random((ROWS, 1, CHOICES)) < 0.8
    whole, shared = both(np.repeat(right, SEEDS, 1))
    assert shared == pytest.approx(whole, abs=1e-9)


@given(st.integers(0, 10**6))
def test_one_seed_says_nothing_about_luck(seed: int) -> None:
    whole, shared = both(np.random.default_rng(seed).random((ROWS, 1, CHOICES)) < 0.8)
    assert shared == pytest.approx(whole, abs=1e-9)


@given(st.integers(0, 10**6), st.floats(0, 1))
def test_it_is_a_covariance_with_at_least_the_effect_of_one_row(seed: int, luck: float) -> None:
    random = np.random.default_rng(seed)
    hard = (1 - luck) * random.random((ROWS, 1, 1)) + luck * random.random((ROWS, SEEDS, CHOICES))
    shared = both(hard < 0.6)[1]
    assert shared == pytest.approx(shared.T) and np.linalg.eigvalsh(shared).min() > 0.99 / ROWS**2


def test_luck_is_counted_once() -> None:
    """The variance of a mean is that over seeds and that of the shared rows. Independent runs share no row's difficulty."""
    random, errors = np.random.default_rng(0), []
    for shared_hardness in (0.0, 1.0):
        means, estimates, twice = [], [], []
        for _ in range(300):
            hard = shared_hardness * random.standard_normal((ROWS, 1, 1)) + random.standard_normal((ROWS, SEEDS, 1))
            right = hard < 0.8
            whole, shared = both(right)
            spread = right.mean(0)[:, 0].var(ddof=1) / SEEDS
            means.append(right.mean())
            estimates.append(spread + shared[0, 0])
            twice.append(spread + whole[0, 0])
        errors.append((np.mean(estimates) / np.var(means, ddof=1), np.mean(twice) / np.var(means, ddof=1)))
    (alone, alone_twice), (shared, shared_twice) = errors
    assert 0.75 < alone < 1.4 and shared == pytest.approx(1, abs=0.25)  # an estimate below zero is raised to zero
    assert alone_twice > 1.6 and shared_twice > shared
