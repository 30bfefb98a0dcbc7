"""Scores compared with scikit-learn and scipy, and the scores of constant predictions."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats
from sklearn import metrics as sk

from frostline import FrostlineError
from frostline.statistics.metrics import METRICS, chance, check_metric, is_constant, metrics_for, score

CLASSES, NUMBER = "text-classification", "regression"
TARGETS = np.array([0, 1, 1, 0, 1, 0, 0, 1, 1, 1])
SAID = np.array([0, 1, 0, 0, 1, 1, 0, 1, 1, 0])
NUMBERS = np.array([0.0, 1.5, 2.0, 4.5, 3.0])
GUESSED = np.array([0.2, 1.0, 2.5, 3.5, 3.75])


def names(task_type: str, classes: int) -> set[str]:
    return {metric.name for metric in metrics_for(task_type, classes)}


def logits_of(classes: np.ndarray, count: int) -> np.ndarray:
    return np.eye(count, dtype=np.float32)[classes]


@given(st.data())
def test_scores_of_classes_are_bitwise_those_of_scikit_learn(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([2, 3, 61]))
    targets, said = (data.draw(arrays.arrays(np.int64, 40, elements=st.integers(0, count - 1))) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = {
            "accuracy": sk.accuracy_score(targets, said),
            "f1_macro": sk.f1_score(targets, said, average="macro", zero_division=0.0),
            "matthews_correlation": sk.matthews_corrcoef(targets, said),
        }
        if count == 2:  # of class one, not of the rarer one
            expected["f1"] = sk.f1_score(targets, said, labels=[1], average="macro", zero_division=0.0)
    assert score(targets, logits_of(said, count), CLASSES) == expected


def test_many_examples_and_classes_do_not_overflow() -> None:
    draw = np.random.default_rng(0)
    targets = draw.integers(0, 5_000, 100_000)
    said = np.where(draw.random(100_000) < 0.7, targets, draw.permutation(targets))
    expected = pytest.approx(sk.matthews_corrcoef(targets, said), rel=1e-12)
    assert METRICS["matthews_correlation"].score(targets, said) == expected
    assert METRICS["f1_macro"].score(targets, said) == sk.f1_score(targets, said, average="macro")


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


@pytest.mark.parametrize("said", [np.full(5, 2.0), np.array([1.0, np.nan, 2.0, 3.0, 4.0]), np.full(5, np.inf)])
def test_an_undefined_correlation_is_nan(said: np.ndarray) -> None:
    scores = score(NUMBERS, said[:, None], NUMBER)
    assert math.isnan(scores["pearson"]) and math.isnan(scores["spearmanr"])
    assert math.isnan(scores["r2"]) == (not np.isfinite(said).all())


def test_constant_targets_and_one_row_are_nan() -> None:
    assert math.isnan(METRICS["pearson"].score(np.ones(3), np.array([1.0, 2.0, 3.0])))
    assert math.isnan(METRICS["r2"].score(np.ones(1), np.ones(1)))


@settings(max_examples=25)
@given(arrays.arrays(np.int64, st.integers(2, 40), elements=st.integers(0, 3)))
def test_chance_is_the_best_constant(targets: np.ndarray) -> None:
    for classes, own in ((4, targets), (2, targets % 2)):
        constants = [score(own, logits_of(np.full_like(own, c), classes), CLASSES) for c in range(classes)]
        for name in constants[0]:
            assert chance(own, name, classes) == max(one[name] for one in constants)
    assert chance(NUMBERS, "spearmanr", 1) == chance(NUMBERS, "r2", 1) == 0


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
