"""Operating points: the smallest k that reaches a share of full fine-tuning, or comes within a margin of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.statistics.cells import CellSummary

DECIDED, UNDECIDED, UNDEFINED = "decided", "undecided", "undefined"  # verdicts


def share_point(
    cells: Sequence[CellSummary],
    reference: CellSummary | None,
    target: float,
    *,
    corrected: bool,
    by_mean: bool = False,
) -> dict[str, Any]:
    """The smallest k that reaches a share of the reference.

    Args:
        cells: In the order of k.
        reference: The cell that all are compared with.
        target: The share.
        corrected: Whether the share is of the gain over the constant baseline instead of the score.
        by_mean: Whether the verdict depends on the means only.

    Returns:
        The keys of the target, and

        - ``estimate``: the smallest k whose mean reaches the target;
        - ``confident``: the smallest k whose whole interval does (95 % confidence);
        - ``not_ruled_out``: the smallest k whose interval does in part;
        - ``verdict``: ``decided`` if the last two agree (``by_mean``: if there is an estimate), ``undecided``, or ``undefined``.
    """
    name = "share_corrected" if corrected else "share"
    shares = [cell[name] for cell in cells]
    defined = bool(reference and reference[name] and reference[name]["estimate"] is not None)
    point = {"target": target, "corrected": corrected, "margin": None}
    return {**point, **_smallest(cells, reference, shares, target, defined=defined, by_mean=by_mean)}


def margin_point(cells: Sequence[CellSummary], reference: CellSummary | None, margin: float) -> dict[str, Any]:
    """The smallest k that is at most ``margin`` below the reference, in units of the metric; see :func:`share_point`."""
    differences = [cell["difference"] for cell in cells]
    point = {"target": None, "corrected": False, "margin": margin}
    found = _smallest(cells, reference, differences, -margin, defined=reference is not None, by_mean=False)
    return {**point, **found}


def _smallest(
    cells: Sequence[CellSummary],
    reference: CellSummary | None,
    intervals: Sequence[Mapping[str, Any] | None],
    threshold: float,
    *,
    defined: bool,
    by_mean: bool,
) -> dict[str, Any]:
    estimate = confident = not_ruled_out = None
    for cell, interval in zip(cells, intervals, strict=True) if defined else ():
        if interval is not None and interval["estimate"] is not None:
            if estimate is None and interval["estimate"] >= threshold:
                estimate = cell["recipe"]
            whole = interval["low"] is not None and interval["low"] >= threshold
            if confident is None and (cell is reference or whole):
                confident = cell["recipe"]
            if not_ruled_out is None and (interval["high"] is None or interval["high"] >= threshold):
                not_ruled_out = cell["recipe"]
        if cell is reference:
            break
    decided = estimate is not None if by_mean else confident == not_ruled_out
    verdict = UNDEFINED if not defined else DECIDED if decided else UNDECIDED
    return {"estimate": estimate, "confident": confident, "not_ruled_out": not_ruled_out, "verdict": verdict}
