"""From the cells of a curve to a number of layers: the smallest k that is enough, by several rules."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from frostline.statistics.cells import COSTS
from frostline.statistics.goal import Goal
from frostline.statistics.intervals import Pair, seeds_needed

Cell = Mapping[str, Any]
KNEE = 0.1  # how far a curve must bend away from its chord, of its own height, to have a knee


def share_point(
    cells: Sequence[Cell], reference: Cell | None, target: float, *, corrected: bool, by_mean: bool = False
) -> dict[str, Any]:
    """The smallest k that reaches ``target`` of the reference: by the means, surely, and possibly.

    Surely: its whole interval lies above; possibly: a part of it does. ``by_mean``: the verdict rests on the means alone.
    """
    name = "share_corrected" if corrected else "share"
    shares = [cell[name] for cell in cells]
    defined = bool(reference and reference[name] and reference[name]["estimate"] is not None)
    point = {"target": target, "corrected": corrected, "margin": None}
    return {**point, **_smallest(cells, reference, shares, target, defined=defined, by_mean=by_mean)}


def margin_point(cells: Sequence[Cell], reference: Cell | None, margin: float) -> dict[str, Any]:
    """The smallest k that is at most ``margin`` below the reference, in the metric's own units."""
    ends = [cell["difference"] for cell in cells]
    point = {"target": None, "corrected": False, "margin": margin}
    return {**point, **_smallest(cells, reference, ends, -margin, defined=reference is not None, by_mean=False)}


def _smallest(
    cells: Sequence[Cell],
    reference: Cell | None,
    ends: Sequence[Mapping[str, Any] | None],
    least: float,
    *,
    defined: bool,
    by_mean: bool,
) -> dict[str, Any]:
    estimate = sure = possible = None
    for cell, end in zip(cells, ends, strict=True) if defined else ():
        if end is not None and end["estimate"] is not None:
            if estimate is None and end["estimate"] >= least:
                estimate = cell["trainable"]
            if sure is None and (cell is reference or (end["low"] is not None and end["low"] >= least)):
                sure = cell["trainable"]
            if possible is None and (end["high"] is None or end["high"] >= least):
                possible = cell["trainable"]
        if cell is reference:
            break
    settled = estimate is not None if by_mean else sure == possible
    verdict = "undefined" if not defined else "holds" if settled else "cannot tell"
    return {"estimate": estimate, "sure": sure, "possible": possible, "verdict": verdict}


def seeds_to_tell(both: Pair | None, goal: Goal) -> int | None:
    """How many seeds in all would likely tell whether a cell is enough; None: no number of seeds up to 1,000, or nobody
    knows, from one seed."""
    if both is None or both.runs < 2:
        return None
    weights = goal.weights
    by = {
        source: sum(
            float(weights @ error.covariance @ weights) * n(error) for error in both.errors if error.source == source
        )
        for source, n in (("seeds", lambda error: error.freedom + 1), ("rows", lambda error: 1))
    }
    freedom = next((error.freedom for error in both.errors if error.source == "rows"), 1.0)
    by_row = by["rows"] * both.covered  # once every row is scored
    return seeds_needed(goal.distance(both), by["seeds"], by_row, freedom, quantile=both.quantile)


def one_standard_error(cells: Sequence[Cell]) -> str | None:
    """The smallest k whose mean is at most one standard error of the best below the best (Breiman et al. 1984)."""
    known = [cell for cell in cells if cell["validation"]["mean"] is not None]
    best = max(known, key=lambda cell: cell["validation"]["mean"], default=None)
    if best is None or best["validation"]["std"] is None:
        return None
    floor = best["validation"]["mean"] - best["validation"]["std"] / best["validation"]["n"] ** 0.5
    return next(str(cell["trainable"]) for cell in known if cell["validation"]["mean"] >= floor)


def knee(cells: Sequence[Cell]) -> str | None:
    """Where the mean bends most: the k furthest above the chord from the first to the last (Satopaa et al. 2011).

    None where there are fewer than three k without the embeddings, where the curve does not rise, or bends by less than
    ``KNEE`` of its height.
    """
    known = [c for c in cells if c["validation"]["mean"] is not None and not c["tune_embeddings"]]
    if len(known) < 3:
        return None
    x = np.array([cell["tuned_layers"] for cell in known], float)
    y = np.array([cell["validation"]["mean"] for cell in known])
    if y[-1] <= y[0]:
        return None
    above = (y - y[0]) / (y[-1] - y[0]) - (x - x[0]) / (x[-1] - x[0])
    return str(known[int(above.argmax())]["trainable"]) if above.max() >= KNEE else None


def pareto(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """For each cost the k that no other beats: none has at least its mean for less, nor more for the same."""
    return {cost: _front(cells, prices(cells, cost)) for cost in COSTS}


def prices(cells: Sequence[Cell], cost: str) -> list[float | None]:
    """What each of the cells costs, as far as it can be compared: seconds, with a run's share of the pass, of those whose
    runs went in the company that is largest."""
    if cost != "seconds":
        return [cell[cost] for cell in cells]
    largest = max((cell["abreast"] or 0 for cell in cells), default=0)
    return [
        None
        if cell["seconds"] is None or (cell["abreast"] or 0) < largest
        else cell["seconds"] + (cell["shared_seconds"] or 0.0)
        for cell in cells
    ]


def _front(cells: Sequence[Cell], prices: Sequence[float | None]) -> list[str]:
    known = [
        (cell["validation"]["mean"], price, cell["trainable"])
        for cell, price in zip(cells, prices, strict=True)
        if cell["validation"]["mean"] is not None and price is not None
    ]
    return [
        name
        for score, price, name in known
        if not any(s >= score and p <= price and (s, p) != (score, price) for s, p, _ in known)
    ]
