"""The metrics, one entry each in ``METRICS``. To add a metric, add an entry.

Names are those of Hugging Face; scores come from scikit-learn and scipy. Higher is better for every metric, and 1 is the maximum.
An undefined score, such as the correlation with a constant, is NaN.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics as sk

from frostline import FrostlineError
from frostline.data.specification import CLASSIFICATION, REGRESSION

Array = NDArray[Any]
Score = Callable[[Array, Array], float]  # targets [n], predictions [n]
CONSTANT_BASELINE, MEAN_BASELINE = "constant baseline", "mean baseline"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric.

    Attributes:
        name: Its name in options and files.
        label: Its name in sentences, tables and figures.
        task_type: ``CLASSIFICATION`` or ``REGRESSION``.
        score: The score of predictions ``[n]`` (class indices or numbers) for targets ``[n]``.
        baseline: The name of the best constant prediction, which gains are measured from.
        lowest: The lowest score, at which intervals end.
        bounded: Whether no model can score less than ``lowest``.
        constant: The score of every constant prediction; None if it depends on the targets.
        classes: The only number of classes it is defined for; None: any.
        aliases: Other names in tables of results, in lower case.
    """

    name: str
    label: str
    task_type: str
    score: Score
    baseline: str = CONSTANT_BASELINE
    lowest: float = 0.0
    bounded: bool = True
    constant: float | None = None
    classes: int | None = None
    aliases: tuple[str, ...] = ()


def _accuracy(targets: Array, predictions: Array) -> float:
    return float(sk.accuracy_score(targets, predictions))


def _f1(targets: Array, predictions: Array) -> float:
    """F1 of the class with index 1, as in GLUE."""
    return float(sk.f1_score(targets, predictions, labels=[1], average="macro", zero_division=0.0))


def _f1_macro(targets: Array, predictions: Array) -> float:
    return float(sk.f1_score(targets, predictions, average="macro", zero_division=0.0))


def _matthews(targets: Array, predictions: Array) -> float:
    return float(sk.matthews_corrcoef(targets, predictions))


def _correlation(function: Callable[[Array, Array], Any]) -> Score:
    def score(targets: Array, predictions: Array) -> float:
        if len(targets) < 2 or not np.isfinite(predictions).all() or np.ptp(predictions) == 0 or np.ptp(targets) == 0:
            return float("nan")
        return float(function(targets, predictions).statistic)

    return score


def _r2(targets: Array, predictions: Array) -> float:
    if len(targets) < 2 or not np.isfinite(predictions).all():
        return float("nan")
    return float(sk.r2_score(targets, predictions))


_ALL = (
    Metric(
        name="accuracy",
        label="accuracy",
        task_type=CLASSIFICATION,
        score=_accuracy,
        baseline="majority-class baseline",
        aliases=("acc",),
    ),
    Metric(name="f1", label="F1", task_type=CLASSIFICATION, score=_f1, classes=2),
    Metric(name="f1_macro", label="macro F1", task_type=CLASSIFICATION, score=_f1_macro),
    Metric(
        name="matthews_correlation",
        label="Matthews correlation",
        task_type=CLASSIFICATION,
        score=_matthews,
        lowest=-1.0,
        constant=0.0,
        aliases=("mcc", "matthews", "matthews_corrcoef"),
    ),
    Metric(
        name="pearson",
        label="Pearson correlation",
        task_type=REGRESSION,
        score=_correlation(stats.pearsonr),
        baseline=MEAN_BASELINE,
        lowest=-1.0,
        constant=0.0,
        aliases=("pearsonr",),
    ),
    Metric(
        name="spearmanr",
        label="Spearman’s ρ",
        task_type=REGRESSION,
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
        task_type=REGRESSION,
        score=_r2,
        baseline=MEAN_BASELINE,
        lowest=-1.0,
        bounded=False,
        constant=0.0,
    ),
)
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
DEFAULT = {CLASSIFICATION: "accuracy", REGRESSION: "spearmanr"}  # by task type
_ALIASES = {alias: metric.name for metric in _ALL for alias in metric.aliases}


def canonical_name(name: str) -> str:
    """Our name of a metric, given any of its names. An unknown name is returned unchanged."""
    return _ALIASES.get(name.lower(), name)


def metrics_for(task_type: str, classes: int) -> list[Metric]:
    """The metrics that are defined for a task with this number of classes."""
    return [m for m in _ALL if m.task_type == task_type and m.classes in (None, classes)]


def check_metric(name: str | None, task_type: str, classes: int) -> str:
    """The metric's name, or the default of the task type if it is None.

    Raises:
        FrostlineError: The metric is not defined for the task; the message lists those that are.
    """
    known = [metric.name for metric in metrics_for(task_type, classes)]
    if name is None:
        return DEFAULT[task_type]
    if name not in known:
        raise FrostlineError(f"There is no metric {name!r} for this task: choose one of {', '.join(known)}.")
    return name


def predict(logits: Array, task_type: str) -> Array:
    """Predictions ``[n]`` from logits ``[n, C]``: class indices, or for regression the numbers themselves (C = 1)."""
    return logits[:, 0] if task_type == REGRESSION else logits.argmax(1)


def score(targets: Array, logits: Array, task_type: str) -> dict[str, float]:
    """The scores in all metrics of the task, for targets ``[n]`` and logits ``[n, C]``. They are NaN if a logit is NaN."""
    suitable = metrics_for(task_type, logits.shape[1])
    if np.isnan(logits).any():
        return {metric.name: float("nan") for metric in suitable}
    predictions = predict(logits, task_type)
    with warnings.catch_warnings():
        # scikit-learn warns about classes that are never predicted; the score already shows that
        warnings.simplefilter("ignore", UserWarning)
        return {metric.name: metric.score(targets, predictions) for metric in suitable}


def is_constant(logits: Array, task_type: str) -> bool:
    """Whether the model predicts the same for every row of ``[n, C]``."""
    predictions = predict(logits, task_type)
    if task_type == REGRESSION:
        return bool(np.ptp(predictions) <= 1e-6 * max(1.0, float(np.abs(predictions).max())))
    return bool((predictions == predictions[0]).all())


def chance(targets: Array, name: str, classes: int) -> float:
    """The score of the best constant prediction for these targets."""
    metric = METRICS[name]
    if metric.constant is not None:
        return metric.constant
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return max(metric.score(targets, np.full_like(targets, c)) for c in range(classes))


def defined(score: float) -> float | None:
    """The score, or None if it is not finite."""
    return score if np.isfinite(score) else None
