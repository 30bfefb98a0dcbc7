"""Several train sizes: from which size full fine-tuning pays, and whether the best k depends on the size."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from frostline.statistics.cells import FULL
from frostline.statistics.inference.holm import holm
from frostline.statistics.inference.quantile import QUANTILE
from frostline.statistics.inference.summary import Array

PERMUTATIONS = 10_000
Curve = Mapping[str, Any]  # what ``curve.compare`` returns for one train size


def pays_from(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """For each smaller k: the train size from which full fine-tuning is significantly better.

    ``surely_better`` is the smallest size from which the whole interval of ``k - full`` lies below 0, at every larger size
    too; None: not shown.
    """
    found = []
    rising = sorted(curves, key=lambda curve: curve["train_size"])
    for name in _names(rising):
        differences = [(curve["train_size"], difference) for curve, difference in _differences(rising, name)]
        worse = [n for n, difference in differences if difference["high"] is not None and difference["high"] < 0]
        tail = [n for n, _ in differences if all(m in worse for m, _ in differences if m >= n)]
        found.append(
            {"trainable": name, "sizes": [n for n, _ in differences], "surely_better": min(tail, default=None)}
        )
    return found


def interaction(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """For each k: how ``k - full`` changes with ten times as many examples, with interval and p-value.

    This is the least-squares slope over log10 of the train size through the sizes' means, whose errors are taken as
    independent (Satterthwaite's degrees of freedom). ``p_holm`` is adjusted over all k. A k without two sizes of at least two
    runs each is left out.
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
    """For each k: the spread between seeds relative to that of full fine-tuning, over all train sizes, with failed runs.

    At each size the same number of runs of both is compared, the first seeds, at the learning rates that are shown.
    ``ratio`` is that of the standard deviations, pooled over the sizes. ``p`` is from a permutation test of Brown and
    Forsythe's statistic: within each size, absolute deviations from the cell's median are reassigned between k and full. On
    normal and on heavy-tailed scores of equal spread p is below 0.05 in at most 5 % of the cases.
    """
    generator = np.random.default_rng(0)
    found: list[dict[str, Any]] = []
    rising = sorted(curves, key=lambda curve: curve["train_size"])
    for name in _names(rising):
        both = [
            (curve["train_size"], pair)
            for curve in rising
            if curve["reference"] == FULL and len((pair := _equally_many(curve, name))[0]) > 1
        ]
        if not both:
            continue
        ours, theirs = (sum(float(pair[side].var(ddof=1)) * (len(pair[0]) - 1) for _, pair in both) for side in (0, 1))
        ratio = (ours / theirs) ** 0.5 if theirs > 0 else None
        p = _permutation_p([pair for _, pair in both], generator)
        found.append({"trainable": name, "sizes": [n for n, _ in both], "ratio": ratio, "p": p})
    return _adjusted(found)


def _equally_many(curve: Curve, name: str) -> tuple[Array, Array]:
    """The scores of k and of full fine-tuning at one size, the first of both up to the smaller number."""
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
    fewest = min(map(len, both))
    return np.array(both[0][:fewest], float), np.array(both[1][:fewest], float)


def _deviations(scores: Array) -> Array:
    """Absolute deviations from the median without the smallest, so that they can be permuted (Hines and Hines 2000).

    The smallest is 0 for an odd number of scores, and equal to the next for an even one.
    """
    return np.sort(abs(scores - np.median(scores)))[1:]


def _permutation_p(both: Sequence[tuple[Array, Array]], generator: np.random.Generator) -> float:
    blocks = []
    for ours, theirs in both:
        deviations = np.concatenate([_deviations(side) for side in (ours, theirs)])
        scale = deviations.mean()
        if scale > 0:
            blocks.append((deviations / scale, len(ours) - 1))
    if not blocks:
        return 1.0

    def statistic(permuted: bool) -> Any:
        total = np.zeros(PERMUTATIONS if permuted else 1)
        for deviations, count in blocks:
            assigned = np.tile(deviations, (len(total), 1))
            assigned = generator.permuted(assigned, axis=1) if permuted else assigned
            total += assigned[:, :count].mean(1) - assigned[:, count:].mean(1)
        return total

    observed = abs(float(statistic(False)[0]))
    return float((1 + (abs(statistic(True)) >= observed - 1e-12).sum()) / (1 + PERMUTATIONS))


def _adjusted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with Holm's adjustment of their p-values over all of them."""
    return [{**row, "p_holm": p} for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True)]


def _names(curves: Sequence[Curve]) -> list[str]:
    """Every k other than the reference, at any size."""
    names = [
        cell["trainable"] for curve in curves for cell in curve["cells"] if cell["trainable"] != curve["reference"]
    ]
    return list(dict.fromkeys(names))


def _differences(curves: Sequence[Curve], name: str) -> list[tuple[Curve, Mapping[str, Any]]]:
    """``k - full`` at each size that has both."""
    found = []
    for curve in curves:
        cell = next((cell for cell in curve["cells"] if cell["trainable"] == name), None)
        if cell and cell["difference"] and curve["reference_is_full"]:
            found.append((curve, cell["difference"]))
    return found
