"""The metrics, one entry each in ``_ALL``. To add a metric, add an entry, and one in ``FORMULAS`` of
:mod:`frostline.statistics.threshold_rule` if it scores two classes.

Names are those of Hugging Face; scores are those of scikit-learn and scipy. Higher is better for every metric, and 1 is the
maximum. An undefined score, such as the correlation with a constant, is NaN.

Metrics of classification are a hundred times faster than scikit-learn's for small splits, and bitwise the same. Only the Matthews
correlation of very many examples may differ in its last digits.

Entities are found and compared by seqeval in its strict mode for the BIO scheme (IOB2): one counts as correct if its type, its
first and its last word are those of the target. An entity whose first word has no token, such as a word of invisible characters,
cannot be predicted: it counts as missed. Words after the last one with a prediction were cut off, and do not count.

Shapes of tags: n sentences, W words of the longest sentence, K types of entities.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from frostline import FrostlineError
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.data.tags import BEGIN, OUTSIDE, are_entities, entity_types

Array = NDArray[Any]


def accuracy(targets: Array, predictions: Array) -> float:
    """The share of correct predictions."""
    return float((targets == predictions).mean())


def f1(targets: Array, predictions: Array) -> float:
    """F1 of the class with index 1, as in GLUE; 0 if it never occurs and is never predicted."""
    hits, both = np.sum((targets == 1) & (predictions == 1)), np.sum(targets == 1) + np.sum(predictions == 1)
    return float(2 * hits / both) if both else 0.0


def f1_macro(targets: Array, predictions: Array) -> float:
    """The mean F1 of the classes that occur or are predicted; of label sets, that of all labels."""
    if targets.ndim > 1:
        return f1_macro_of_sets(targets, predictions)
    correct, predicted, expected = _counts(targets, predictions)
    both = predicted + expected
    return float((2 * correct[both > 0] / both[both > 0]).mean())


def matthews(targets: Array, predictions: Array) -> float:
    """The Matthews correlation of any number of classes (Gorodkin 2004); 0 if targets or predictions are constant."""
    correct, predicted, expected = _counts(targets, predictions).astype(np.float64)
    n = len(targets)
    variances = (n**2 - predicted @ predicted) * (n**2 - expected @ expected)
    return float((correct.sum() * n - predicted @ expected) / np.sqrt(variances)) if variances else 0.0


def _counts(targets: Array, predictions: Array) -> NDArray[np.int64]:
    """``[3, C]``: how often each class is predicted correctly, is predicted, and occurs."""
    classes = 1 + int(max(targets.max(), predictions.max()))
    return np.stack(
        [np.bincount(x, minlength=classes) for x in (targets[targets == predictions], predictions, targets)]
    )


def f1_micro(targets: Array, predictions: Array) -> float:
    """F1 of all pairs of a text and a label."""
    hits, both = (targets & predictions).sum(), targets.sum() + predictions.sum()
    return float(2 * hits / both) if both else 0.0


def f1_macro_of_sets(targets: Array, predictions: Array) -> float:
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


def is_scored(targets: Array, predictions: Array) -> NDArray[np.bool_]:
    """``[n, W]``: whether there is a word, and a prediction for it. Words that were cut off or have no token have none."""
    return np.asarray((targets >= 0) & (predictions >= 0))


def entity_counts(targets: Array, predictions: Array, labels: Sequence[str]) -> NDArray[np.int64]:
    """``[n, K, 3]``: how many entities of each type are correct, predicted, and in the targets ``[n, W]``."""
    from seqeval.scheme import IOB2, Entities

    kinds, scored = entity_types(labels), is_scored(targets, predictions)
    numbers = [None if label == OUTSIDE else kinds.index(label[len(BEGIN) :]) for label in labels]
    # Numbers in place of the types, because seqeval strips dashes from types.
    tags = [OUTSIDE if k is None else f"{label[: len(BEGIN)]}{k}" for label, k in zip(labels, numbers, strict=True)]
    names = np.array(tags, dtype=object)

    def found(indices: Array) -> list[set[Any]]:
        sequences = [names[row[some]].tolist() for row, some in zip(indices, scored, strict=True)]
        return [set(of_sentence) for of_sentence in Entities(sequences, scheme=IOB2).entities]

    counts = np.zeros((len(targets), len(kinds), 3), np.int64)
    for n, (expected, predicted) in enumerate(zip(found(targets), found(predictions), strict=True)):
        for place, entities in enumerate((expected & predicted, predicted, expected)):
            for entity in entities:
                counts[n, int(entity.tag), place] += 1
    before_last = np.logical_or.accumulate(scored[:, ::-1], axis=1)[:, ::-1]
    without_token = (targets >= 0) & ~scored & before_last
    for tag, k in enumerate(numbers):
        if labels[tag].startswith(BEGIN):
            counts[:, k, 2] += (without_token & (targets == tag)).sum(1)
    return counts


def tag_tally(targets: Array, predictions: Array, labels: Sequence[str]) -> tuple[Array, ...]:
    """What the metrics of tags count in each sentence, ``[n]`` each.

    These are the correct, the predicted and the expected entities, the words with the correct tag, and all words. Plain tags
    have no entities.
    """
    scored = is_scored(targets, predictions)
    entities = np.zeros((3, len(targets)), np.int64)
    if are_entities(labels):
        entities = entity_counts(targets, predictions, labels).sum(1).T
    return (*entities, (scored & (targets == predictions)).sum(1), scored.sum(1))


Tally = tuple[Array, ...]  # what a metric reads of n examples, [n, ...] each: targets and predictions, or counts
Score = Callable[..., float]  # of a tally
CONSTANT_BASELINE, MEAN_BASELINE = "constant baseline", "mean baseline"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric.

    Attributes:
        name: Its name in options and files.
        label: Its name in sentences, tables and figures.
        task_types: The types of task it is defined for.
        score: The score of predictions ``[n]`` (class indices or numbers) for targets ``[n]``, or of label sets ``[n, C]``; for
            tags the score of the counts of :func:`frostline.statistics.metrics.tag_tally`.
        baseline: The name of the best constant prediction, which gains are measured from.
        lowest: The lowest score, at which intervals end, unless the score itself is below it.
        bounded: Whether no model can score less than ``lowest``.
        constant: The score of every constant prediction; None if it depends on the targets.
        classes: The only number of classes it is defined for; None: any.
        entities: Whether it is defined for tags of entities only.
        aliases: Other names in tables of results, in lower case.
    """

    name: str
    label: str
    task_types: tuple[str, ...]
    score: Score
    baseline: str = CONSTANT_BASELINE
    lowest: float = 0.0
    bounded: bool = True
    constant: float | None = None
    classes: int | None = None
    entities: bool = False
    aliases: tuple[str, ...] = ()

    def clipped(self, score: float, low: float, high: float) -> tuple[float, float]:
        """The interval of a score within the range of the metric. That of a score below ``lowest`` has no such end."""
        return max(low, self.lowest) if score >= self.lowest else low, min(high, 1.0)


