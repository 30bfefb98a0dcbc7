"""Linear probes: ridge and logistic regression on frozen features. No torch here.

Features are standardised on the training rows. The penalty is chosen by its error on rows that the fit has not seen. Ridge
leaves out every single row, which has a closed form (PRESS: Allen 1974, Technometrics 16). Logistic
regression leaves out each of five folds. The predictions for left-out rows also tell how good the probe is, without
spending a row on it.
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
Targets = NDArray[np.int64] | Array
Indices = NDArray[np.int64]

STRENGTHS = tuple(float(x) for x in np.logspace(-4, 1, 11))  # of the penalty, per training row
FOLDS = 5
CHUNK = 16384  # rows that are converted to double precision at a time


@dataclass(frozen=True)
class Probe:
    """``values = (features - mean) / scale @ weights + bias``, with a column for each class, or one for a number.

    Attributes:
        weights: ``[D, C]``.
        bias: ``[C]``.
        mean: The mean of each feature on the training rows, ``[D]``.
        scale: The standard deviation of each feature, ``[D]``; 1 for a constant feature.
        strength: The penalty, per training row.
        sharpness: The inverse temperature: ``softmax(sharpness * values)`` are probabilities.
        left_out: The values of the training rows, ``[n, C]``, each by a fit that had not seen the row.
    """

    weights: Array
    bias: Array
    mean: Array
    scale: Array
    strength: float
    sharpness: float
    left_out: Array

    def values(self, features: Features) -> Array:
        """Values ``[n, C]`` of rows ``[n, D]``."""
        weights = self.weights / self.scale[:, None]
        bias = self.bias - self.mean @ weights
        return np.concatenate([part @ weights + bias for part in _chunks(features)])

    def probabilities(self, features: Features) -> Array:
        """Probabilities of the classes, ``[n, C]``."""
        probabilities: Array = special.softmax(self.sharpness * self.values(features), axis=1)
        return probabilities


Fit = Callable[[Features, Targets, int], Probe]


def ridge(features: Features, targets: Targets, classes: int) -> Probe:
    """Ridge regression on a number, or on -1 and 1 for each class.

    The same as scikit-learn's ``Ridge`` and ``RidgeClassifier`` on standardised features.

    Args:
        features: ``[n, D]``.
        targets: Class indices or numbers, ``[n]``.
        classes: The number of classes; 0 for a number.
    """
    y = targets.astype(float)[:, None] if not classes else np.where(targets[:, None] == np.arange(classes), 1.0, -1.0)
    mean, scale = _standardisation(features)
    offset = y.mean(0)
    solve = _primal if len(features) > features.shape[1] else _dual
    penalties = np.array(STRENGTHS) * len(features)
    left_out, weights = solve(features, mean, scale, y - offset, penalties)
    best = int(np.argmin([np.square(values + offset - y).mean() for values in left_out]))
    probe = Probe(weights(best), offset, mean, scale, STRENGTHS[best], 1.0, left_out[best] + offset)
    return _calibrated(probe, targets) if classes else probe


def logistic(features: Features, targets: Targets, classes: int) -> Probe:
    """L2 logistic regression, the same as scikit-learn's ``LogisticRegression``; for a number it is :func:`ridge`.

    Arguments as in :func:`ridge`.
    """
    if not classes:
        return ridge(features, targets, classes)
    mean, scale = _standardisation(features)
    x = (features - mean) / scale
    folds = _folds(x, targets)
    left_out = {strength: np.zeros((len(targets), classes)) for strength in STRENGTHS}
    for strength, values in left_out.items():
        for seen, unseen in folds:
            values[unseen] = _logistic_values((x[seen], targets[seen]), x[unseen], classes, strength)
    losses = {strength: _log_loss(values, targets) for strength, values in left_out.items()}
    best = min(losses, key=lambda strength: losses[strength])
    model, present = _fit_logistic(x, targets, best), np.unique(targets)
    weights, bias = np.zeros((x.shape[1], classes)), np.full(classes, -np.inf)
    bias[present] = 0.0
    if len(present) == 2:
        weights[:, present[1]], bias[present[1]] = model.coef_[0], model.intercept_[0]
    else:
        weights[:, present], bias[present] = model.coef_.T, model.intercept_
    return Probe(weights, bias, mean, scale, best, 1.0, left_out[best])


FITS: Mapping[str, Fit] = {"ridge": ridge, "logistic": logistic}


def _standardisation(features: Features) -> tuple[Array, Array]:
    """Mean and standard deviation of each feature; 1 for a constant feature."""
    count = len(features)
    mean = sum(part.sum(0) for part in _chunks(features)) / count
    variance = sum(np.square(part - mean).sum(0) for part in _chunks(features)) / count
    scale = np.sqrt(variance)
    scale[scale <= 1e-12 * np.maximum(1.0, np.abs(mean))] = 1.0
    return mean, scale


def _chunks(features: Features) -> list[Array]:
    return [features[n : n + CHUNK].astype(float) for n in range(0, len(features), CHUNK)]


# For each strength the values of left-out rows, [n, C]; and a function that gives the weights of one of them, [D, C].
Solution = tuple[list[Array], Callable[[int], Array]]


def _primal(features: Features, mean: Array, scale: Array, y: Array, penalties: Array) -> Solution:
    """Solve ridge with more rows than features, by the eigenvectors of ``X'X``, for all penalties at once."""
    width, count = features.shape[1], len(features)
    gram, moments = np.zeros((width, width)), np.zeros((width, y.shape[1]))
    chunks = [slice(n, n + CHUNK) for n in range(0, count, CHUNK)]

    def standardised(chunk: slice) -> Array:
        x = features[chunk].astype(float)
        x -= mean
        x /= scale
        return x

    for chunk in chunks:
        x = standardised(chunk)
        gram += x.T @ x
        moments += x.T @ y[chunk]
    eigenvalues, vectors = linalg.eigh(gram, overwrite_a=True, check_finite=False)
    projected = vectors.T @ moments  # [D, C]
    inverse = 1.0 / (np.maximum(eigenvalues, 0.0)[:, None] + penalties)  # [D, strengths]
    weights = inverse[:, :, None] * projected[:, None]  # [D, strengths, C], in the basis of the eigenvectors
    left_out = np.empty((count, *weights.shape[1:]))
    for chunk in chunks:
        rotated = standardised(chunk) @ vectors
        fitted = np.tensordot(rotated, weights, 1)
        leverage = np.square(rotated, out=rotated) @ inverse + 1.0 / count  # [rows, strengths]
        left_out[chunk] = y[chunk, None] - (y[chunk, None] - fitted) / (1.0 - leverage)[:, :, None]
    return list(left_out.swapaxes(0, 1)), lambda n: vectors @ weights[:, n]


