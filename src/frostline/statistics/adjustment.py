"""Many comparisons at once: each cell against full, over all curves of a table, with Holm's adjustment."""

from collections.abc import Sequence
from typing import Any

from frostline.statistics.intervals import holm


def adjust(curves: Sequence[dict[str, Any]]) -> int:
    """Put Holm's adjusted p-value beside each p-value of a cell against full; gives how many comparisons there are."""
    tested = [
        cell["difference"]
        for curve in curves
        for cell in curve["cells"]
        if cell["difference"] and cell["trainable"] != curve["reference"]
    ]
    known = [difference for difference in tested if difference["p"] is not None]
    for difference, p in zip(known, holm([d["p"] for d in known]), strict=True):
        difference["p_holm"] = p
    return len(known)
