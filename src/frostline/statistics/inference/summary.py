"""Descriptive statistics of the scores of one cell."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Summary:
    """Descriptive statistics; None for what too few runs leave undefined."""

    n: int
    mean: float | None
    median: float | None
    std: float | None  # of a sample: divided by n - 1
    min: float | None
    lower_quartile: float | None
    upper_quartile: float | None
    max: float | None


def summarize(scores: Array) -> Summary:
    """Describe the scores ``[n]`` of the runs of one cell."""
    n = len(scores)
    if not n:
        return Summary(0, None, None, None, None, None, None, None)
    lower, upper = np.quantile(scores, [0.25, 0.75])
    return Summary(
        n=n,
        mean=float(scores.mean()),
        median=float(np.median(scores)),
        std=float(scores.std(ddof=1)) if n > 1 else None,
        min=float(scores.min()),
        lower_quartile=float(lower),
        upper_quartile=float(upper),
        max=float(scores.max()),
    )
