"""Nested, stratified subsets and held-out rows, by one law.

The rows are put in one order, and a subset of size m is its first m rows, so that every size holds the smaller ones.
In that order the j-th row of class c, which has n_c of n rows, may stand only at the positions from (j - 1) n / n_c to
j n / n_c. Whoever keeps to these windows has, at every size, less than one row too many or too few of each class.
Always taking the row whose window closes first keeps to all of them (Baruah, Cohen, Plaxton and Varvel, Proportionate
progress, Algorithmica 1996, with one processor). One row of each class is then moved to the front, so that no subset
lacks a class: while one is there before it is due, the others wait for it.
"""

import heapq
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.examples import Examples, Indices
from frostline.data.tasks import CLASSIFICATION, Task
from frostline.data.wording import quoted

Targets = npt.NDArray[np.int64] | npt.NDArray[np.float64]

LEAST = 5  # rows in a fold
BINS = 10  # of a regression's targets, by rank


def subset_indices(targets: Targets, size: int, seed: int) -> Indices:
    """The first ``size`` rows in the order of ``seed``, as positions in ``targets``.

    Class indices (int64) are stratified by class, numbers (float64) by their tenths. A size below the number of
    classes in ``targets``, or beyond the rows, is an error.
    """
    classes = len(np.unique(targets)) if _are_classes(targets) else 1
    if size > len(targets):
        raise FrostlineError(f"A train size of {size:,} is more than the {len(targets):,} rows; pass a smaller one.")
    if size < classes:
        raise FrostlineError(
            f"A train size of {size:,} cannot show all {classes} classes; pass {classes} or more."
            if classes > 1
            else f"A train size of {size:,} is no size; pass 1 or more."
        )
    return _stratified(targets, size, np.random.default_rng(seed))


def fold_numbers(examples: Examples, task: Task, folds: int, seed: int) -> npt.NDArray[np.int64]:
    """For each row the number of its fold, 0 to ``folds`` - 1: about as many rows in each, stratified, and rows of the same
    text in one, so that no text is both trained and scored.

    Every class must have rows in two folds at least; where it has not, the error says which class and what to do.
    """
    shuffled = np.random.default_rng([seed, *b"folds"]).permutation(len(examples))
    order = shuffled[_strata(examples.targets)[shuffled].argsort(kind="stable")]  # dealt out one class after the other
    numbers = np.empty(len(examples), np.int64)
    numbers[order] = np.arange(len(examples)) % folds
    first: dict[tuple[str, str], int] = {}
    for row, text in enumerate(examples.texts):
        numbers[row] = first.setdefault((text, examples.pairs[row] if examples.pairs else ""), int(numbers[row]))
    if (smallest := int(np.bincount(numbers, minlength=folds).min())) < LEAST:
        raise FrostlineError(
            f"{examples.name}: {folds} folds of {len(examples):,} rows leave {smallest} in one (the same text goes together), "
            f"and a score needs {LEAST}: give fewer --folds, more rows, or --validation FILE."
        )
    for target in np.unique(examples.targets) if task.problem_type == CLASSIFICATION else ():
        rows = np.flatnonzero(examples.targets == target)
        if len(np.unique(numbers[rows])) == 1:
            raise FrostlineError(
                f"{examples.name}, row {examples.rows[rows[0]]}: the label {quoted(task.labels[int(target)])} has too few "
                "rows to be both trained and scored; add rows, take it out, or give --validation FILE."
            )
    return numbers


def hold_out(examples: Examples, task: Task, size: int, seed: int, *, split: str) -> tuple[Examples, Examples]:
    """``(rest, held)``: ``size`` rows set aside as ``split``, stratified, both in file order.

    Every class must have a row in both; where it cannot, the error says which class and what to do.
    """
    needed = len(np.unique(examples.targets)) if task.problem_type == CLASSIFICATION else 1
    if not needed <= size < len(examples):
        shown = f"all {needed} classes" if needed > 1 else "anything"
        raise FrostlineError(
            f"{examples.name}: {size:,} of {len(examples):,} rows set aside for {split} cannot show {shown} there and "
            f"in training; give more rows or --{split} FILE."
        )
    # A generator of its own for each split: equal draws would tie what is validation to what is test.
    rng = np.random.default_rng([seed, *split.encode()])
    held = np.zeros(len(examples), dtype=bool)
    held[_stratified(examples.targets, size, rng)] = True
    rest, held_out = examples.take(np.flatnonzero(~held)), examples.take(np.flatnonzero(held))
    if task.problem_type == CLASSIFICATION:
        _refuse_used_up(rest, held_out, task, split)
    return rest, held_out


def _refuse_used_up(rest: Examples, held: Examples, task: Task, split: str) -> None:
    used_up = np.flatnonzero(~np.isin(held.targets, rest.targets))
    if len(used_up):
        label = task.labels[int(held.targets[used_up[0]])]
        raise FrostlineError(
            f"{held.name}, row {held.rows[used_up[0]]}: the label {quoted(label)} has too few rows for training "
            f"and each set that is put aside; add rows, take it out, or give --{split} FILE."
        )


def _stratified(targets: Targets, size: int, rng: np.random.Generator) -> Indices:
    present, strata = np.unique(_strata(targets), return_inverse=True)
    # Numbered anew by chance, so that no class is always the first where two are due at once.
    strata = rng.permutation(len(present))[strata]
    shuffled = rng.permutation(len(targets))
    by_class = np.split(shuffled[strata[shuffled].argsort(kind="stable")], np.cumsum(np.bincount(strata))[:-1])
    rows = [iter(members.tolist()) for members in by_class]
    order = _order([len(members) for members in by_class], size)
    return np.array([next(rows[stratum]) for stratum in order], dtype=np.int64)


def _strata(targets: Targets) -> npt.NDArray[Any]:
    """Classes, or the tenths of numbers."""
    return targets if _are_classes(targets) else targets.argsort(kind="stable").argsort() * BINS // len(targets)


def _order(counts: list[int], size: int) -> list[int]:
    """The class at each of the first ``size`` positions: one of each, then as their windows close."""
    order = sorted(range(len(counts)), key=lambda stratum: -counts[stratum])
    shown: set[int] = set()
    for stratum in _due(counts):
        if len(order) >= size:
            break
        if stratum in shown:
            order.append(stratum)
        shown.add(stratum)
    return order[:size]


def _due(counts: list[int]) -> Iterator[int]:
    """Every row's class, each within its window, the window that closes first before the others."""
    total, taken = sum(counts), [0] * len(counts)
    waiting, ready = [(0, stratum) for stratum in range(len(counts))], list[tuple[int, int]]()
    for position in range(total):
        while waiting and waiting[0][0] <= position:
            _, stratum = heapq.heappop(waiting)
            closes = -(-(taken[stratum] + 1) * total // counts[stratum])
            heapq.heappush(ready, (closes, stratum))
        _, stratum = heapq.heappop(ready)
        taken[stratum] += 1
        if taken[stratum] < counts[stratum]:
            heapq.heappush(waiting, (taken[stratum] * total // counts[stratum], stratum))
        yield stratum


def _are_classes(targets: Targets) -> bool:
    return bool(np.issubdtype(targets.dtype, np.integer))
