"""The threshold on the probability of the second of two classes, or of each label, from which it is predicted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.threshold_rule import RECALL, ThresholdRule

Array = NDArray[np.float64]
Counts = tuple[Array, Array, Array, Array]  # true positives, false positives, false negatives, true negatives


def _share(part: Array, whole: Array) -> Array:
    """``part / whole``; 0 where the whole is 0, as in the metrics."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _precision(tp: Array, fp: Array, fn: Array, tn: Array) -> Array:
    return _share(tp, tp + fp)


def _recall(tp: Array, fp: Array, fn: Array, tn: Array) -> Array:
    return _share(tp, tp + fn)


def _f1(tp: Array, fp: Array, fn: Array, tn: Array) -> Array:
    return _share(2 * tp, 2 * tp + fp + fn)


def _accuracy(tp: Array, fp: Array, fn: Array, tn: Array) -> Array:
    return _share(tp + tn, tp + fp + fn + tn)


def _balanced_accuracy(tp: Array, fp: Array, fn: Array, tn: Array) -> Array:
    return (_share(tp, tp + fn) + _share(tn, tn + fp)) / 2


def _f1_macro(tp: Array, fp: Array, fn: Array, tn: Array) -> Array:
    return (_f1(tp, fp, fn, tn) + _f1(tn, fn, fp, tp)) / 2


def _matthews(tp: Array, fp: Array, fn: Array, tn: Array) -> Array:
    whole = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return _share(tp * tn - fp * fn, whole)


SCORES: Mapping[str, Callable[[Array, Array, Array, Array], Array]] = {
    "precision": _precision,
    "recall": _recall,
    "f1": _f1,
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced_accuracy,
    "f1_macro": _f1_macro,
    "matthews_correlation": _matthews,
}


def choose_threshold(probability: Array, positive: NDArray[np.bool_], rule: ThresholdRule) -> float:
    """The threshold that the rule asks for, on these examples.

    A metric is maximized. Of several thresholds with the same score, the one nearest to 0.5 is chosen. For a recall, it is the
    highest threshold with at least this recall, so that precision is as high as the recall allows. If no example is positive,
    nothing can be chosen, and the threshold is 0.5.

    Args:
        probability: Of the second class, ``[n]``.
        positive: Whether an example is of the second class, ``[n]``.
        rule: What to choose it by. A number is returned unchanged.
    """
    if rule.metric is None:
        assert rule.number is not None
        return rule.number
    if not positive.any():
        return 0.5
    thresholds = _candidates(probability)
    counts = _counts(probability, positive, thresholds)
    scores = SCORES[rule.metric](*counts)
    if rule.metric == RECALL and rule.number is not None:
        enough = thresholds[scores >= rule.number]
        return float(enough.max() if len(enough) else thresholds.min())
    best = thresholds[scores >= scores.max() - 1e-12]
    return float(best[np.abs(best - 0.5).argmin()])


def choose_thresholds(probability: Array, targets: NDArray[np.bool_], rule: ThresholdRule) -> Array:
    """The threshold of each label, ``[C]``, if a text can have any number of labels.

    For micro F1, there is one threshold for all labels. For macro F1, each label has the threshold that maximizes its F1. A
    recall is that of each label.

    Args:
        probability: ``[n, C]``.
        targets: ``[n, C]``.
        rule: What to choose them by.
    """
    if rule.metric == "f1_micro":
        one = choose_threshold(probability.ravel(), targets.ravel(), ThresholdRule("f1"))
        return np.full(targets.shape[1], one)
    own = replace(rule, metric="f1") if rule.metric == "f1_macro" else rule
    return np.array([choose_threshold(p, t, own) for p, t in zip(probability.T, targets.T, strict=True)])


def not_chosen(targets: NDArray[np.bool_], labels: Sequence[str], rule: ThresholdRule) -> list[str]:
    """The labels that keep 0.5, because the rule chooses a threshold for each label and no example has these ``[n, C]``."""
    if rule.metric in (None, "f1_micro"):
        return []
    return [label for label, has in zip(labels, targets.T, strict=True) if not has.any()]


def scores_of(predicted: NDArray[np.bool_], positive: NDArray[np.bool_]) -> dict[str, float | None]:
    """Every score of predictions ``[n]``. Precision is None if no example is predicted positive, recall if none is positive."""
    counts = _counts(predicted.astype(float), positive, np.array([0.5]))
    scores: dict[str, float | None] = {name: float(score(*counts)[0]) for name, score in SCORES.items()}
    undefined = {"precision": not predicted.any(), "recall": not positive.any()}
    return {name: None if undefined.get(name) else score for name, score in scores.items()}


def _candidates(probability: Array) -> Array:
    """0.5 and a threshold between every two neighbouring probabilities, below the lowest and above the highest."""
    known = np.unique(probability)
    between = (np.concatenate([[0.0], known]) + np.concatenate([known, [1.0]])) / 2
    thresholds = np.unique([*between, 0.5])
    return thresholds[(thresholds > 0) & (thresholds < 1)]


def _counts(probability: Array, positive: NDArray[np.bool_], thresholds: Array) -> Counts:
    """The counts at each threshold, ``[thresholds]``; an example is predicted positive from its threshold on."""
    order = np.argsort(probability, kind="stable")
    below = np.searchsorted(probability[order], thresholds, side="left")
    missed = np.concatenate([[0], np.cumsum(positive[order])])[below].astype(float)
    hits = float(positive.sum()) - missed
    return hits, len(positive) - below - hits, missed, below - missed