CORRECT, PREDICTED, EXPECTED, RIGHT, WORDS = range(5)  # places in the counts of tag_tally


def _share(part: int, *wholes: int) -> Score:
    """The count at one place, as a share of the mean of others; 0 where that is 0, as in seqeval."""

    def score(*counts: Array) -> float:
        whole = sum(counts[n].sum() for n in wholes)
        return float(len(wholes) * counts[part].sum() / whole) if whole else 0.0

    return score


def _correlation(name: str) -> Score:
    """A correlation of scipy by its name."""

    def score(targets: Array, predictions: Array) -> float:
        if len(targets) < 2 or not np.isfinite(predictions).all() or np.ptp(predictions) == 0 or np.ptp(targets) == 0:
            return float("nan")
        return float(getattr(scipy.stats, name)(targets, predictions).statistic)

    return score


def _r2(targets: Array, predictions: Array) -> float:
    if len(targets) < 2 or not np.isfinite(predictions).all():
        return float("nan")
    from sklearn.metrics import r2_score

    return float(r2_score(targets, predictions))


_ALL = (
    Metric(
        name="accuracy",
        label="accuracy",
        task_types=(CLASSIFICATION,),
        score=accuracy,
        baseline="majority-class baseline",
        aliases=("acc",),
    ),
    Metric(name="f1", label="F1", task_types=(CLASSIFICATION,), score=f1, classes=2),
    Metric(name="f1_micro", label="micro F1", task_types=(MULTI_LABEL,), score=f1_micro),
    Metric(
        name="f1_macro",
        label="macro F1",
        task_types=(CLASSIFICATION, MULTI_LABEL),
        score=f1_macro,
    ),
    Metric(name="subset_accuracy", label="subset accuracy", task_types=(MULTI_LABEL,), score=subset_accuracy),
    Metric(
        name="matthews_correlation",
        label="Matthews correlation",
        task_types=(CLASSIFICATION,),
        score=matthews,
        lowest=-1.0,
        constant=0.0,
        aliases=("mcc", "matthews", "matthews_corrcoef"),
    ),
    Metric(
        name="pearson",
        label="Pearson correlation",
        task_types=(REGRESSION,),
        score=_correlation("pearsonr"),
        baseline=MEAN_BASELINE,
        lowest=-1.0,
        constant=0.0,
        aliases=("pearsonr",),
    ),
    Metric(
        name="spearmanr",
        label="Spearman’s ρ",
        task_types=(REGRESSION,),
        score=_correlation("spearmanr"),
        baseline=MEAN_BASELINE,
        lowest=-1.0,
        constant=0.0,
        aliases=("spearman", "rho"),
    ),
    # A model that is worse than the mean can score below -1, but intervals of other scores end at -1.
    Metric(
        name="r2",
        label="R²",
        task_types=(REGRESSION,),
        score=_r2,
        baseline=MEAN_BASELINE,
        lowest=-1.0,
        bounded=False,
        constant=0.0,
    ),
    Metric(
        name="entity_f1",
        label="entity F1",
        task_types=(TOKENS,),
        score=_share(CORRECT, PREDICTED, EXPECTED),
        entities=True,
    ),
    Metric(
        name="entity_precision",
        label="entity precision",
        task_types=(TOKENS,),
        score=_share(CORRECT, PREDICTED),
        entities=True,
    ),
    Metric(
        name="entity_recall",
        label="entity recall",
        task_types=(TOKENS,),
        score=_share(CORRECT, EXPECTED),
        entities=True,
    ),
    Metric(
        name="token_accuracy",
        label="token accuracy",
        task_types=(TOKENS,),
        score=_share(RIGHT, WORDS),
        baseline="majority-tag baseline",
    ),
)
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
DEFAULT = {  # by task type: the first of these that is defined for the task
    CLASSIFICATION: ("accuracy",),
    MULTI_LABEL: ("f1_micro",),
    REGRESSION: ("spearmanr",),
    TOKENS: ("entity_f1", "token_accuracy"),
}
_NAMES = {name: metric.name for metric in _ALL for name in (metric.name, *metric.aliases)}


