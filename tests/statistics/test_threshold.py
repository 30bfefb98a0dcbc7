"""The threshold for two classes, and those of several labels."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score

from frostline.data.kinds import CLASSIFICATION
from frostline.statistics.class_outputs import (
    choose_threshold,
    choose_thresholds,
    not_chosen,
    scores_of,
)
from frostline.statistics.metrics import METRICS, f1_macro_of_sets, f1_micro, metrics_for
from frostline.statistics.threshold_rule import BEST, MAXIMIZED, ThresholdRule, check_threshold

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


def test_a_number_is_the_threshold_itself() -> None:
    assert choose_threshold(np.array([0.9]), np.array([True]), ThresholdRule.read(0.3, "accuracy")) == 0.3


def test_saturated_probabilities_have_a_threshold() -> None:
    probability, positive = np.array([0.0, 1.0, 1.0]), np.array([True, True, False])
    for rule in (ThresholdRule("f1"), ThresholdRule("recall", 0.99)):
        assert 0 < choose_threshold(probability, positive, rule) < 1


def test_rules() -> None:
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


@pytest.mark.parametrize("rule", [*map(ThresholdRule, MAXIMIZED), ThresholdRule("recall", 0.9)])
@pytest.mark.parametrize("probability", [np.array([0.1, 0.2]), np.array([0.1, 0.9])])
def test_a_class_without_examples_keeps_one_half(rule: ThresholdRule, probability: np.ndarray) -> None:
    assert choose_threshold(probability, np.zeros(2, bool), rule) == 0.5


def test_labels_without_examples_keep_one_half() -> None:
    probability, targets = np.array([[0.2, 0.3], [0.1, 0.4]]), np.array([[True, False], [False, False]])
    for rule in (ThresholdRule("recall", 0.9), ThresholdRule("f1_macro")):
        found = choose_thresholds(probability, targets, rule)
        assert found[0] < 0.5 == found[1]
        assert not_chosen(targets, ("price", "story"), rule) == ["story"]
    for rule in (ThresholdRule(number=0.3), ThresholdRule("f1_micro")):
        assert not_chosen(targets, ("price", "story"), rule) == []
