"""Operating points: the smallest k that reaches a share of full fine-tuning, or comes within a margin of it."""

from collections.abc import Mapping, Sequence
from typing import Any

Cell = Mapping[str, Any]  # as ``cells.describe`` returns it


def share_point(
    cells: Sequence[Cell], reference: Cell | None, target: float, *, corrected: bool, by_mean: bool = False
) -> dict[str, Any]:
    """The smallest k that reaches a share of the reference.

    Args:
        cells: In the order of k.
        reference: The cell that all are compared with.
        target: The share.
        corrected: Whether the share is of the gain over the constant baseline instead of the score.
        by_mean: Whether the verdict rests on the means alone.

    Returns:
        The k by its mean (``estimate``), with 95 % confidence (``sure``: its whole interval reaches the target) and the
        smallest that is not ruled out (``possible``: a part of its interval does), and the ``verdict``.
    """
    name = "share_corrected" if corrected else "share"
    shares = [cell[name] for cell in cells]
    defined = bool(reference and reference[name] and reference[name]["estimate"] is not None)
    point = {"target": target, "corrected": corrected, "margin": None}
    return {**point, **_smallest(cells, reference, shares, target, defined=defined, by_mean=by_mean)}


def margin_point(cells: Sequence[Cell], reference: Cell | None, margin: float) -> dict[str, Any]:
    """The smallest k that is at most ``margin`` below the reference, in units of the metric; see :func:`share_point`."""
    differences = [cell["difference"] for cell in cells]
    point = {"target": None, "corrected": False, "margin": margin}
    found = _smallest(cells, reference, differences, -margin, defined=reference is not None, by_mean=False)
    return {**point, **found}


def _smallest(
    cells: Sequence[Cell],
    reference: Cell | None,
    intervals: Sequence[Mapping[str, Any] | None],
    threshold: float,
    *,
    defined: bool,
    by_mean: bool,
) -> dict[str, Any]:
    estimate = sure = possible = None
    for cell, interval in zip(cells, intervals, strict=True) if defined else ():
        if interval is not None and interval["estimate"] is not None:
            if estimate is None and interval["estimate"] >= threshold:
                estimate = cell["trainable"]
            if sure is None and (cell is reference or (interval["low"] is not None and interval["low"] >= threshold)):
                sure = cell["trainable"]
            if possible is None and (interval["high"] is None or interval["high"] >= threshold):
                possible = cell["trainable"]
        if cell is reference:
            break
    decided = estimate is not None if by_mean else sure == possible
    verdict = "undefined" if not defined else "holds" if decided else "cannot tell"
    return {"estimate": estimate, "sure": sure, "possible": possible, "verdict": verdict}
