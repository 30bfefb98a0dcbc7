"""The metrics of label sets are those of scikit-learn, and their baseline is the best constant prediction."""

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn import metrics as sk

from frostline.data.kinds import MULTI_LABEL
from frostline.statistics.class_outputs import scores_by_class
from frostline.statistics.metrics import METRICS, chance, check_metric, is_constant, score
from frostline.statistics.predictions import Labelled, RunPredictions

SHAPES = st.tuples(st.integers(1, 12), st.just(3))
SETS = arrays.arrays(np.bool_, SHAPES)
NAMES = ("f1_micro", "f1_macro", "subset_accuracy")


def logits_of(sets: np.ndarray) -> np.ndarray:
    return np.where(sets, 0.0, -0.01).astype(np.float32)


@given(st.data())
def test_scores_are_those_of_scikit_learn(data: st.DataObject) -> None:
    targets = data.draw(SETS)
    predictions = data.draw(arrays.arrays(np.bool_, targets.shape))
    found = score(targets, logits_of(predictions), MULTI_LABEL)
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


def test_micro_f1_is_the_default_and_others_are_refused() -> None:
    assert check_metric(None, MULTI_LABEL, 2) == "f1_micro" and check_metric("f1_macro", MULTI_LABEL, 2) == "f1_macro"
    with pytest.raises(
        ValueError, match="no metric 'accuracy' for this task: choose one of f1_micro, f1_macro, subset"
    ):
        check_metric("accuracy", MULTI_LABEL, 2)


def test_one_set_for_every_text_is_constant() -> None:
    same = logits_of(np.tile([[True, False, True]], (4, 1)))
    other = same.copy()
    other[2, 1] = 3.0
    assert is_constant(same, MULTI_LABEL) and not is_constant(other, MULTI_LABEL)


def test_scores_of_each_label_and_intervals_by_text() -> None:
    draw = np.random.default_rng(0)
    targets = draw.random((60, 3)) < (0.5, 0.3, 0.1)
    logits = logits_of(targets ^ (draw.random((60, 3)) < 0.1))
    logits[50:] = np.nan
    split = Labelled(targets, MULTI_LABEL, ("a", "b", "c"), "f1_micro")
    own = scores_by_class(split, [logits])
    for n, one in enumerate(own):
        y, said = targets[:50, n], logits[:50, n] >= 0
        assert one.examples == y.sum() and one.f1.estimate == pytest.approx(sk.f1_score(y, said))
        assert one.precision.estimate == pytest.approx(sk.precision_score(y, said))
    evidence = RunPredictions(split, {"run": logits}.__getitem__)
    found = evidence.alone("run")
    assert evidence.rows_of(["run"]) == 50 and found["low"] < found["score"] < found["high"]
    assert found["score"] == pytest.approx(sk.f1_score(targets[:50], logits[:50] >= 0, average="micro"))
