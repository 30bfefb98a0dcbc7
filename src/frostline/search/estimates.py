"""Cheap estimates of the k to begin a search with.

They decide which k a race trains first, never which k is recommended. The report shows how close each estimate was. Imports no
torch.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.metrics import METRICS

Array = NDArray[np.float64]

STEPS = 100  # the most fixed-point iterations
TOLERANCE = 1e-3  # the relative change at which the iteration has converged


def by_layer(scores: Mapping[int, float], error: float) -> int | None:
    """Estimate k from the score of each layer's features.

    The estimate is the number of layers above the lowest layer whose score is within one standard ``error`` of the best score.
    It is None if no score is finite.
    """
    known = {layer: score for layer, score in scores.items() if np.isfinite(score)}
    if not known:
        return None
    best = max(known.values())
    return max(scores) - min(layer for layer, score in known.items() if score >= best - error)


def logme(features: NDArray[np.float32], targets: NDArray[Any], classes: int) -> float:
    """LogME (You et al. 2021): the maximum log evidence per example of a Bayesian linear model, averaged over classes.

    Args:
        features: ``[N, D]``.
        targets: ``[N]``, class indices, or real numbers if ``classes`` is 0; or label sets ``[N, C]``.
        classes: The number of classes; 0 for regression.
    """
    wanted = targets if targets.dtype == np.bool_ else np.equal.outer(targets, np.arange(classes))
    one_hot = wanted.astype(float) if classes else targets.astype(float)[:, None]
    left, sizes, _ = np.linalg.svd(features.astype(float), full_matrices=False)
    spectrum, along = sizes**2, np.square(left.T @ one_hot)  # [r], [r, C]
    outside = np.maximum(np.square(one_hot).sum(0) - along.sum(0), 0.0)
    return float(
        np.mean([_evidence(spectrum, along[:, n], outside[n], *features.shape) for n in range(one_hot.shape[1])])
    )


def _evidence(spectrum: Array, along: Array, outside: float, rows: int, width: int) -> float:
    """The log evidence per example of one target.

    A fixed-point iteration finds the precisions of weights and noise that maximize it.
    """
    weights, noise = 1.0, 1.0
    for _ in range(STEPS):
        shrunk = weights / noise + spectrum
        effective = float((spectrum / shrunk).sum())
        length = float((spectrum * along / shrunk**2).sum())
        residual = float((along * (weights / noise / shrunk) ** 2).sum()) + outside
        before = weights / noise
        weights = effective / max(length, 1e-12)
        noise = max(rows - effective, 1e-12) / max(residual, 1e-12)
        if abs(weights / noise - before) <= TOLERANCE * before:
            break
    shrunk = weights + noise * spectrum
    length = float((noise**2 * spectrum * along / shrunk**2).sum())
    residual = float((along * (weights / shrunk) ** 2).sum()) + outside
    determinant = float(np.log(shrunk).sum()) + (width - len(spectrum)) * np.log(weights)
    total = width * np.log(weights) + rows * np.log(noise) - rows * np.log(2 * np.pi)
    return float(total - noise * residual - weights * length - determinant) / 2 / rows


def by_probes(facts: Mapping[str, Any]) -> int | None:
    """Estimate k from the probes of single layers, by their scores on held-out training examples.

    Args:
        facts: The facts of fitted probes, as in ``probes.json``.
    """
    scores: dict[int, float] = {}
    for probe in facts["probes"]:
        if len(probe["layers"]) == 1 and probe["held_out"] is not None:
            scores[probe["layers"][0]] = max(scores.get(probe["layers"][0], -math.inf), probe["held_out"])
    best = max(scores.values(), default=0.0)
    spread = 1 - best**2 if METRICS[facts["metric"]].lowest < 0 else math.sqrt(max(best * (1 - best), 0.0))
    return by_layer(scores, spread / math.sqrt(facts["train_rows"]))
