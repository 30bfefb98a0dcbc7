"""Scores compared with scikit-learn and scipy, the scores of constant predictions, and which metrics a task has."""

import math
import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats
from sklearn import metrics as sk

from frostline import FrostlineError
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.statistics.class_outputs import scores_by_class
from frostline.statistics.metrics import METRICS, chance, check_metric, is_constant, metrics_for, score
from frostline.statistics.predictions import Labelled, RunPredictions

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
    assert score(targets, logits_of(said, count), CLASSIFICATION) == expected


def test_many_examples_and_classes_do_not_overflow() -> None:
    draw = np.random.default_rng(0)
    targets = draw.integers(0, 5_000, 100_000)
    said = np.where(draw.random(100_000) < 0.7, targets, draw.permutation(targets))
    expected = pytest.approx(sk.matthews_corrcoef(targets, said), rel=1e-12)
    assert METRICS["matthews_correlation"].score(targets, said) == expected
    assert METRICS["f1_macro"].score(targets, said) == sk.f1_score(targets, said, average="macro")


def test_regression_against_scipy_and_scikit_learn() -> None:
    scores = score(NUMBERS, GUESSED[:, None], REGRESSION)
    assert scores == {
        "pearson": pytest.approx(stats.pearsonr(NUMBERS, GUESSED).statistic),
        "spearmanr": pytest.approx(stats.spearmanr(NUMBERS, GUESSED).statistic),
        "r2": pytest.approx(sk.r2_score(NUMBERS, GUESSED)),
    }
    assert scores["pearson"] == pytest.approx(np.corrcoef(NUMBERS, GUESSED)[0, 1])


@pytest.mark.parametrize("kind", [CLASSIFICATION, REGRESSION])
def test_nan_logits_have_nan_scores(kind: str) -> None:
    logits = logits_of(SAID, 2) if kind == CLASSIFICATION else SAID[:, None].astype(np.float32)
    logits[3] = np.nan
    scores = score(TARGETS, logits, kind)
    assert scores.keys() == names(kind, logits.shape[1]) and all(map(math.isnan, scores.values()))


@pytest.mark.parametrize("said", [np.full(5, 2.0), np.array([1.0, np.nan, 2.0, 3.0, 4.0]), np.full(5, np.inf)])
def test_an_undefined_correlation_is_nan(said: np.ndarray) -> None:
    scores = score(NUMBERS, said[:, None], REGRESSION)
    assert math.isnan(scores["pearson"]) and math.isnan(scores["spearmanr"])
    assert math.isnan(scores["r2"]) == (not np.isfinite(said).all())


def test_constant_targets_and_one_row_are_nan() -> None:
    assert math.isnan(METRICS["pearson"].score(np.ones(3), np.array([1.0, 2.0, 3.0])))
    assert math.isnan(METRICS["r2"].score(np.ones(1), np.ones(1)))


@settings(max_examples=25)
@given(arrays.arrays(np.int64, st.integers(2, 40), elements=st.integers(0, 3)))
def test_chance_is_the_best_constant(targets: np.ndarray) -> None:
    for classes, own in ((4, targets), (2, targets % 2)):
        constants = [score(own, logits_of(np.full_like(own, c), classes), CLASSIFICATION) for c in range(classes)]
        for name in constants[0]:
            assert chance(own, name, classes) == max(one[name] for one in constants)
    assert chance(NUMBERS, "spearmanr", 1) == chance(NUMBERS, "r2", 1) == 0


SHAPES = st.tuples(st.integers(1, 12), st.just(3))
SETS = arrays.arrays(np.bool_, SHAPES)
NAMES = ("f1_micro", "f1_macro", "subset_accuracy")


def logits_of_sets(sets: np.ndarray) -> np.ndarray:
    return np.where(sets, 0.0, -0.01).astype(np.float32)


