"""The metrics of classification are bitwise those of scikit-learn."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn import metrics as sk

from frostline.statistics import metrics as class_scores


@given(st.data())
def test_scores_are_bitwise_those_of_scikit_learn(data: st.DataObject) -> None:
    indices = st.integers(0, data.draw(st.sampled_from([1, 2, 60])))
    targets = data.draw(arrays.arrays(np.int64, st.integers(1, 60), elements=indices))
    predictions = data.draw(arrays.arrays(np.int64, targets.shape, elements=indices))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f1 = sk.f1_score(targets, predictions, labels=[1], average="macro", zero_division=0.0)
        assert class_scores.f1(targets, predictions) == f1
        macro = sk.f1_score(targets, predictions, average="macro", zero_division=0.0)
        assert class_scores.f1_macro(targets, predictions) == macro
        assert class_scores.matthews(targets, predictions) == sk.matthews_corrcoef(targets, predictions)
        assert class_scores.accuracy(targets, predictions) == sk.accuracy_score(targets, predictions)


def test_many_examples_and_classes_do_not_overflow() -> None:
    generator = np.random.default_rng(0)
    targets = generator.integers(0, 5_000, 100_000)
    predictions = np.where(generator.random(100_000) < 0.7, targets, generator.permutation(targets))
    assert class_scores.matthews(targets, predictions) == pytest.approx(
        sk.matthews_corrcoef(targets, predictions), rel=1e-12
    )
    assert class_scores.f1_macro(targets, predictions) == sk.f1_score(targets, predictions, average="macro")
