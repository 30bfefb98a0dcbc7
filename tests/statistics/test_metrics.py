"""Scores compared with scikit-learn and scipy, and the scores of constant predictions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats
from sklearn import metrics as sk

from frostline import FrostlineError
from frostline.statistics.metrics import (
    METRICS,
    chance,
    check_metric,
    is_constant,
    metrics_for,
    score,
)

CLASSES, NUMBER = "text-classification", "regression"
TARGETS = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1, 1])
SAID = np.array([0, 1, 0, 0, 1, 1, 0, 1, 1, 0])
NUMBERS = np.array([0.0, 1.5, 2.0, 4.5, 3.0])
GUESSED = np.array([0.2, 1.0, 2.5, 3.5, 3.75])


def names(task_type: str, classes: int) -> set[str]:
    return {metric.name for metric in metrics_for(task_type, classes)}


def logits_of(classes: np.ndarray, count: int) -> np.ndarray:
    return np.eye(count, dtype=np.float32)[classes]


def test_classification_against_scikit_learn() -> None:
    scores = score(TARGETS, logits_of(SAID, 2), CLASSES)
    assert scores == {
        "accuracy": 0.7,
        "f1": pytest.approx(sk.f1_score(TARGETS, SAID)),
        "f1_macro": pytest.approx(sk.f1_score(TARGETS, SAID, average="macro")),
        "matthews_correlation": pytest.approx(sk.matthews_corrcoef(TARGETS, SAID)),
    }
    assert scores["f1"] == pytest.approx(2 * 4 / (2 * 4 + 1 + 2))  # 4 hits, 1 false alarm, 2 misses


def test_f1_is_of_class_one_not_of_the_rarer() -> None:
    flipped = score(1 - TARGETS, logits_of(1 - SAID, 2), CLASSES)
    assert flipped["f1"] == pytest.approx(sk.f1_score(TARGETS, SAID, pos_label=0))
    assert flipped["accuracy"] == 0.7


def test_regression_against_scipy_and_scikit_learn() -> None:
    scores = score(NUMBERS, GUESSED[:, None], NUMBER)
    assert scores == {
        "pearson": pytest.approx(stats.pearsonr(NUMBERS, GUESSED).statistic),
        "spearmanr": pytest.approx(stats.spearmanr(NUMBERS, GUESSED).statistic),
        "r2": pytest.approx(sk.r2_score(NUMBERS, GUESSED)),
    }
    assert scores["pearson"] == pytest.approx(np.corrcoef(NUMBERS, GUESSED)[0, 1])


@pytest.mark.parametrize("kind", [CLASSES, NUMBER])
def test_nan_logits_have_nan_scores(kind: str) -> None:
    logits = logits_of(SAID, 2 if kind == CLASSES else 1) if kind == CLASSES else SAID[:, None].astype(np.float32)
    logits[3] = np.nan
    scores = score(TARGETS, logits, kind)
    assert scores.keys() == names(kind, logits.shape[1]) and all(map(math.isnan, scores.values()))


def test_many_classes_have_no_binary_f1() -> None:
    assert names(CLASSES, 3) == {"accuracy", "f1_macro", "matthews_correlation"}
    assert "f1" in names(CLASSES, 2)
    assert names(NUMBER, 1) == {name for name, metric in METRICS.items() if NUMBER in metric.task_types}
    said = np.array([0, 1, 2, 2])
    assert score(np.array([0, 1, 2, 1]), logits_of(said, 60), CLASSES)["accuracy"] == 0.75


@pytest.mark.parametrize("said", [np.full(5, 2.0), np.array([1.0, np.nan, 2.0, 3.0, 4.0]), np.full(5, np.inf)])
def test_an_undefined_correlation_is_nan(said: np.ndarray) -> None:
    scores = score(NUMBERS, said[:, None], NUMBER)
    assert math.isnan(scores["pearson"]) and math.isnan(scores["spearmanr"])
    assert math.isnan(scores["r2"]) == (not np.isfinite(said).all())


def test_constant_targets_and_one_row_are_nan() -> None:
    assert math.isnan(METRICS["pearson"].score(np.ones(3), np.array([1.0, 2.0, 3.0])))
    assert math.isnan(METRICS["r2"].score(np.ones(1), np.ones(1)))


@pytest.mark.parametrize("name", sorted(name for name, metric in METRICS.items() if CLASSES in metric.task_types))
def test_chance_is_the_best_constant(name: str) -> None:
    constants = [score(TARGETS, logits_of(np.full(10, c), 2), CLASSES)[name] for c in range(2)]
    assert chance(TARGETS, name, 2) == max(constants)


def test_chance_by_hand() -> None:
    assert chance(TARGETS, "accuracy", 2) == 0.6
    assert chance(TARGETS, "f1", 2) == pytest.approx(2 * 6 / (6 + 10))
    assert chance(TARGETS, "matthews_correlation", 2) == 0
    assert chance(NUMBERS, "spearmanr", 1) == chance(NUMBERS, "r2", 1) == 0


@settings(max_examples=25)
@given(arrays.arrays(np.int64, st.integers(2, 40), elements=st.integers(0, 3)))
def test_no_constant_beats_chance(targets: np.ndarray) -> None:
    for name in ("accuracy", "f1_macro", "matthews_correlation"):
        best = chance(targets, name, 4)
        assert all(score(targets, logits_of(np.full_like(targets, c), 4), CLASSES)[name] <= best for c in range(4))


def test_constant_predictions_are_recognized() -> None:
    assert is_constant(logits_of(np.ones(4, int), 3), CLASSES)
    assert not is_constant(logits_of(np.array([1, 1, 2, 1]), 3), CLASSES)
    assert is_constant(np.full((4, 1), 2.5) + 1e-9 * np.arange(4)[:, None], NUMBER)
    assert not is_constant(np.array([[2.5], [2.6]]), NUMBER)


def test_an_unsuitable_metric_is_refused_with_the_suitable_names() -> None:
    assert check_metric(None, CLASSES, 2) == "accuracy" and check_metric(None, NUMBER, 1) == "spearmanr"
    assert check_metric("f1", CLASSES, 2) == "f1"
    for name, kind, classes, right in (
        ("pearson", CLASSES, 2, "accuracy, f1, f1_macro"),
        ("f1", CLASSES, 3, "accuracy, f1_macro"),
        ("accuracy", NUMBER, 1, "pearson, spearmanr, r2"),
    ):
        with pytest.raises(FrostlineError, match=right):
            check_metric(name, kind, classes)
