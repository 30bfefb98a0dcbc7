"""Scores under Hugging Face's names, computed by scikit-learn and scipy; and what guessing would reach.

Every metric here is better when higher. A score that is not defined (the correlation of a constant) is NaN.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics as sk

from frostline import FrostlineError

Array = NDArray[Any]
Metric = Callable[[Array, Array], float]  # (targets, predictions)


def defined(score: float) -> float | None:
    """None for what is not defined, as a correlation with what is the same for all."""
    return score if np.isfinite(score) else None


def _f1(targets: Array, predictions: Array) -> float:
    """F1 of the class with index 1, as in GLUE."""
    return float(sk.f1_score(targets, predictions, labels=[1], average="macro", zero_division=0.0))


def _f1_macro(targets: Array, predictions: Array) -> float:
    return float(sk.f1_score(targets, predictions, average="macro", zero_division=0.0))


def _correlation(function: Callable[[Array, Array], Any]) -> Metric:
    def score(targets: Array, predictions: Array) -> float:
        if len(targets) < 2 or not np.isfinite(predictions).all() or np.ptp(predictions) == 0 or np.ptp(targets) == 0:
            return float("nan")
        return float(function(targets, predictions).statistic)

    return score


def _r2(targets: Array, predictions: Array) -> float:
    if len(targets) < 2 or not np.isfinite(predictions).all():
        return float("nan")
    return float(sk.r2_score(targets, predictions))


CLASSIFICATION: Mapping[str, Metric] = {
    "accuracy": lambda targets, predictions: float(sk.accuracy_score(targets, predictions)),
    "f1": _f1,
    "f1_macro": _f1_macro,
    "matthews_correlation": lambda targets, predictions: float(sk.matthews_corrcoef(targets, predictions)),
}
REGRESSION: Mapping[str, Metric] = {
    "pearson": _correlation(stats.pearsonr),
    "spearmanr": _correlation(stats.spearmanr),
    "r2": _r2,
}
WITH_SIGN = ("matthews_correlation", *REGRESSION)  # from -1 (r2 goes lower, where a model is worse than any guess) to 1
DEFAULT = {"single_label_classification": "accuracy", "regression": "spearmanr"}


def metrics_for(problem_type: str, classes: int) -> Mapping[str, Metric]:
    """The metrics that suit a task; ``f1`` is of two classes."""
    if problem_type == "regression":
        return REGRESSION
    return {name: metric for name, metric in CLASSIFICATION.items() if name != "f1" or classes == 2}


def check_metric(name: str | None, problem_type: str, classes: int) -> str:
    """The metric's name, or the default for the task.

    Raises:
        FrostlineError: no such metric for this task; the message lists those there are.
    """
    known = metrics_for(problem_type, classes)
    if name is None:
        return DEFAULT[problem_type]
    if name not in known:
        raise FrostlineError(f"There is no metric {name!r} for this task: choose one of {', '.join(known)}.")
    return name


def predict(logits: Array, problem_type: str) -> Array:
    """Class indices ``[n]`` from logits ``[n, C]``; for regression the numbers themselves, ``[n, 1]`` -> ``[n]``."""
    return logits[:, 0] if problem_type == "regression" else logits.argmax(1)


def score(targets: Array, logits: Array, problem_type: str) -> dict[str, float]:
    """All metrics that suit the task; NaN where a logit is none."""
    if np.isnan(logits).any():
        return dict.fromkeys(metrics_for(problem_type, logits.shape[1]), float("nan"))
    predictions = predict(logits, problem_type)
    with warnings.catch_warnings():
        # scikit-learn warns of classes that were never predicted, which is what a score of 0 says already.
        warnings.simplefilter("ignore", UserWarning)
        return {
            name: metric(targets, predictions) for name, metric in metrics_for(problem_type, logits.shape[1]).items()
        }


def is_constant(logits: Array, problem_type: str) -> bool:
    """Whether the model says the same of every row."""
    predictions = predict(logits, problem_type)
    if problem_type == "regression":
        return bool(np.ptp(predictions) <= 1e-6 * max(1.0, float(np.abs(predictions).max())))
    return bool((predictions == predictions[0]).all())


def is_known(name: str) -> bool:
    """Whether this is one of our metrics, with their ends."""
    return name in CLASSIFICATION or name in REGRESSION


def lowest(name: str) -> float:
    """The least that a metric can be; the most is 1 for all of them."""
    return -1.0 if name in WITH_SIGN else 0.0


def chance(targets: Array, name: str, classes: int) -> float:
    """What the best constant prediction scores on these targets; 0 for correlations and r2."""
    if name in REGRESSION:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return max(CLASSIFICATION[name](targets, np.full_like(targets, c)) for c in range(classes))