def _dual(features: Features, mean: Array, scale: Array, y: Array, penalties: Array) -> Solution:
    """Solve ridge with fewer rows than features, by the eigenvectors of ``XX'``."""
    x = (features.astype(float) - mean) / scale
    eigenvalues, vectors = linalg.eigh(x @ x.T, overwrite_a=True, check_finite=False)
    eigenvalues, projected = np.maximum(eigenvalues, 0.0), vectors.T @ y
    left_out = []
    for penalty in penalties:
        shrinkage = (eigenvalues / (eigenvalues + penalty))[:, None]
        leverage = np.square(vectors) @ shrinkage + 1.0 / len(x)
        fitted = vectors @ (shrinkage * projected)
        left_out.append(y - (y - fitted) / (1.0 - leverage))
    return left_out, lambda n: x.T @ (vectors @ (projected / (eigenvalues + penalties[n])[:, None]))


def _folds(x: Array, targets: Targets) -> list[tuple[Indices, Indices]]:
    """Rows to fit on and rows to leave out; stratified by class unless a class has too few rows."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    if np.bincount(targets)[np.unique(targets)].min() < FOLDS:
        folds = KFold(min(FOLDS, len(targets)), shuffle=True, random_state=0)
    return list(folds.split(x, targets))


def _fit_logistic(x: Array, targets: Targets, strength: float) -> LogisticRegression:
    return LogisticRegression(C=1.0 / (strength * len(x)), max_iter=10_000).fit(x, targets)


def _logistic_values(seen: tuple[Array, Targets], unseen: Array, classes: int, strength: float) -> Array:
    """Logits ``[n, C]`` of unseen rows by a fit to the seen ones; -inf for a class that the fit has not seen."""
    values = np.full((len(unseen), classes), -np.inf)
    present = np.unique(seen[1])
    if len(present) == 1:
        values[:, present] = 0.0
        return values
    decision = _fit_logistic(*seen, strength).decision_function(unseen)
    values[:, present] = np.stack([np.zeros_like(decision), decision], 1) if decision.ndim == 1 else decision
    return values


def _log_loss(values: Array, targets: Targets) -> float:
    chosen = special.log_softmax(values, axis=1)[np.arange(len(values)), targets.astype(np.int64)]
    return float(-np.maximum(chosen, -50.0).mean())  # a class that a fit has not seen costs 50, not infinity


def _calibrated(probe: Probe, targets: Targets) -> Probe:
    """With the sharpness that makes the classes of left-out rows most likely (temperature scaling, Guo et al. 2017)."""
    found = optimize.minimize_scalar(
        lambda log: _log_loss(np.exp(log) * probe.left_out, targets), bounds=(-5.0, 5.0), method="bounded"
    )
    return replace(probe, sharpness=float(np.exp(found.x)))
