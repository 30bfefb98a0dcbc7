"""Holm's adjustment for many comparisons, and its application to every cell of several curves."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979). They control the probability of any false rejection, at every level."""
    order = np.argsort(p_values, kind="stable")
    adjusted, most = [0.0] * len(order), 0.0
    for rank, n in enumerate(order.tolist()):
        most = max(most, min(1.0, (len(order) - rank) * p_values[n]))
        adjusted[n] = most
    return adjusted


def adjust(curves: Sequence[dict[str, Any]]) -> int:
    """Add ``p_holm`` to the difference of every cell, adjusted over all curves; returns the number of comparisons."""
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