@given(st.data())
def test_scores_of_label_sets_are_those_of_scikit_learn(data: st.DataObject) -> None:
    targets = data.draw(SETS)
    predictions = data.draw(arrays.arrays(np.bool_, targets.shape))
    found = score(targets, logits_of_sets(predictions), MULTI_LABEL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        micro, macro = (sk.f1_score(targets, predictions, average=how, zero_division=0.0) for how in ("micro", "macro"))
    expected = {"f1_micro": micro, "f1_macro": macro, "subset_accuracy": sk.accuracy_score(targets, predictions)}
    assert found == pytest.approx(expected)


@given(SETS)
def test_chance_is_the_best_of_all_constant_sets(targets: np.ndarray) -> None:
    constants = [np.broadcast_to(np.array(one), targets.shape) for one in product([False, True], repeat=3)]
    for name in NAMES:
        assert chance(targets, name, 3) == max(METRICS[name].score(targets, one) for one in constants)


def test_scores_of_each_label_and_intervals_by_text() -> None:
    draw = np.random.default_rng(0)
    targets = draw.random((60, 3)) < (0.5, 0.3, 0.1)
    logits = logits_of_sets(targets ^ (draw.random((60, 3)) < 0.1))
    logits[50:] = np.nan
    split = Labelled(targets, MULTI_LABEL, ("a", "b", "c"), "f1_micro")
    own = scores_by_class(split, [logits])
    for n, one in enumerate(own):
        y, said = targets[:50, n], logits[:50, n] >= 0
        assert one.examples == y.sum() and one.f1.estimate == pytest.approx(sk.f1_score(y, said))
        assert one.precision.estimate == pytest.approx(sk.precision_score(y, said))
    evidence = RunPredictions(split, {"run": logits}.__getitem__)
    found = evidence.alone("run")
    assert evidence.rows_of(["run"]) == 50 and found.low < found.estimate < found.high
    assert found.estimate == pytest.approx(sk.f1_score(targets[:50], logits[:50] >= 0, average="micro"))


@pytest.mark.parametrize(
    ("constant", "other", "kind"),
    [
        (logits_of(np.ones(4, int), 3), logits_of(np.array([1, 1, 2, 1]), 3), CLASSIFICATION),
        (np.full((4, 1), 2.5) + 1e-9 * np.arange(4)[:, None], np.array([[2.5], [2.6]]), REGRESSION),
        (logits_of_sets(np.tile([[True, False, True]], (4, 1))), logits_of_sets(np.eye(3) > 0), MULTI_LABEL),
    ],
)
def test_constant_predictions_are_recognized(constant: np.ndarray, other: np.ndarray, kind: str) -> None:
    assert is_constant(constant, kind) and not is_constant(other, kind)


@pytest.mark.parametrize(
    ("task", "usual", "other", "unsuitable", "suitable"),
    [
        ((CLASSIFICATION, 2), "accuracy", "f1", "pearson", "accuracy, f1, f1_macro"),
        ((CLASSIFICATION, 3), "accuracy", "f1_macro", "f1", "accuracy, f1_macro"),
        ((REGRESSION, 1), "spearmanr", "r2", "accuracy", "pearson, spearmanr, r2"),
        ((MULTI_LABEL, 2), "f1_micro", "f1_macro", "accuracy", "f1_micro, f1_macro, subset_accuracy"),
        ((TOKENS, 5, ("O", "B-a", "I-a")), "entity_f1", "token_accuracy", "f1", "entity_f1, "),
        ((TOKENS, 2, "AB"), "token_accuracy", "token_accuracy", "entity_f1", "token_accuracy"),
    ],
)
def test_a_task_has_a_usual_metric_and_refuses_unsuitable_ones(
    task: tuple[Any, ...], usual: str, other: str, unsuitable: str, suitable: str
) -> None:
    assert check_metric(None, *task) == usual and check_metric(other, *task) == other
    with pytest.raises(FrostlineError, match=f"no metric '{unsuitable}' for this task: choose one of {suitable}"):
        check_metric(unsuitable, *task)
