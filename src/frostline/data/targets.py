"""Read the targets of a task from the label column of a table."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.examples import Targets
from frostline.data.label_sets import label_sets
from frostline.data.labels import label_cells, positions, refuse_missing, whole
from frostline.data.parsing import NUMBER
from frostline.data.sentences import sentences
from frostline.data.specification import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.data.table import Table
from frostline.data.tags import tag_indices
from frostline.data.task import Task
from frostline.data.wording import did_you_mean, listed, quoted


def targets_of(table: Table, task: Task) -> Targets:
    """The target of every row, ``[N]``: int64 class indices, or float64 numbers for regression.

    For token classification ``[N, W]``: the index of each word's tag, filled up with ``NO_WORD``. For texts with any number of
    labels bool ``[N, C]``: whether a text has a label.

    Raises:
        FrostlineError: A label is missing, is not a finite number, or is not among the training labels.
    """
    if task.task_type == MULTI_LABEL:
        return label_sets(table, task.columns, task.labels)
    column = task.columns.label
    assert column is not None
    if task.task_type == TOKENS:
        return tag_indices(table, column, task.labels, sentences(table, task.columns.text))
    cells = label_cells(table, column)
    refuse_missing(table, column, cells)
    if task.task_type == REGRESSION:
        return _numbers(table, column, cells)
    return _class_indices(table, column, cells, task.labels)


def _class_indices(
    table: Table, column: str, cells: Sequence[str | None], labels: Sequence[str]
) -> npt.NDArray[np.int64]:
    """The position of each row's label among the training labels."""
    index = positions(labels)
    known = [cell if cell in index else cell and whole(cell) for cell in cells]
    unknown = next((i for i, cell in enumerate(known) if cell not in index), None)
    if unknown is not None:
        label = str(cells[unknown])
        raise FrostlineError(
            f"{table.location(unknown, column)}: the label {quoted(label)}{did_you_mean(label, labels)} is none of the "
            f"{len(labels)} training labels ({listed(labels)}); correct it, or add such rows to the training data."
        )
    return np.array([index[cell] for cell in known if cell is not None], dtype=np.int64)


def _numbers(table: Table, column: str, cells: Sequence[str | None]) -> npt.NDArray[np.float64]:
    """The labels as finite numbers."""
    wrong = next((i for i, cell in enumerate(cells) if cell is None or not NUMBER.fullmatch(cell.strip())), None)
    if wrong is not None:
        raise FrostlineError(
            f"{table.location(wrong, column)}: {quoted(cells[wrong])} is not a number; write one with a decimal point, or "
            f"pass --task-type {CLASSIFICATION}."
        )
    numbers = np.array([float(cell) for cell in cells if cell is not None])
    infinite = np.flatnonzero(~np.isfinite(numbers))
    if len(infinite):
        first = int(infinite[0])
        raise FrostlineError(f"{table.location(first, column)}: {quoted(cells[first])} is too large; correct it.")
    return numbers
