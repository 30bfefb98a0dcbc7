"""Whether two results of one run agree, as they do if the exactness contract holds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from frostline.sweep.results.store import DamagedError, GoneError, Store

if TYPE_CHECKING:
    from frostline.training.specification import RunSpec

TOLERANCE = 1e-5  # relative to the largest value: that of stacked runs and of the exactness check


def other_result(run: "RunSpec", store: Store, logits: Mapping[str, NDArray[Any]]) -> str:
    """A sentence if these logits of a run differ from those that another process published first; else empty.

    If the other result is damaged or gone, the sentence says so, and the place is free.
    """
    try:
        gap = disagreement(store.predictions(run.digest), logits)
    except (DamagedError, GoneError) as error:
        return str(error)
    if not gap:
        return ""
    return (
        f"Another process has also trained {run.recipe}, seed {run.seed}, with other predictions ({gap}): its result in "
        f"{store.runs / run.digest} stands."
    )


def disagreement(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> str:
    """How the predictions of two results of one run differ; empty if they agree within the tolerance."""
    if {name: array.shape for name, array in one.items()} != {name: array.shape for name, array in other.items()}:
        return "they are not for the same examples"
    gap = max((_gap(one[name], other[name]) for name in one), default=0.0)
    return f"by {gap:.1g} of the largest value, where {TOLERANCE:g} is allowed" if gap > TOLERANCE else ""


def _gap(one: NDArray[Any], other: NDArray[Any]) -> float:
    """The largest difference, relative to the largest value; infinite if only one of two values is a number."""
    if not one.size or np.array_equal(one, other, equal_nan=True):
        return 0.0
    known = np.isfinite(one)
    if not np.array_equal(known, np.isfinite(other)) or not np.array_equal(one[~known], other[~known], equal_nan=True):
        return float("inf")
    first, second = one[known].astype(float), other[known].astype(float)
    return float(abs(first - second).max() / max(abs(first).max(), abs(second).max(), 1e-30))
