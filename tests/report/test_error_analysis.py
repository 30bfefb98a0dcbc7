"""The confusion matrix and the largest errors."""

import numpy as np
import pytest

from frostline.data.examples import Examples
from frostline.report.error_analysis import confusion, largest_errors


def test_a_merged_confusion_matrix_counts_every_example() -> None:
    draw = np.random.default_rng(1)
    targets, predictions = draw.integers(0, 30, 500), draw.integers(0, 30, 500)
    table = confusion(targets, predictions, [str(n) for n in range(30)])
    assert table.counts.sum() == 500 and table.others == 20 and table.labels[-1] == "20 others"
    label = int(table.labels[0])
    assert table.counts[0].sum() == (targets == label).sum()
    assert table.counts[0, 0] == ((targets == label) & (predictions == label)).sum()


def test_the_most_confused_classes_are_shown() -> None:
    rare = np.repeat(np.arange(30), 10)
    confused = np.where(rare >= 20, 49 - rare, rare)  # only the last ten are confused with one another
    assert confusion(rare, confused, [str(n) for n in range(30)]).labels[:10] == tuple(str(n) for n in range(20, 30))
    small = confusion(np.array([0, 1, 1]), np.array([1, 1, 1]), ["a", "b"])
    assert small.counts.tolist() == [[0, 1], [0, 2]] and small.share(1, 1) == 1.0


def test_misclassified_examples_by_loss() -> None:
    examples = Examples(
        texts=("a", "b", "c"), pairs=("d", "e", "f"), rows=np.array([2, 3, 4]), name="v", targets=np.array([0, 1, 0])
    )
    found = largest_errors(examples, np.array([[0.0, 1.0], [0.0, 5.0], [0.0, 3.0]], np.float32), ["no", "yes"])
    assert [(e.row, e.text, e.pair, e.label, e.predicted) for e in found] == [
        (4, "c", "f", "no", "yes"),
        (2, "a", "d", "no", "yes"),
    ]
    assert found[0].loss == pytest.approx(np.log1p(np.exp(3)), abs=1e-6)
    assert found[0].probability_of_label == pytest.approx(1 / (1 + np.exp(3)), abs=1e-6)
