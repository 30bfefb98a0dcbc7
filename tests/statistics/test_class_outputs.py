"""What is said of the outputs of classes: precision, recall and F1 of each, calibration and temperature, and thresholds."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.metrics import balanced_accuracy_score, f1_score, precision_score, recall_score
from sklearn.metrics import log_loss as log_loss_of_sklearn

from frostline.data.kinds import CLASSIFICATION
from frostline.statistics.answer import ClassScores
from frostline.statistics.class_outputs import (
    MOST_BINS,
    SCORES,
    CalibrationError,
    best_temperature,
    calibration,
    choose_threshold,
    choose_thresholds,
    cross_fitted,
    fit_temperature,
    folds_of,
    log_loss,
    not_chosen,
    scores_of,
    softmax,
)
from frostline.statistics.class_outputs import scores_by_class as scores_by_class_of
from frostline.statistics.inference import Ratio
from frostline.statistics.metrics import METRICS, f1_macro_of_sets, f1_micro, metrics_for
from frostline.statistics.predictions import Labelled
from frostline.statistics.threshold_rule import BEST, MAXIMIZED, ThresholdRule, check_threshold

LABELS = ("a", "b", "c")


def scores_by_class(targets: np.ndarray, logits: list[np.ndarray], labels: tuple[str, ...]) -> list[ClassScores]:
    return scores_by_class_of(Labelled(targets, CLASSIFICATION, labels, "accuracy"), logits)


def logits_of(predictions: list[int], classes: int = 3) -> np.ndarray:
    return np.eye(classes)[predictions].astype(np.float32)


def test_the_estimate_is_that_of_all_runs_together_and_the_range_that_of_single_runs() -> None:
    targets = np.array([0, 0, 1, 1, 2, 2])
    runs = [[0, 0, 1, 1, 2, 2], [0, 1, 1, 1, 2, 0]]
    first, second, third = scores_by_class(targets, [logits_of(run) for run in runs], LABELS)
    both, predicted = np.tile(targets, 2), np.concatenate(runs)
    for n, one in enumerate((first, second, third)):
        assert one.label == LABELS[n] and one.examples == 2
        for name, score in zip(SCORES, (precision_score, recall_score, f1_score), strict=True):
            assert getattr(one, name).estimate == pytest.approx(score(both, predicted, labels=[n], average="macro"))
            assert getattr(one, name).high == 1.0
    assert first.recall.low == 0.5 and second.precision.low == pytest.approx(2 / 3)


def test_a_class_that_is_never_predicted_has_no_precision() -> None:
    seen, missed, absent = scores_by_class(np.array([0, 0, 1]), [logits_of([0, 0, 0])] * 2, LABELS)
    nothing = Ratio(None, None, None)
    assert seen.recall.estimate == 1.0
    assert missed.precision == nothing and missed.recall.estimate == missed.f1.estimate == 0.0
    assert absent.examples == 0 and all(getattr(absent, name) == nothing for name in SCORES)


def test_with_folds_every_row_counts_once() -> None:
    targets = np.array([0, 1, 0, 1])
    halves = [logits_of(run, 2) for run in ([0, 1, 0, 0], [1, 1, 0, 1])]
    halves[0][2:] = np.nan
    halves[1][:2] = np.nan
    first, second = scores_by_class(targets, halves, LABELS[:2])
    assert first.examples == second.examples == 2
    assert all(getattr(one, name).estimate == 1.0 for one in (first, second) for name in SCORES)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40), st.integers(1, 3))
def test_runs_with_the_same_predictions_have_no_range(rows: list[tuple[int, int]], runs: int) -> None:
    targets, predictions = (np.array(part) for part in zip(*rows, strict=True))
    for one in scores_by_class(targets, [logits_of(predictions.tolist())] * runs, LABELS):
        for name in SCORES:
            assert getattr(one, name).low == getattr(one, name).high == pytest.approx(getattr(one, name).estimate)


# --- Calibration ---


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


# --- Thresholds ---

rows = st.lists(st.tuples(st.integers(1, 99), st.booleans()), min_size=1, max_size=40)


def of(pairs: list[tuple[int, bool]]) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and whether a row is positive."""
    percent, positive = zip(*pairs, strict=True)
    return np.array(percent) / 100, np.array(positive)


@given(rows)
def test_scores_are_those_of_the_metrics(pairs: list[tuple[int, bool]]) -> None:
    probability, positive = of(pairs)
    predicted = probability >= 0.5
    found = scores_of(predicted, positive)
    for metric in metrics_for(CLASSIFICATION, 2):
        if len({*predicted, *positive}) < 2:
            continue  # scikit-learn leaves out a class that does not occur
        assert found[metric.name] == pytest.approx(
            METRICS[metric.name].score(positive.astype(int), predicted.astype(int))
        )
    if len(set(positive)) == 2:
        assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(positive, predicted))
    assert (found["precision"] is None) == (not predicted.any()) and (found["recall"] is None) == (not positive.any())


@given(rows, st.sampled_from(MAXIMIZED))
def test_no_threshold_is_better(pairs: list[tuple[int, bool]], metric: str) -> None:
    probability, positive = of(pairs)
    assume(positive.any())
    chosen = choose_threshold(probability, positive, ThresholdRule(metric))
    assert 0 < chosen < 1
    best = scores_of(probability >= chosen, positive)[metric]
    for other in np.linspace(0.005, 0.995, 199):
        assert scores_of(probability >= other, positive)[metric] <= best + 1e-9


