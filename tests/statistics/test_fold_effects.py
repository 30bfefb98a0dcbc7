"""Effects of folds: estimated from choices that share folds, and linear in the scores."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from frostline.statistics.predictions import RATIO, fold_effects


def test_the_effect_of_one_shared_choice_is_shrunk() -> None:
    """One choice scores .8 and .9 on two folds: half of the deviations is its own with a ratio of 1."""
    scores = np.array([[0.8], [0.9], [0.82]])
    found, parameters = fold_effects(scores, ["last 2", "last 2", "full"], ["one", "two", "one"])
    expected = 0.05 / (1 + RATIO)
    np.testing.assert_allclose(found[:, 0], [-expected, expected, -expected], atol=1e-12)
    assert 0 < parameters < 1


def test_many_choices_that_agree_leave_little_doubt() -> None:
    names = [f"last {k}" for k in range(9)]
    choices, folds = [*names, *names, "full"], ["one"] * 9 + ["two"] * 9 + ["two"]
    scores = np.array([[0.7 + 0.01 * k] for k in range(9)] + [[0.8 + 0.01 * k] for k in range(9)] + [[0.85]])
    found, _ = fold_effects(scores, choices, folds)
    np.testing.assert_allclose(found[-1], 0.05, rtol=0.12)
    assert 0.85 - found[-1, 0] < 0.81


def test_without_a_shared_choice_nothing_is_known() -> None:
    found, parameters = fold_effects(np.array([[0.7], [0.9]]), ["last 2", "full"], ["one", "two"])
    np.testing.assert_allclose(found, 0.0, atol=1e-12)
    assert abs(parameters) < 1e-12


@given(st.integers(0, 2**32 - 1))
def test_effects_sum_to_zero_and_ignore_the_level_of_choices(seed: int) -> None:
    random = np.random.default_rng(seed)
    choices, folds = random.integers(0, 4, 12).tolist(), random.integers(0, 5, 12).tolist()
    scores = random.normal(size=(12, 3))
    found, _ = fold_effects(scores, choices, folds)
    levels = random.normal(size=4)[choices][:, None]
    np.testing.assert_allclose(fold_effects(scores + levels, choices, folds)[0], found, atol=1e-9)
    first = [folds.index(fold) for fold in set(folds)]
    np.testing.assert_allclose(found[first].sum(0), 0, atol=1e-9)
    np.testing.assert_allclose(fold_effects(2 * scores, choices, folds)[0], 2 * found, atol=1e-9)
