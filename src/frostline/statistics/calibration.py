"""Calibration of a classifier's probabilities: the expected calibration error, and temperature scaling.

Targets are class indices ``[n]``. If a text can have any number of labels (bool ``[n, C]``), each pair of a text and a label is
an example with two classes, no and yes. Of tags (``[n, W]``, with logits ``[n, W, C]``), each word is an example.

Source: Guo, Pleiss, Sun and Weinberger 2017, On Calibration of Modern Neural Networks (arXiv:1706.04599).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from frostline.statistics.answer import Bin, CalibrationError

Array = NDArray[np.float64]
Targets = NDArray[np.int64]

MOST_BINS, BIN_EXAMPLES = 15, 20  # Guo et al. use 15 bins; a bin has at least so many examples, if there are enough
FOLDS = 5  # of the cross-fitting
DRAWS = 1000  # simulated outcomes of calibrated probabilities
LOG_LIMIT = 5.0  # a temperature is between exp(-5) and exp(5)


def probabilities(logits: NDArray[Any], temperature: float = 1.0) -> Array:
    """``softmax(logits / temperature)`` of rows ``[n, C]``."""
    found: Array = special.softmax(logits.astype(np.float64) / temperature, axis=1)
    return found


def class_examples(logits: NDArray[Any], targets: NDArray[Any]) -> tuple[NDArray[Any], Targets]:
    """Logits ``[m, K]`` and class indices ``[m]`` of pairs of a text and a label, of words, or of texts with one class."""
    if targets.dtype == np.bool_:
        yes = logits.reshape(-1)
        return np.stack([np.zeros_like(yes), yes], 1), targets.reshape(-1).astype(np.int64)
    if targets.ndim > 1:
        known = (targets >= 0) & ~np.isnan(logits).any(-1)  # [n, W]; some words were cut off
        return logits[known], targets[known]
    return logits, targets.astype(np.int64)


def log_loss(logits: NDArray[Any], targets: NDArray[Any], temperature: float = 1.0) -> float:
    """The mean negative log-likelihood of class indices ``[n]``, given logits ``[n, C]``.

    The loss of an example is at most 50, so that a class with a logit of minus infinity does not make it infinite.
    """
    logits, targets = class_examples(logits, targets)
    logs = special.log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return float(-np.maximum(logs[np.arange(len(targets)), targets], -50.0).mean())


def best_temperature(logits: NDArray[Any], targets: NDArray[Any]) -> float:
    """The temperature with the lowest log loss, from exp(-5) to exp(5). The loss has a single minimum.

    If every example is classified correctly, there is no minimum: the lower the temperature, the better.
    """
    found = optimize.minimize_scalar(
        lambda log: log_loss(logits, targets, float(np.exp(log))), bounds=(-LOG_LIMIT, LOG_LIMIT), method="bounded"
    )
    return float(np.exp(found.x))


def fit_temperature(logits: NDArray[Any], targets: NDArray[Any]) -> float:
    """The temperature with the lowest log loss; 1 if no example is misclassified, because then nothing limits it."""
    logits, targets = class_examples(logits, targets)
    if not (logits.argmax(1) != targets).any():
        return 1.0
    return min(1.0, best_temperature(logits, targets), key=lambda t: log_loss(logits, targets, t))


def folds_of(rows: int, rng: np.random.Generator) -> list[tuple[Targets, Targets]]:
    """Random folds for cross-fitting: the rows to fit on and the held-out rows of each fold. Each row is held out once."""
    held_out = np.array_split(rng.permutation(rows), min(FOLDS, rows))
    return [(np.setdiff1d(np.arange(rows), fold), np.sort(fold)) for fold in held_out]


def cross_fitted(logits: NDArray[Any], targets: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """The logits ``[n, C]``, each row divided by a temperature that was fitted without this row's fold."""
    scaled = logits.astype(np.float64)
    for rest, fold in folds_of(len(targets), rng):
        scaled[fold] /= fit_temperature(logits[rest], targets[rest])
    return scaled


def calibration(logits: NDArray[Any], targets: NDArray[Any], rng: np.random.Generator) -> CalibrationError:
    """How well the probabilities of the predicted classes agree with their accuracy.

    Args:
        logits: ``[n, C]``, with n at least 1.
        targets: Class indices, label sets or tags.
        rng: Draws the outcomes of ``by_chance``.

    Returns:
        ``error``: the expected calibration error (Guo et al. 2017, equation 3), in bins with equally many examples, which bias it
        less than bins of equal width (Roelofs et al. 2022, arXiv:2012.08668); ``by_chance`` and ``by_chance_high``: its mean
        and its 95 % quantile if the probabilities were exactly right; ``log_loss``; and the ``bins``, each with its mean
        ``confidence``, its ``accuracy`` and its number of ``examples``.
    """
    logits, targets = class_examples(logits, targets)
    found = probabilities(logits)
    confidence, right = found.max(1), found.argmax(1) == targets
    bins = _bins(confidence)
    simulated = np.zeros(DRAWS)
    for rows in bins:
        hits = (rng.random((DRAWS, len(rows))) < confidence[rows]).mean(1)
        simulated += len(rows) / len(targets) * np.abs(hits - confidence[rows].mean())
    return CalibrationError(
        error=calibration_error(confidence, right),
        by_chance=float(simulated.mean()),
        by_chance_high=float(np.quantile(simulated, 0.95)),
        log_loss=log_loss(logits, targets),
        bins=[
            Bin(confidence=float(confidence[rows].mean()), accuracy=float(right[rows].mean()), examples=len(rows))
            for rows in bins
        ],
    )


def calibration_error(confidence: Array, right: NDArray[np.bool_]) -> float:
    """The mean distance of confidence and accuracy over the bins, weighted by their examples; both are ``[n]``."""
    gaps = [len(rows) * abs(confidence[rows].mean() - right[rows].mean()) for rows in _bins(confidence)]
    return float(sum(gaps) / len(confidence))


def _bins(confidence: Array) -> list[Targets]:
    """The rows of each bin, by rising confidence. Examples with the same confidence are in one bin."""
    count = max(1, min(MOST_BINS, len(confidence) // BIN_EXAMPLES))
    starts = [part[0] for part in np.array_split(np.sort(confidence), count)[1:]]
    places = np.searchsorted(np.unique(starts), confidence, side="right")
    return [np.flatnonzero(places == place) for place in np.unique(places)]
