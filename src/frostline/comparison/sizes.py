"""Several train sizes: from how many examples on more tuning pays, and whether k and the train size go together."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from frostline.comparison.cells import by_depth
from frostline.comparison.evidence import Run
from frostline.comparison.outcomes import done, scored
from frostline.statistics import QUANTILE, holm

PERMUTATIONS = 10_000
Curve = Mapping[str, Any]  # what ``compare`` gives of one train size


def pays_from(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """For each k below full: from which train size on full is surely better, and at which sizes it surely is not worse
    than the margin.

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


def spread(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """For each k: the spread between seeds against that of full, over all train sizes, failed runs included.

    ``ratio``: of the standard deviations, pooled over the sizes; ``p``: of absolute deviations from the cell's median
    that are dealt anew between k and full within each size (Brown and Forsythe's statistic, by permutation).
    """
    cells: dict[tuple[str, Any], list[float]] = {}
    ladder = by_depth(scored(done(runs)))
    for name, some in ladder.items():
        for run in some:
            cells.setdefault((name, run["train_size"]), []).append(run["validation_best"])
    draw = np.random.default_rng(0)
    found: list[dict[str, Any]] = []
    for name in ladder:
        sizes = [n for k, n in cells if k == name and min(len(cells[k, n]), len(cells.get(("all", n), ()))) > 1]
        if name == "all" or not sizes:
            continue
        both = [(np.array(cells[name, n]), np.array(cells["all", n])) for n in sizes]
        ours, theirs = (sum(side.var(ddof=1) * (len(side) - 1) for side in sides) for sides in zip(*both, strict=True))
        counts = [sum(len(side) - 1 for side in sides) for sides in zip(*both, strict=True)]
        ratio = float((ours / counts[0] / (theirs / counts[1])) ** 0.5) if theirs > 0 else None
        found.append({"trainable": name, "sizes": sizes, "ratio": ratio, "p": _permuted(both, draw)})
    return _adjusted(found)


def _permuted(both: Sequence[tuple[Any, Any]], draw: np.random.Generator) -> float:
    blocks = []
    for ours, theirs in both:
        deviations = np.concatenate([abs(side - np.median(side)) for side in (ours, theirs)])
        scale = deviations.mean()
        if scale > 0:
            blocks.append((deviations / scale, len(ours)))
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
