"""Precision, recall and F1 of each class."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score

from frostline.data.kinds import CLASSIFICATION
from frostline.statistics.class_outputs import SCORES
from frostline.statistics.class_outputs import scores_by_class as scores_of
from frostline.statistics.inference import Ratio
from frostline.statistics.predictions import Labelled

LABELS = ("a", "b", "c")


def scores_by_class(targets: np.ndarray, logits: list[np.ndarray], labels: tuple[str, ...]) -> list[dict[str, Any]]:
    return scores_of(Labelled(targets, CLASSIFICATION, labels, "accuracy"), logits)


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