def canonical_name(name: str) -> str:
    """Our name of a metric, given any of its names in any case. An unknown name is returned unchanged."""
    return _NAMES.get(name.lower(), name)


def lowest_score(name: str) -> float:
    """What no score in this metric is below; minus infinity for an unknown metric, and for one that is not bounded."""
    return METRICS[name].lowest if name in METRICS and METRICS[name].bounded else -math.inf


def metrics_for(task_type: str, classes: int, labels: Sequence[str] = ()) -> list[Metric]:
    """The metrics that are defined for a task with this number of classes. The ``labels`` matter for tags only."""
    suitable = [m for m in _ALL if task_type in m.task_types and m.classes in (None, classes)]
    return [m for m in suitable if not m.entities or are_entities(labels)]


def check_metric(name: str | None, task_type: str, classes: int, labels: Sequence[str] = ()) -> str:
    """The metric's name, or the default of the task type if it is None. The ``labels`` matter for tags only.

    Raises:
        FrostlineError: The metric is not defined for the task; the message lists those that are.
    """
    known = [metric.name for metric in metrics_for(task_type, classes, labels)]
    if name is None:
        return next(default for default in DEFAULT[task_type] if default in known)
    if name not in known:
        raise FrostlineError(f"There is no metric {name!r} for this task: choose one of {', '.join(known)}.")
    return name