@example([(20, True), (80, True)], 50)
@given(rows, st.integers(1, 99))
def test_the_highest_threshold_with_enough_recall(pairs: list[tuple[int, bool]], percent: int) -> None:
    probability, positive = of(pairs)
    least = percent / 100
    chosen = choose_threshold(probability, positive, ThresholdRule("recall", least))
    if positive.any():
        assert scores_of(probability >= chosen, positive)["recall"] >= least
        for higher in np.unique(probability[probability >= chosen])[:1] + 0.005:  # without the next probability
            assert scores_of(probability >= higher, positive)["recall"] < least


def test_ties_go_to_the_threshold_nearest_to_one_half() -> None:
    probability, positive = np.array([0.1, 0.2, 0.3, 0.9]), np.array([False, True, True, True])
    assert choose_threshold(probability, positive, ThresholdRule("accuracy")) == pytest.approx(0.15)
    mixed = np.array([False, True, False, True])  # 0.15 and 0.5 are equally good
    assert choose_threshold(probability, mixed, ThresholdRule("accuracy")) == 0.5
    separated = np.array([False, False, False, True])
    assert choose_threshold(probability, separated, ThresholdRule("accuracy")) == 0.5
    assert choose_threshold(probability, separated, ThresholdRule("recall", 0.9)) == pytest.approx(0.6)


def test_saturated_probabilities_have_a_threshold() -> None:
    probability, positive = np.array([0.0, 1.0, 1.0]), np.array([True, True, False])
    for rule in (ThresholdRule("f1"), ThresholdRule("recall", 0.99)):
        assert 0 < choose_threshold(probability, positive, rule) < 1


def test_rules() -> None:
    assert choose_threshold(np.array([0.9]), np.array([True]), ThresholdRule.read(0.3, "accuracy")) == 0.3
    assert ThresholdRule.read("best", "f1_macro") == ThresholdRule("f1_macro")
    assert ThresholdRule.read("recall=0.9", "accuracy") == ThresholdRule("recall", 0.9)
    assert ThresholdRule.read("f1", "accuracy") == ThresholdRule("f1")


@pytest.mark.parametrize(
    ("given", "checked"),
    [
        ("0.3", 0.3), (0.3, 0.3), ("best", BEST), ("balanced-accuracy", "balanced_accuracy"),
        ("recall = .9", "recall=0.9"), ("1e-3", 0.001),
    ],
)  # fmt: skip
def test_settings(given: object, checked: object) -> None:
    assert check_threshold(given) == checked and check_threshold(check_threshold(given)) == checked


@pytest.mark.parametrize(
    "value", ["0", "1", 1.5, "nan", "recall", "recall=", "recall=1", "recall=x", "precision=0.9", "auc", ""]
)
def test_other_settings_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="give a number between 0 and 1, "):
        check_threshold(value)


def test_every_metric_of_two_classes_can_be_maximized() -> None:
    scores = scores_of(np.array([True]), np.array([True]))
    assert {metric.name for metric in metrics_for(CLASSIFICATION, 2)} <= set(MAXIMIZED) <= scores.keys()


@given(st.lists(st.tuples(*[st.tuples(st.integers(1, 99), st.booleans())] * 3), min_size=1, max_size=20))
def test_thresholds_of_labels_maximize_micro_and_macro_f1(cells: list[tuple[tuple[int, bool], ...]]) -> None:
    probability, targets = np.array(cells)[..., 0] / 100, np.array(cells)[..., 1].astype(bool)
    micro, macro = (choose_thresholds(probability, targets, ThresholdRule(name)) for name in ("f1_micro", "f1_macro"))
    assert len(set(micro)) == 1
    grid = np.linspace(0.005, 0.995, 100)
    assert all(f1_micro(targets, probability >= x) <= f1_micro(targets, probability >= micro) + 1e-9 for x in grid)
    for label in range(3):
        others = np.tile(macro, (100, 1))
        others[:, label] = grid
        best = f1_macro_of_sets(targets, probability >= macro)
        assert all(f1_macro_of_sets(targets, probability >= other) <= best + 1e-9 for other in others)


def test_a_number_and_a_recall_hold_for_every_label() -> None:
    probability, targets = np.array([[0.2, 0.9], [0.6, 0.3]]), np.array([[True, True], [True, False]])
    assert choose_thresholds(probability, targets, ThresholdRule(number=0.3)).tolist() == [0.3, 0.3]
    found = choose_thresholds(probability, targets, ThresholdRule("recall", 0.9))
    assert found[0] <= 0.2 < 0.3 < found[1] <= 0.9


def test_classes_and_labels_without_examples_keep_one_half() -> None:
    for rule in (*map(ThresholdRule, MAXIMIZED), ThresholdRule("recall", 0.9)):
        for high in (0.2, 0.9):
            assert choose_threshold(np.array([0.1, high]), np.zeros(2, bool), rule) == 0.5, (rule, high)
    probability, targets = np.array([[0.2, 0.3], [0.1, 0.4]]), np.array([[True, False], [False, False]])
    for rule in (ThresholdRule("recall", 0.9), ThresholdRule("f1_macro")):
        found = choose_thresholds(probability, targets, rule)
        assert found[0] < 0.5 == found[1]
        assert not_chosen(targets, ("price", "story"), rule) == ["story"]
    for rule in (ThresholdRule(number=0.3), ThresholdRule("f1_micro")):
        assert not_chosen(targets, ("price", "story"), rule) == []
