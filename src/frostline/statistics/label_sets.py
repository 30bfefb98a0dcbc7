"""The metrics of multi-label classification, the same as scikit-learn's but faster, and the predictions of its baseline.

Targets and predictions are bool ``[n, C]``: whether a text has a label.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def f1_micro(targets: Array, predictions: Array) -> float:
    """F1 of all pairs of a text and a label."""
    hits, both = (targets & predictions).sum(), targets.sum() + predictions.sum()
    return float(2 * hits / both) if both else 0.0


def f1_macro(targets: Array, predictions: Array) -> float:
    """The mean F1 of the labels; 0 for a label that no text has and that is never predicted."""
    hits, both = (targets & predictions).sum(0), targets.sum(0) + predictions.sum(0)
    return float(np.divide(2 * hits, both, out=np.zeros(len(both)), where=both > 0).mean())


def subset_accuracy(targets: Array, predictions: Array) -> float:
    """The share of texts whose labels are all right."""
    return float((targets == predictions).all(1).mean())


def constant_sets(targets: Array) -> Iterator[NDArray[np.bool_]]:
    """Sets of labels ``[C]`` among which is the best constant prediction for every metric.

    For a given number of labels, the most frequent ones have the highest F1. The most frequent set is most often right.
    """
    order = np.argsort(-targets.sum(0), kind="stable")
    for count in range(len(order) + 1):
        chosen = np.zeros(len(order), np.bool_)
        chosen[order[:count]] = True
        yield chosen
    sets, counts = np.unique(targets, axis=0, return_counts=True)
    yield sets[counts.argmax()]
