"""Nested, stratified subsets: every size contains the smaller ones.

All rows get one order, and the subset of size m is its first m rows. The j-th row of class c (n_c of n rows) may only stand
at positions (j - 1) n / n_c to j n / n_c. At every size such an order has less than one row too many or too few of each class.
Taking the row whose window closes first satisfies all windows (Baruah et al. 1996). Finally one row of each class moves to the
front, and its later position is skipped.
"""

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.examples import Indices, Targets
from frostline.data.tags import NO_WORD

RANK_BINS = 10  # strata of regression targets
STRATUM_ROWS = 10  # a label of fewer rows is no stratum: it cannot be in every part


def subset_indices(targets: Targets, size: int, seed: int) -> Indices:
    """A subset of ``size`` rows, as positions in ``targets``, ``[size]``. The same ``seed`` gives nested subsets.

    Class indices (int64) are stratified by class, numbers (float64) by deciles, all others as in :func:`strata`.

    Raises:
        FrostlineError: The size is below the number of classes in ``targets``, or above the number of rows.
    """
    classes = least_size(targets)
    if size > len(targets):
        raise FrostlineError(f"A train size of {size:,} is more than the {len(targets):,} rows; pass a smaller one.")
    if size < classes:
        raise FrostlineError(
            f"A train size of {size:,} cannot include all {classes} classes; pass {classes} or more."
            if classes > 1
            else f"A train size of {size:,} is too small; pass 1 or more."
        )
    return stratified_indices(targets, size, np.random.default_rng(seed))


def stratified_indices(targets: Targets, size: int, rng: np.random.Generator) -> Indices:
    """The first ``size`` rows of a random stratified order, as positions in ``targets``, ``[size]``."""
    present, stratum_of = np.unique(strata(targets), return_inverse=True)
    # Strata are numbered randomly. Otherwise, of two strata with the same deadline, the same one would always come first.
    stratum_of = rng.permutation(len(present))[stratum_of]
    shuffled = rng.permutation(len(targets))
    grouped = shuffled[stratum_of[shuffled].argsort(kind="stable")]
    by_stratum = np.split(grouped, np.cumsum(np.bincount(stratum_of))[:-1])
    rows = [iter(members.tolist()) for members in by_stratum]
    order = _order([len(members) for members in by_stratum], size)
    return np.array([next(rows[stratum]) for stratum in order], dtype=np.int64)


def strata(targets: Targets) -> npt.NDArray[Any]:
    """The stratum of each row, ``[N]``: its class, or the decile of its number.

    Sentences ``[N, W]`` have two strata: those in which every word has the most frequent tag, and all others. The stratum of a
    text with any number of labels (bool ``[N, C]``) is the rarest of its labels that at least ``STRATUM_ROWS`` rows have.
    """
    if targets.dtype == np.bool_:
        return _rarest_label(targets)
    if targets.ndim > 1:
        most_frequent = np.bincount(targets[targets != NO_WORD].astype(np.int64)).argmax()
        return np.asarray(((targets != most_frequent) & (targets != NO_WORD)).any(axis=1).astype(np.int64))
    return targets if _are_classes(targets) else targets.argsort(kind="stable").argsort() * RANK_BINS // len(targets)


def least_size(targets: Targets) -> int:
    """The fewest rows of a subset: one of each class. Other targets need one row."""
    return len(np.unique(strata(targets))) if _are_classes(targets) else 1


def _rarest_label(targets: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The index of each row's rarest label that is not too rare, ``[N]``; C for a row without one."""
    rows = targets.sum(0)
    common = rows >= STRATUM_ROWS
    order = np.argsort(np.where(common, rows, len(targets) + 1), kind="stable")
    own = targets[:, order] & common[order]  # the rarest label first
    return np.asarray(np.where(own.any(1), order[own.argmax(1)], targets.shape[1]))


def _order(counts: list[int], size: int) -> list[int]:
    """The stratum at each of the first ``size`` positions: one row of each stratum, then by deadline."""
    order = sorted(range(len(counts)), key=lambda stratum: -counts[stratum])
    shown: set[int] = set()
    for stratum in _by_deadline(counts):
        if len(order) >= size:
            break
        if stratum in shown:
            order.append(stratum)
        shown.add(stratum)
    return order[:size]


def _by_deadline(counts: list[int]) -> Iterator[int]:
    """The stratum at every position, such that each row is within its window: the earliest deadline first."""
    total, taken = sum(counts), [0] * len(counts)
    waiting, ready = [(0, stratum) for stratum in range(len(counts))], list[tuple[int, int]]()
    for position in range(total):
        while waiting and waiting[0][0] <= position:
            _, stratum = heapq.heappop(waiting)
            deadline = -(-(taken[stratum] + 1) * total // counts[stratum])
            heapq.heappush(ready, (deadline, stratum))
        _, stratum = heapq.heappop(ready)
        taken[stratum] += 1
        if taken[stratum] < counts[stratum]:
            heapq.heappush(waiting, (taken[stratum] * total // counts[stratum], stratum))
        yield stratum


def _are_classes(targets: Targets) -> bool:
    return bool(np.issubdtype(targets.dtype, np.integer))
