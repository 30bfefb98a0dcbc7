"""Splits of the training rows: validation and test rows held out, or folds."""

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.data.subsets import strata, stratified_indices
from frostline.data.task import CLASSIFICATION, Task
from frostline.data.wording import quoted

LEAST_FOLD_ROWS = 5


def hold_out(examples: Examples, task: Task, size: int, seed: int, *, split: str) -> tuple[Examples, Examples]:
    """Hold out ``size`` stratified rows as ``split``.

    Returns:
        The remaining rows and the rows held out, both in the order of the file.

    Raises:
        FrostlineError: A class would lack rows in one of the two.
    """
    needed = len(np.unique(examples.targets)) if task.problem_type == CLASSIFICATION else 1
    if not needed <= size < len(examples):
        shown = f"all {needed} classes" if needed > 1 else "any row"
        raise FrostlineError(
            f"{examples.name}: {size:,} of {len(examples):,} rows held out for {split} cannot leave {shown} there and "
            f"in training; give more rows or --{split} FILE."
        )
    # Each split has its own generator: equal draws would make validation and test depend on each other.
    rng = np.random.default_rng([seed, *split.encode()])
    chosen = np.zeros(len(examples), dtype=bool)
    chosen[stratified_indices(examples.targets, size, rng)] = True
    rest, held_out = examples.take(np.flatnonzero(~chosen)), examples.take(np.flatnonzero(chosen))
    if task.problem_type == CLASSIFICATION:
        _refuse_exhausted_class(rest, held_out, task, split)
    return rest, held_out


def fold_numbers(examples: Examples, task: Task, folds: int, seed: int) -> npt.NDArray[np.int64]:
    """The fold of each row, 0 to ``folds`` - 1, ``[N]``: stratified and of about equal size.

    Rows with the same text are in the same fold, so that no text is both trained on and scored.

    Raises:
        FrostlineError: A fold has too few rows for a score, or all rows of a class are in one fold.
    """
    shuffled = np.random.default_rng([seed, *b"folds"]).permutation(len(examples))
    order = shuffled[strata(examples.targets)[shuffled].argsort(kind="stable")]  # one class after the other
    numbers = np.empty(len(examples), np.int64)
    numbers[order] = np.arange(len(examples)) % folds
    first: dict[tuple[str, str], int] = {}
    for row, text in enumerate(examples.texts):
        numbers[row] = first.setdefault((text, examples.pairs[row] if examples.pairs else ""), int(numbers[row]))
    if (smallest := int(np.bincount(numbers, minlength=folds).min())) < LEAST_FOLD_ROWS:
        raise FrostlineError(
            f"{examples.name}: {folds} folds of {len(examples):,} rows leave {smallest} in one (equal texts stay together), "
            f"and a score needs {LEAST_FOLD_ROWS}: give fewer --folds, more rows, or --validation FILE."
        )
    for target in np.unique(examples.targets) if task.problem_type == CLASSIFICATION else ():
        rows = np.flatnonzero(examples.targets == target)
        if len(np.unique(numbers[rows])) == 1:
            raise FrostlineError(
                f"{examples.name}, row {examples.rows[rows[0]]}: the label {quoted(task.labels[int(target)])} has too few "
                "rows to be both trained on and scored; add rows, remove it, or give --validation FILE."
            )
    return numbers


def _refuse_exhausted_class(rest: Examples, held_out: Examples, task: Task, split: str) -> None:
    exhausted = np.flatnonzero(~np.isin(held_out.targets, rest.targets))
    if len(exhausted):
        label = task.labels[int(held_out.targets[exhausted[0]])]
        raise FrostlineError(
            f"{held_out.name}, row {held_out.rows[exhausted[0]]}: the label {quoted(label)} has too few rows for training "
            f"and each split that is held out; add rows, remove it, or give --{split} FILE."
        )
