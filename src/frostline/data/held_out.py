"""Decides which training rows become validation and test rows, where the user gives no data for these splits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.data.specification import HOLD_OUT, NO_TEST, DataSpec, is_word
from frostline.data.splits import LEAST_FOLD_ROWS, fold_numbers, hold_out
from frostline.data.task import Task

NO_TEST_SET = "There is no test set, as requested."
DEFAULT_SHARE = 0.1  # of the training rows, for each of validation and test
MOST_HELD_OUT = 2000  # rows by default, since every run scores them
DEFAULT_FOLDS, FEW_ROWS = 5, 2000  # folds = "auto" uses folds if there are fewer rows


@dataclass(frozen=True, kw_only=True)
class CompleteSplits:
    """All splits after rows were held out.

    Attributes:
        splits: Examples by split. "validation" is absent if there are folds.
        folds: The fold of each training row, ``[N]``, or None.
        notes: What was held out, a sentence each.
    """

    splits: Mapping[str, Examples]
    folds: npt.NDArray[np.int64] | None
    notes: Sequence[str]


def hold_out_missing(given: Mapping[str, Examples], task: Task, spec: DataSpec) -> CompleteSplits:
    """Hold out training rows for validation and test where ``given`` lacks them, or assign the training rows to folds.

    Raises:
        FrostlineError: The options contradict each other, or there are too few rows.
    """
    splits, notes = dict(given), list[str]()
    folds = _number_of_folds(given, spec)
    without_test = is_word(spec.test, NO_TEST)
    if without_test:
        notes.append(NO_TEST_SET)
    elif folds and spec.test is None and "test" not in splits:
        without_test = True
        notes.append("No rows are held out for validation or test; --test FILE adds a test set.")
    unwanted = {"test": without_test, "validation": bool(folds)}
    missing = [split for split in ("test", "validation") if split not in splits and not unwanted[split]]
    size = _held_out_size(len(splits["train"]), task, spec.held_out_share, missing)
    for split in missing:
        rows = len(splits["train"])
        splits["train"], splits[split] = hold_out(splits["train"], task, size, spec.data_seed, split=split)
        notes.append(f"{size:,} of {rows:,} training rows are held out for {split} (data seed {spec.data_seed}).")
    numbers = None
    if folds:
        numbers = fold_numbers(splits["train"], task, folds, spec.data_seed)
        notes.append(
            f"All {len(splits['train']):,} rows are validation rows, in {folds} folds: each run is scored on the fold that it "
            f"does not train on, one fold per seed (data seed {spec.data_seed})."
        )
    return CompleteSplits(splits=splits, folds=numbers, notes=notes)


def _number_of_folds(given: Mapping[str, Examples], spec: DataSpec) -> int:
    """The number of folds, 0 for none; options that contradict folds are an error."""
    rows, has_validation = len(given["train"]), "validation" in given or spec.validation is not None
    if spec.folds == "auto":
        free = not has_validation and spec.held_out_share is None
        return DEFAULT_FOLDS if free and DEFAULT_FOLDS * LEAST_FOLD_ROWS <= rows < FEW_ROWS else 0
    if spec.folds and has_validation:
        raise FrostlineError(
            f"folds = {spec.folds} scores the training rows themselves: leave out either validation or folds."
        )
    if spec.folds and spec.held_out_share is not None and not is_word(spec.test, HOLD_OUT):
        raise FrostlineError(f"folds = {spec.folds} holds out no rows: leave out either held_out_share or folds.")
    return spec.folds


def _held_out_size(rows: int, task: Task, share: float | None, missing: Sequence[str]) -> int:
    """The number of rows to hold out for each missing split, at least one of each class."""
    if share is None:
        size = min(round(DEFAULT_SHARE * rows), MOST_HELD_OUT)
    else:
        size = round(share * rows)
        if share * len(missing) >= 1:
            raise FrostlineError(
                f"held_out_share = {share:g} for each of {' and '.join(missing)} leaves no training rows: give less than "
                f"{1 / len(missing):g}."
            )
    return max(size, len(task.labels), 1)