def predict(logits: Array, task_type: str) -> Array:
    """Predictions ``[n]`` from logits ``[n, C]``: class indices, or for regression the numbers themselves (C = 1).

    For tags ``[n, W]`` from ``[n, W, C]``; -1 where there is no word, or none of its tokens was encoded. For label sets bool
    ``[n, C]``: whether the probability is at least 0.5.
    """
    if task_type == MULTI_LABEL:
        return np.asarray(logits >= 0)
    if task_type == REGRESSION:
        return logits[:, 0]
    if task_type == TOKENS:
        return np.asarray(np.where(np.isnan(logits).any(-1), -1, logits.argmax(-1)))
    return np.asarray(logits.argmax(1))


def tally(targets: Array, predictions: Array, task_type: str, labels: Sequence[str]) -> Tally:
    """What the metrics of this type of task read of each example, ``[n, ...]`` each."""
    return tag_tally(targets, predictions, labels) if task_type == TOKENS else (targets, predictions)


def scored_rows(logits: Array) -> NDArray[np.bool_]:
    """``[n]``: whether a row of ``[n, ..., C]`` was scored. All logits of the other rows are NaN."""
    return np.asarray(~np.isnan(logits).all(axis=tuple(range(1, logits.ndim))))


def score(targets: Array, logits: Array, task_type: str, labels: Sequence[str] = ()) -> dict[str, float]:
    """The scores in all metrics of the task, for targets ``[n]`` and logits ``[n, C]``. They are NaN if a logit is NaN.

    For tags, the targets are ``[n, W]`` and the logits ``[n, W, C]``. Only words with logits are scored.
    """
    suitable = metrics_for(task_type, logits.shape[-1], labels)
    if np.isnan(logits).any() and task_type != TOKENS:
        return {metric.name: float("nan") for metric in suitable}
    counted = tally(targets, predict(logits, task_type), task_type, labels)
    return {metric.name: metric.score(*counted) for metric in suitable}


def is_constant(logits: Array, task_type: str, spread: float = 1.0) -> bool:
    """Whether the model predicts the same for every row of ``[n, C]``, or for every word of ``[n, W, C]``.

    Numbers also if they differ by no more than rounding does, beside their size or the ``spread`` of the targets, up to 1.
    """
    predictions = predict(logits, task_type)
    if task_type == REGRESSION:
        return bool(np.ptp(predictions) <= 1e-6 * max(min(spread, 1.0), float(np.abs(predictions).max())))
    if task_type == TOKENS:
        predictions = predictions[predictions >= 0]
    return bool((predictions == predictions[:1]).all())


def chance(targets: Array, name: str, classes: int, labels: Sequence[str] = ()) -> float:
    """The score of the best constant prediction for these targets. The ``labels`` matter for tags only."""
    metric = METRICS[name]
    if metric.constant is not None:
        return metric.constant
    constants = constant_sets(targets) if targets.dtype == np.bool_ else range(classes)
    same = (np.broadcast_to(np.asarray(one, targets.dtype), targets.shape) for one in constants)
    return max(metric.score(*tally(targets, one, metric.task_types[0], labels)) for one in same)


def defined(score: float) -> float | None:
    """The score, or None if it is not finite."""
    return score if np.isfinite(score) else None
