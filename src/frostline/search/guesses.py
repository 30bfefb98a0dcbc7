"""Which k is likely to be enough, from numbers that cost next to nothing. They say where a race begins, never what it names;
how near each came is reported when the race is over. No torch here."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.metrics import METRICS

Array = NDArray[np.float64]

STEPS = 100  # of the fixed point that finds the evidence, at most
SETTLED = 1e-3  # it moves by no more than this part


def by_layer(scores: Mapping[int, float], error: float) -> int | None:
    """So many last layers lie after the lowest one whose features are as good as any: within one standard ``error`` of the
    best of the ``scores`` by layer. None where nothing is known."""
    known = {layer: score for layer, score in scores.items() if np.isfinite(score)}
    if not known:
        return None
    best = max(known.values())
    return max(scores) - min(layer for layer, score in known.items() if score >= best - error)


def order(k: int, ks: Iterable[int]) -> list[int]:
    """All k, those nearest to the guessed one first; of two as near the smaller."""
    return sorted(ks, key=lambda one: (abs(one - k), one))


def judged(guesses: Mapping[str, int | None], ks: Sequence[int], named: int | None) -> list[dict[str, Any]]:
    """For each guess its k, and the place of the k that was ``named`` in the order that it gives; None where no number of
    layers was named. Climbing from the head up is there to compare with."""
    rows: list[dict[str, Any]] = []
    for name, k in {**guesses, "climbing": 0}.items() if guesses else ():
        if k is not None:
            place = None if named is None else order(k, ks).index(named) + 1
            rows.append({"by": name, "k": k, "place": place})
    return rows


def logme(features: NDArray[np.float32], targets: NDArray[Any], classes: int) -> float:
    """The largest mean log evidence of a Bayesian linear model of the targets (You et al. 2021, "LogME"): features
    ``[n, D]``, targets ``[n]``, class indices or, with 0 ``classes``, numbers."""
    wanted = (
        targets.astype(float)[:, None] if not classes else np.equal.outer(targets, np.arange(classes)).astype(float)
    )
    left, sizes, _ = np.linalg.svd(features.astype(float), full_matrices=False)
    spectrum, along = sizes**2, np.square(left.T @ wanted)  # [r], [r, C]
    outside = np.maximum(np.square(wanted).sum(0) - along.sum(0), 0.0)
    return float(
        np.mean([_evidence(spectrum, along[:, n], outside[n], *features.shape) for n in range(wanted.shape[1])])
    )


def _evidence(spectrum: Array, along: Array, outside: float, rows: int, width: int) -> float:
    """Mean log evidence of one target at its best precisions of weights and noise, found as a fixed point."""
    weights, noise = 1.0, 1.0
    for _ in range(STEPS):
        shrunk = weights / noise + spectrum
        effective = float((spectrum / shrunk).sum())
        length = float((spectrum * along / shrunk**2).sum())
        residual = float((along * (weights / noise / shrunk) ** 2).sum()) + outside
        before = weights / noise
        weights = effective / max(length, 1e-12)
        noise = max(rows - effective, 1e-12) / max(residual, 1e-12)
        if abs(weights / noise - before) <= SETTLED * before:
            break
    shrunk = weights + noise * spectrum
    length = float((noise**2 * spectrum * along / shrunk**2).sum())
    residual = float((along * (weights / shrunk) ** 2).sum()) + outside
    determinant = float(np.log(shrunk).sum()) + (width - len(spectrum)) * np.log(weights)
    total = width * np.log(weights) + rows * np.log(noise) - rows * np.log(2 * np.pi)
    return float(total - noise * residual - weights * length - determinant) / 2 / rows


def by_probes(facts: Mapping[str, Any]) -> int | None:
    """The guess that probes of single layers allow, on training rows that they had not seen."""
    scores: dict[int, float] = {}
    for probe in facts["probes"]:
        if len(probe["layers"]) == 1 and probe["unseen"] is not None:
            scores[probe["layers"][0]] = max(scores.get(probe["layers"][0], -math.inf), probe["unseen"])
    best = max(scores.values(), default=0.0)
    spread = 1 - best**2 if METRICS[facts["metric"]].lowest < 0 else math.sqrt(max(best * (1 - best), 0.0))
    return by_layer(scores, spread / math.sqrt(facts["train_rows"]))
