"""Operating points: the smallest k that reaches a share of full fine-tuning, or comes within a margin of it."""

from collections.abc import Sequence
from typing import Any

from frostline.statistics.answer import Cell, Difference, OperatingPoint
from frostline.statistics.inference import Ratio

DECIDED, UNDECIDED, UNDEFINED = "decided", "undecided", "undefined"  # verdicts


def share_point(
    cells: Sequence[Cell],
    reference: Cell | None,
    target: float,
    *,
    corrected: bool,
    by_mean: bool = False,
) -> OperatingPoint:
    """The smallest k that reaches a share of the reference.

    Args:
        cells: In the order of k.
        reference: The cell that all are compared with.
        target: The share.
        corrected: Whether the share is of the gain over the constant baseline instead of the score.
        by_mean: Whether the verdict depends on the means only.
    """

    def share_of(cell: Cell) -> Ratio | None:
        return cell.share_corrected if corrected else cell.share

    of_reference = share_of(reference) if reference else None
    defined = of_reference is not None and of_reference.estimate is not None
    found = _smallest(cells, reference, list(map(share_of, cells)), target, defined=defined, by_mean=by_mean)
    return OperatingPoint(target=target, corrected=corrected, margin=None, **found)


def margin_point(cells: Sequence[Cell], reference: Cell | None, margin: float) -> OperatingPoint:
    """The smallest k that is at most ``margin`` below the reference, in units of the metric; see :func:`share_point`."""
    differences = [cell.difference for cell in cells]
    found = _smallest(cells, reference, differences, -margin, defined=reference is not None, by_mean=False)
    return OperatingPoint(target=None, corrected=False, margin=margin, **found)


def _smallest(
    cells: Sequence[Cell],
    reference: Cell | None,
    intervals: Sequence[Ratio | Difference | None],
    threshold: float,
    *,
    defined: bool,
    by_mean: bool,
) -> dict[str, Any]:
    estimate = confident = not_ruled_out = None
    for cell, interval in zip(cells, intervals, strict=True) if defined else ():
        if interval is not None and interval.estimate is not None:
            if estimate is None and interval.estimate >= threshold:
                estimate = cell.recipe
            whole = interval.low is not None and interval.low >= threshold
            if confident is None and (cell is reference or whole):
                confident = cell.recipe
            if not_ruled_out is None and (interval.high is None or interval.high >= threshold):
                not_ruled_out = cell.recipe
        if cell is reference:
            break
    decided = estimate is not None if by_mean else confident == not_ruled_out
    verdict = UNDEFINED if not defined else DECIDED if decided else UNDECIDED
    return {"estimate": estimate, "confident": confident, "not_ruled_out": not_ruled_out, "verdict": verdict}
