"""Linear probes: what a ridge or logistic regression reads off frozen features. No torch here.

Features are standardised on the training rows. A probe's strength (of its penalty) is the one whose mistakes on rows that
the fit has not seen are smallest: for ridge every single row is left out, which has a closed form (Allen's PRESS), for
logistic regression each of five folds. The values of those left-out fits are kept: they say how good the probe is without
a row being spent on it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, special
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold

Array = NDArray[np.float64]
Features = NDArray[np.float32]

STRENGTHS = tuple(float(x) for x in np.logspace(-4, 1, 11))  # of the penalty, for each training row
FOLDS = 5
CHUNK = 16384  # rows that are taken to double precision at a time


@dataclass(frozen=True)
class Probe:
    """``values = (features - mean) / scale @ weights + bias``: a column for each class, or one for a number."""

    weights: Array  # [D, C]
    bias: Array  # [C]
    mean: Array  # [D]
    scale: Array  # [D]
    strength: float  # of the penalty, for each training row
    sharpness: float  # softmax of so many times the values gives probabilities
    unseen: Array  # [n, C], values of the training rows by fits that had not seen them

    def values(self, features: Features) -> Array:
        """Of rows ``[n, D]``: ``[n, C]``."""
        weights = self.weights / self.scale[:, None]
        bias = self.bias - self.mean @ weights
        return np.concatenate([part @ weights + bias for part in _chunks(features)])

    def probabilities(self, features: Features) -> Array:
        """``[n, C]``, of classes."""
        shares: Array = special.softmax(self.sharpness * self.values(features), axis=1)
        return shares


Fit = Callable[[Features, NDArray[np.int64] | Array, int], Probe]


def ridge(features: Features, targets: NDArray[np.int64] | Array, classes: int) -> Probe:
    """Ridge regression on a number, or on -1 and 1 for each class (scikit-learn's ``Ridge`` and ``RidgeClassifier``)."""
    wanted = (
        targets.astype(float)[:, None] if not classes else np.where(targets[:, None] == np.arange(classes), 1.0, -1.0)
    )
    mean, scale = _standard(features)
    middle = wanted.mean(0)
    solve = _primal if len(features) > features.shape[1] else _dual
    penalties = np.array(STRENGTHS) * len(features)
    unseen, weights = solve(features, mean, scale, wanted - middle, penalties)
    best = int(np.argmin([np.square(one + middle - wanted).mean() for one in unseen]))
    probe = Probe(weights(best), middle, mean, scale, STRENGTHS[best], 1.0, unseen[best] + middle)
    return _sharpened(probe, targets) if classes else probe


def logistic(features: Features, targets: NDArray[np.int64] | Array, classes: int) -> Probe:
    """L2 logistic regression (scikit-learn's ``LogisticRegression``); for a number there is :func:`ridge` alone."""
    if not classes:
        return ridge(features, targets, classes)
    mean, scale = _standard(features)
    standard = (features - mean) / scale
    present = np.unique(targets)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    if np.bincount(targets)[present].min() < FOLDS:
        folds = KFold(min(FOLDS, len(targets)), shuffle=True, random_state=0)
    parts = list(folds.split(standard, targets))
    trials = {strength: np.zeros((len(targets), classes)) for strength in STRENGTHS}
    for strength, unseen in trials.items():
        for fit, left_out in parts:
            seen = standard[fit], targets[fit]
            unseen[left_out] = _logistic_values(seen, standard[left_out], classes, strength)
    losses = {strength: _log_loss(values, targets) for strength, values in trials.items()}
    best = min(losses, key=lambda strength: losses[strength])
    model = _logistic(standard, targets, best)
    weights, bias = np.zeros((standard.shape[1], classes)), np.full(classes, -np.inf)
    bias[present] = 0.0
    if len(present) == 2:
        weights[:, present[1]], bias[present[1]] = model.coef_[0], model.intercept_[0]
    else:
        weights[:, present], bias[present] = model.coef_.T, model.intercept_
    return Probe(weights, bias, mean, scale, best, 1.0, trials[best])


FITS: Mapping[str, Fit] = {"ridge": ridge, "logistic": logistic}


def _standard(features: Features) -> tuple[Array, Array]:
    """Mean and standard deviation of each feature; 1 for what is constant."""
    count = len(features)
    mean = sum(part.sum(0) for part in _chunks(features)) / count
    variance = sum(np.square(part - mean).sum(0) for part in _chunks(features)) / count
    scale = np.sqrt(variance)
    scale[scale <= 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0
    return mean, scale


def _chunks(features: Features) -> list[Array]:
    return [features[n : n + CHUNK].astype(float) for n in range(0, len(features), CHUNK)]


Solution = tuple[
    list[Array], Callable[[int], Array]
]  # values of left-out rows [n, C] by strength; weights of one of them


def _primal(features: Features, mean: Array, scale: Array, wanted: Array, penalties: Array) -> Solution:
    """With more rows than features: through the eigenvectors of the features' products."""
    width, count = features.shape[1], len(features)
    products, moments = np.zeros((width, width)), np.zeros((width, wanted.shape[1]))
    parts = [slice(n, n + CHUNK) for n in range(0, count, CHUNK)]

    def standard(part: slice) -> Array:
        x = features[part].astype(float)
        x -= mean
        x /= scale
        return x

    for part in parts:
        x = standard(part)
        products += x.T @ x
        moments += x.T @ wanted[part]
    sizes, vectors = linalg.eigh(products, overwrite_a=True, check_finite=False)
    along = vectors.T @ moments  # [D, C]
    shrunk = 1.0 / (np.maximum(sizes, 0.0)[:, None] + penalties)  # [D, strengths]
    weights = shrunk[:, :, None] * along[:, None]  # [D, strengths, C], along the eigenvectors
    unseen = np.empty((count, *weights.shape[1:]))
    for part in parts:
        turned = standard(part) @ vectors
        fitted = np.tensordot(turned, weights, 1)
        leverage = np.square(turned, out=turned) @ shrunk + 1.0 / count  # [rows, strengths]
        unseen[part] = wanted[part, None] - (wanted[part, None] - fitted) / (1.0 - leverage)[:, :, None]
    return list(unseen.swapaxes(0, 1)), lambda n: vectors @ weights[:, n]


def _dual(features: Features, mean: Array, scale: Array, wanted: Array, penalties: Array) -> Solution:
    """With fewer: through those of the rows' products."""
    x = (features.astype(float) - mean) / scale
    sizes, vectors = linalg.eigh(x @ x.T, overwrite_a=True, check_finite=False)
    sizes, along = np.maximum(sizes, 0.0), vectors.T @ wanted
    unseen = []
    for penalty in penalties:
        kept = (sizes / (sizes + penalty))[:, None]
        leverage = np.square(vectors) @ kept + 1.0 / len(x)
        fitted = vectors @ (kept * along)
        unseen.append(wanted - (wanted - fitted) / (1.0 - leverage))
    return unseen, lambda n: x.T @ (vectors @ (along / (sizes + penalties[n])[:, None]))


def _logistic(standard: Array, targets: NDArray[np.int64] | Array, strength: float) -> LogisticRegression:
    return LogisticRegression(C=1.0 / (strength * len(standard)), max_iter=10_000).fit(standard, targets)


def _logistic_values(
    fit: tuple[Array, NDArray[np.int64] | Array], standard: Array, classes: int, strength: float
) -> Array:
    """``[n, C]`` by a fit to other rows, as logits of a softmax; a class that was not there is out of the question."""
    values = np.full((len(standard), classes), -np.inf)
    present = np.unique(fit[1])
    if len(present) == 1:
        values[:, present] = 0.0
        return values
    decision = _logistic(*fit, strength).decision_function(standard)
    values[:, present] = np.stack([np.zeros_like(decision), decision], 1) if decision.ndim == 1 else decision
    return values


def _log_loss(values: Array, targets: NDArray[np.int64] | Array) -> float:
    chosen = special.log_softmax(values, axis=1)[np.arange(len(values)), targets.astype(np.int64)]
    return float(-np.maximum(chosen, -50.0).mean())


def _sharpened(probe: Probe, targets: NDArray[np.int64] | Array) -> Probe:
    """With the sharpness that makes the probabilities of unseen rows most likely."""
    found = optimize.minimize_scalar(
        lambda log: _log_loss(np.exp(log) * probe.unseen, targets), bounds=(-5.0, 5.0), method="bounded"
    )
    return replace(probe, sharpness=float(np.exp(found.x)))
