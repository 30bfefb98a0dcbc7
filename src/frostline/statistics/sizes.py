"""Several train sizes: from how many examples on more tuning pays, and whether k and the train size go together."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from frostline.statistics.cells import FULL
from frostline.statistics.intervals import QUANTILE, Array, holm

PERMUTATIONS = 10_000
Curve = Mapping[str, Any]  # what ``compare`` gives of one train size


def pays_from(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """For each k below full: from which train size on full is surely better.

    ``surely_better``: the smallest size from which on, at every larger one too, the whole interval of k less full lies
    below 0; None: never shown.
    """
    found = []
    rising = sorted(curves, key=lambda curve: curve["train_size"])
    for name in _names(rising):
        ends = [(curve["train_size"], difference) for curve, difference in _differences(rising, name)]
        worse = [n for n, difference in ends if difference["high"] is not None and difference["high"] < 0]
        tail = [n for n, _ in ends if all(m in worse for m, _ in ends if m >= n)]
        found.append({"trainable": name, "sizes": [n for n, _ in ends], "surely_better": min(tail, default=None)})
    return found


def interaction(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """For each k: how its distance to full changes with ten times as many examples, with interval and p-value.

    A least-squares slope of ``k - full`` over log10 of the train size, through the sizes' means; their errors are taken
    as independent (Satterthwaite's degrees of freedom). ``p_holm`` is adjusted over the k that are shown. Two sizes at
    least, each with two runs; a k that has fewer is left out.
    """
    found: list[dict[str, Any]] = []
    rising = sorted(curves, key=lambda curve: curve["train_size"])
    for name in _names(rising):
        known = [(c["train_size"], d) for c, d in _differences(rising, name) if d["error"] is not None]
        if len(known) < 2:
            continue
        x = np.log10([n for n, _ in known])
        weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
        slope = float(weights @ [d["estimate"] for _, d in known])
        parts = [(w * d["error"]) ** 2 for w, (_, d) in zip(weights, known, strict=True)]
        error = sum(parts) ** 0.5
        freedoms = [d["freedom"] for _, d in known]
        freedom = error**4 / sum(part**2 / df for part, df in zip(parts, freedoms, strict=True)) if error else 1.0
        half = float(stats.t.ppf(QUANTILE, freedom)) * error
        p = float(2 * stats.t.sf(abs(slope) / error, freedom)) if error else float(slope == 0)
        found.append({"trainable": name, "slope": slope, "low": slope - half, "high": slope + half, "p": p})
    return _adjusted(found)


def spread(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """For each k: the spread between seeds against that of full, at the rates that are shown, over all train sizes, failed
    runs included.

    As many runs of both at each size, the first seeds. ``ratio``: of the standard deviations, pooled over the sizes; ``p``: of
    absolute deviations from the cell's median that are dealt anew between k and full within each size (Brown and Forsythe's
    statistic, by permutation; on normal and on heavy-tailed scores of equal spread it is below .05 in at most 5 %).
    """
    draw = np.random.default_rng(0)
    found: list[dict[str, Any]] = []
    rising = sorted(curves, key=lambda curve: curve["train_size"])
    for name in _names(rising):
        both = [
            (curve["train_size"], pair)
            for curve in rising
            if curve["reference"] == FULL and len((pair := _alike_many(curve, name))[0]) > 1
        ]
        if not both:
            continue
        ours, theirs = (sum(float(pair[side].var(ddof=1)) * (len(pair[0]) - 1) for _, pair in both) for side in (0, 1))
        ratio = (ours / theirs) ** 0.5 if theirs > 0 else None
        p = _permuted([pair for _, pair in both], draw)
        found.append({"trainable": name, "sizes": [n for n, _ in both], "ratio": ratio, "p": p})
    return _adjusted(found)


def _alike_many(curve: Curve, name: str) -> tuple[Array, Array]:
    """The scores of k and of full at one size, as many of both."""
    both = [
        [
            p["validation_best"]
            for cell in curve["cells"]
            if cell["trainable"] == k
            for p in cell["points"]
            if p["validation_best"] is not None
        ]
        for k in (name, FULL)
    ]
    many = min(map(len, both))
    return np.array(both[0][:many], float), np.array(both[1][:many], float)


def _deviations(scores: Array) -> Array:
    """Absolute deviations from the median without the smallest, which is 0 for an odd count and for an even one the double of
    the next (Hines and Hines 2000): what is left can be dealt anew."""
    return np.sort(abs(scores - np.median(scores)))[1:]


def _permuted(both: Sequence[tuple[Array, Array]], draw: np.random.Generator) -> float:
    blocks = []
    for ours, theirs in both:
        deviations = np.concatenate([_deviations(side) for side in (ours, theirs)])
        scale = deviations.mean()
        if scale > 0:
            blocks.append((deviations / scale, len(ours) - 1))
    if not blocks:
        return 1.0

    def statistic(shuffled: bool) -> Any:
        total = np.zeros(PERMUTATIONS if shuffled else 1)
        for deviations, count in blocks:
            dealt = np.tile(deviations, (len(total), 1))
            dealt = draw.permuted(dealt, axis=1) if shuffled else dealt
            total += dealt[:, :count].mean(1) - dealt[:, count:].mean(1)
        return total

    seen = abs(float(statistic(False)[0]))
    return float((1 + (abs(statistic(True)) >= seen - 1e-12).sum()) / (1 + PERMUTATIONS))


def _adjusted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with Holm's adjustment of their p-values over all of them."""
    return [{**row, "p_holm": p} for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True)]


def _names(curves: Sequence[Curve]) -> list[str]:
    """Every k that stands beside full at some size."""
    names = [
        cell["trainable"] for curve in curves for cell in curve["cells"] if cell["trainable"] != curve["reference"]
    ]
    return list(dict.fromkeys(names))


def _differences(curves: Sequence[Curve], name: str) -> list[tuple[Curve, Mapping[str, Any]]]:
    """What k lacks to full, at each size that has both."""
    found = []
    for curve in curves:
        cell = next((cell for cell in curve["cells"] if cell["trainable"] == name), None)
        if cell and cell["difference"] and curve["reference_is_full"]:
            found.append((curve, cell["difference"]))
    return found
