"""The metrics, one entry each in ``METRICS``. To add a metric, add an entry.

Names are those of Hugging Face; scores are those of scikit-learn and scipy. Higher is better for every metric, and 1 is the
maximum. An undefined score, such as the correlation with a constant, is NaN.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import r2_score

from frostline import FrostlineError
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.data.tags import are_entities
from frostline.statistics import class_scores, label_sets, tags

Array = NDArray[Any]
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
            tags the score of the counts of :func:`frostline.statistics.tags.tag_tally`.
        baseline: The name of the best constant prediction, which gains are measured from.
        lowest: The lowest score, at which intervals end.
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


def _f1_macro(targets: Array, predictions: Array) -> float:
    return (label_sets.f1_macro if targets.ndim > 1 else class_scores.f1_macro)(targets, predictions)


def _correlation(function: Callable[[Array, Array], Any]) -> Score:
    def score(targets: Array, predictions: Array) -> float:
        if len(targets) < 2 or not np.isfinite(predictions).all() or np.ptp(predictions) == 0 or np.ptp(targets) == 0:
            return float("nan")
        return float(function(targets, predictions).statistic)

    return score


def _r2(targets: Array, predictions: Array) -> float:
    if len(targets) < 2 or not np.isfinite(predictions).all():
        return float("nan")
    return float(r2_score(targets, predictions))


_ALL = (
    Metric(
        name="accuracy",
        label="accuracy",
        task_types=(CLASSIFICATION,),
        score=class_scores.accuracy,
        baseline="majority-class baseline",
        aliases=("acc",),
    ),
    Metric(name="f1", label="F1", task_types=(CLASSIFICATION,), score=class_scores.f1, classes=2),
    Metric(name="f1_micro", label="micro F1", task_types=(MULTI_LABEL,), score=label_sets.f1_micro),
    Metric(name="f1_macro", label="macro F1", task_types=(CLASSIFICATION, MULTI_LABEL), score=_f1_macro),
    Metric(
        name="subset_accuracy", label="subset accuracy", task_types=(MULTI_LABEL,), score=label_sets.subset_accuracy
    ),
    Metric(
        name="matthews_correlation",
        label="Matthews correlation",
        task_types=(CLASSIFICATION,),
        score=class_scores.matthews,
        lowest=-1.0,
        constant=0.0,
        aliases=("mcc", "matthews", "matthews_corrcoef"),
    ),
    Metric(
        name="pearson",
        label="Pearson correlation",
        task_types=(REGRESSION,),
        score=_correlation(stats.pearsonr),
        baseline=MEAN_BASELINE,
        lowest=-1.0,
        constant=0.0,
        aliases=("pearsonr",),
    ),
    Metric(
        name="spearmanr",
        label="Spearman’s ρ",
        task_types=(REGRESSION,),
        score=_correlation(stats.spearmanr),
        baseline=MEAN_BASELINE,
        lowest=-1.0,
        constant=0.0,
        aliases=("spearman", "rho"),
    ),
    # A model that is worse than the mean can score below -1, but intervals end at -1.
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
    Metric(name="entity_f1", label="entity F1", task_types=(TOKENS,), score=tags.f1, entities=True),
    Metric(
        name="entity_precision", label="entity precision", task_types=(TOKENS,), score=tags.precision, entities=True
    ),
    Metric(name="entity_recall", label="entity recall", task_types=(TOKENS,), score=tags.recall, entities=True),
    Metric(
        name="token_accuracy",
        label="token accuracy",
        task_types=(TOKENS,),
        score=tags.accuracy,
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
_ALIASES = {alias: metric.name for metric in _ALL for alias in metric.aliases}


def canonical_name(name: str) -> str:
    """Our name of a metric, given any of its names. An unknown name is returned unchanged."""
    return _ALIASES.get(name.lower(), name)


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
    return tags.tag_tally(targets, predictions, labels) if task_type == TOKENS else (targets, predictions)


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


def is_constant(logits: Array, task_type: str) -> bool:
    """Whether the model predicts the same for every row of ``[n, C]``, or for every word of ``[n, W, C]``."""
    predictions = predict(logits, task_type)
    if task_type == REGRESSION:
        return bool(np.ptp(predictions) <= 1e-6 * max(1.0, float(np.abs(predictions).max())))
    if task_type == TOKENS:
        predictions = predictions[predictions >= 0]
    return bool((predictions == predictions[:1]).all())


def chance(targets: Array, name: str, classes: int, labels: Sequence[str] = ()) -> float:
    """The score of the best constant prediction for these targets. The ``labels`` matter for tags only."""
    metric = METRICS[name]
    if metric.constant is not None:
        return metric.constant
    constants = label_sets.constant_sets(targets) if targets.dtype == np.bool_ else range(classes)
    same = (np.broadcast_to(np.asarray(one, targets.dtype), targets.shape) for one in constants)
    return max(metric.score(*tally(targets, one, metric.task_types[0], labels)) for one in same)


def defined(score: float) -> float | None:
    """The score, or None if it is not finite."""
    return score if np.isfinite(score) else None
