"""The expected calibration error, and temperature scaling."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.metrics import log_loss as log_loss_of_sklearn

from frostline.statistics.class_outputs import (
    MOST_BINS,
    CalibrationError,
    best_temperature,
    calibration,
    cross_fitted,
    fit_temperature,
    folds_of,
    log_loss,
    softmax,
)


def error_of_rows(logits: np.ndarray, targets: np.ndarray, seed: int = 0) -> CalibrationError:
    """The calibration error of rows that all have different texts."""
    return calibration(logits, targets, np.random.default_rng(seed), np.arange(len(logits)))


def drawn(seed: int, rows: int, classes: int = 3, sharpness: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and targets drawn with the probabilities of these logits; then the logits are multiplied by ``sharpness``."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(rows, classes))
    targets = (rng.random(rows)[:, None] > softmax(logits).cumsum(1)).sum(1).clip(max=classes - 1)
    return sharpness * logits, targets


seeds = st.integers(0, 2**32 - 1)


@given(seeds, st.integers(1, 400), st.floats(0.01, 100))
def test_the_error_is_between_0_and_1_and_the_order_of_rows_has_no_meaning(seed: int, rows: int, sharp: float) -> None:
    logits, targets = drawn(seed, rows, sharpness=sharp)
    found = error_of_rows(logits, targets)
    assert all(0 <= getattr(found, name) <= 1 for name in ("error", "by_chance", "by_chance_high"))
    assert sum(found.examples) == rows and len(found.examples) <= MOST_BINS
    gaps = np.abs(np.subtract(found.confidence, found.accuracy))
    assert found.error == pytest.approx(float(np.average(gaps, weights=found.examples)))
    order = np.random.default_rng(seed).permutation(rows)
    again = error_of_rows(logits[order], targets[order])
    assert again.error == pytest.approx(found.error) and again.log_loss == pytest.approx(found.log_loss)


@pytest.mark.parametrize(("rows", "bins"), [(19, 1), (40, 2), (299, 14), (1000, 15)])
def test_bins_have_equally_many_examples_and_at_least_20(rows: int, bins: int) -> None:
    found = error_of_rows(*drawn(0, rows)).examples
    assert found == [len(part) for part in np.array_split(np.arange(rows), bins)]


def error_of(confidence: np.ndarray, right: np.ndarray) -> float:
    """The calibration error of two classes, where the first one is predicted with this confidence, above one half."""
    logits = np.stack([np.log(confidence / (1 - confidence)), np.zeros(len(confidence))], 1)
    return error_of_rows(logits, np.where(right, 0, 1)).error


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=20))
def test_the_error_is_0_if_confidence_is_the_accuracy_in_every_group(groups: list[tuple[int, int]]) -> None:
    """Rows with the same confidence are in the same bin, so a bin has only whole groups."""
    right = [[True] * (hits + misses) + [False] * misses for hits, misses in groups]
    confidence = np.concatenate([np.full(len(one), np.mean(one).round(6)) for one in right])
    assert error_of(confidence, np.concatenate(right)) == pytest.approx(0, abs=1e-5)
    assert error_of(np.full(30, 0.9), np.arange(30) < 15) == pytest.approx(0.4)


def test_the_simulated_error_is_that_of_outcomes_drawn_from_the_probabilities() -> None:
    errors = []
    for seed in range(200):
        logits, targets = drawn(seed, 300)
        found = error_of_rows(logits, targets, seed)
        errors.append((found.error, found.by_chance, found.error > found.by_chance_high))
    error, by_chance, above = np.mean(errors, 0)
    assert by_chance == pytest.approx(error, rel=0.05) and 0.02 <= above <= 0.09


@given(seeds, st.integers(2, 200), st.floats(0.7, 10))
def test_the_log_loss_is_that_of_scikit_learn(seed: int, rows: int, temperature: float) -> None:
    """Scikit-learn limits the loss of an example to 36, frostline to 50: no example of these costs that much."""
    logits, targets = drawn(seed, rows)
    expected = log_loss_of_sklearn(targets, softmax(logits / temperature), labels=range(3))
    assert log_loss(logits, targets, temperature) == pytest.approx(expected, rel=1e-6)
    assert log_loss(np.array([[0.0, -np.inf]]), np.array([1])) == 50  # an impossible class


@given(seeds, st.integers(5, 200), st.floats(0.2, 5))
def test_the_fitted_temperature_is_never_worse_on_its_rows(seed: int, rows: int, sharp: float) -> None:
    logits, targets = drawn(seed, rows, sharpness=sharp)
    fitted = fit_temperature(logits, targets)
    loss = log_loss(logits, targets, fitted)
    assert loss <= log_loss(logits, targets)
    assume((logits.argmax(1) != targets).any())
    for other in np.exp(np.linspace(-4, 4, 17)):
        assert loss <= log_loss(logits, targets, float(other)) + 1e-6


@given(seeds, st.floats(0.25, 4), st.floats(-5, 5))
def test_the_temperature_scales_with_the_logits_and_ignores_constants(seed: int, sharp: float, constant: float) -> None:
    logits, targets = drawn(seed, 300)
    shift = constant * np.random.default_rng(seed).normal(size=(300, 1))
    scaled = fit_temperature(sharp * logits + shift, targets)
    assert scaled == pytest.approx(sharp * fit_temperature(logits, targets), rel=1e-3)


def test_without_a_misclassified_row_the_temperature_is_1() -> None:
    logits = np.eye(3)
    assert fit_temperature(logits, np.arange(3)) == 1.0 and best_temperature(logits, np.arange(3)) < 0.2
    assert fit_temperature(np.zeros((0, 3)), np.zeros(0, np.int64)) == 1.0


@given(seeds, st.integers(1, 60))
def test_every_row_is_held_out_once_with_all_that_read_alike(seed: int, rows: int) -> None:
    alike = np.random.default_rng(seed).integers(rows, size=rows)
    folds = folds_of(alike, np.random.default_rng(seed))
    assert sorted(row for _, fold in folds for row in fold) == list(range(rows))
    for rest, fold in folds:
        assert sorted([*rest, *fold]) == list(range(rows)) and not set(alike[rest]) & set(alike[fold])
    first, second = (folds_of(np.arange(50), np.random.default_rng(draw))[0][1].tolist() for draw in (seed, seed + 1))
    assert first != second


def test_no_row_is_scaled_by_a_temperature_that_it_was_fitted_on() -> None:
    logits, targets = drawn(1, 100, sharpness=3)
    folds = folds_of(np.arange(100), np.random.default_rng(0))
    before = cross_fitted(logits, targets, folds)
    row = 17
    changed = targets.copy()
    changed[row] = (changed[row] + 1) % 3
    after = cross_fitted(logits, changed, folds)
    assert (before[row] == after[row]).all() and (before != after).any()
    assert np.allclose(np.ptp(log_softmax(before, 1) - before, axis=1), 0)
    ratio = logits[:, 0] / before[:, 0]
    assert len(np.unique(ratio.round(9))) == 5


@given(seeds, st.integers(2, 60), st.floats(0.2, 5))
def test_label_sets_are_examples_with_two_classes(seed: int, rows: int, sharp: float) -> None:
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(rows, 3))
    targets = rng.random((rows, 3)) < 1 / (1 + np.exp(-logits))
    logits *= sharp
    as_pairs = np.stack([np.zeros(3 * rows), logits.ravel()], 1), targets.ravel().astype(int)
    by_hand = -np.where(targets, -np.logaddexp(0, -logits), -np.logaddexp(0, logits)).mean()
    assert log_loss(logits, targets) == pytest.approx(log_loss(*as_pairs)) == pytest.approx(by_hand)
    assert fit_temperature(logits, targets) == fit_temperature(*as_pairs)
    found = error_of_rows(logits, targets)
    assert found == error_of_rows(*as_pairs)
    assert sum(found.examples) == 3 * rows


def test_words_are_examples_and_those_that_were_cut_off_are_not() -> None:
    logits, targets = drawn(0, 60)
    sentences, tags = logits.reshape(12, 5, 3).copy(), targets.reshape(12, 5).copy()
    sentences[3, 2:], tags[5, 4:] = np.nan, -100
    kept = np.ones(60, bool)
    kept[[17, 18, 19, 29]] = False
    assert log_loss(sentences, tags) == log_loss(logits[kept], targets[kept])
    assert fit_temperature(sentences, tags) == fit_temperature(logits[kept], targets[kept])
