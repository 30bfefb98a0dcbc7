"""The prediction task, decided once from the training table, and the targets of a table."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.columns import Columns
from frostline.data.examples import Targets
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TASK_TYPES, TOKENS
from frostline.data.labels import (
    MAX_CLASSES,
    WHOLE,
    are_too_many,
    check_declared,
    label_cells,
    label_names,
    label_sets,
    lists_in,
    ordered,
    places_of,
    positions,
    refuse_missing,
    refuse_similar_labels,
    whole,
)
from frostline.data.table import Table
from frostline.data.tags import sentences, tag_indices, tag_names
from frostline.data.wording import NUMBER, did_you_mean, listed, quoted


@dataclass(frozen=True, kw_only=True)
class Task:
    """The prediction task.

    Attributes:
        name: The name of the task in all results.
        task_type: One of :data:`frostline.data.kinds.TASK_TYPES`.
        labels: The names of the classes in the order of their indices; empty for regression.
        columns: The columns of the training table.
    """

    name: str
    task_type: str
    labels: tuple[str, ...]
    columns: Columns


def decide_task(
    table: Table,
    columns: Columns,
    *,
    name: str,
    task_type: str | None = None,
    labels: Sequence[str] | None = None,
) -> Task:
    """The task, decided from the labels of the training table or by the user.

    Texts, booleans and at most 20 distinct integers are classes, also if the integers are written as 0.0 and 1.0. More than 20
    distinct numbers, not all integers, are a regression. In every other case, the user must decide. Classes have the order of
    ``labels``, else the order of the
    ``ClassLabel`` column. Without both, numbers are ordered by value and texts by code point. For the tags of token
    classification see :func:`frostline.data.tags.tag_names`, and for texts with any number of labels
    :func:`frostline.data.labels.label_names`.

    Raises:
        FrostlineError: The task is ambiguous, a label is missing, or the table's labels do not match ``labels``.
    """
    assert task_type in (None, *TASK_TYPES)
    if task_type == MULTI_LABEL:
        return Task(name=name, task_type=MULTI_LABEL, labels=label_names(table, columns, labels), columns=columns)
    assert columns.label is not None
    if task_type == TOKENS:
        return Task(name=name, task_type=TOKENS, labels=tag_names(table, columns.label, labels), columns=columns)
    cells = label_cells(table, columns.label)
    given = tuple(labels) if labels else table.class_names.get(columns.label)
    if task_type is None and not given:
        _refuse_lists(table, columns.label, cells)
    refuse_missing(table, columns.label, cells)
    if task_type is None:
        task_type = CLASSIFICATION if given else _task_type(table, columns.label, cells)
    task = Task(name=name, task_type=task_type, labels=(), columns=columns)
    if task_type == REGRESSION:
        if labels:
            raise FrostlineError(
                "--labels names classes, and a regression has none; leave out --labels or --task-type."
            )
        return task
    counts = Counter(cell for cell in cells if cell is not None)
    where, places = f"{table.name}, column {quoted(columns.label)}", places_of(table, [[str(cell)] for cell in cells])
    refuse_similar_labels(where, counts, places, fold_case=not labels)
    known = {*map(whole, given or ())}
    refuse_similar_labels(
        where, [*(given or ()), *(one for one in counts if whole(one) not in known)], places, fold_case=not labels
    )
    if len(counts) < 2:
        raise FrostlineError(
            f"{table.name}, column {quoted(columns.label)}: every row has the label {quoted(cells[0])}; give rows of "
            "at least two classes, or name another column with --label-column."
        )
    if labels:
        check_declared(table, columns.label, tuple(labels), counts)
    if all(map(WHOLE.fullmatch, map(str.strip, counts))):
        counts = Counter({whole(label): rows for label, rows in counts.items()})
    return replace(task, labels=given if given else ordered(counts))


def _refuse_lists(table: Table, column: str, cells: Sequence[str | None]) -> None:
    """Raise an error if the labels look like lists of labels."""
    if found := lists_in(cell for cell in cells if cell):
        raise FrostlineError(
            f"{table.name}, column {quoted(column)}: labels such as {quoted(found[1])} look like lists; choose with "
            f"--label-separator {found[0]!r} for several labels a text, or --task-type {CLASSIFICATION} if each is one class."
        )


def _task_type(table: Table, column: str, cells: Sequence[str | None]) -> str:
    """Classification or regression, or an error if the labels could be either."""
    counts = Counter(cell for cell in cells if cell)
    numbers = {cell for cell in counts if NUMBER.fullmatch(cell.strip())}
    texts = counts.keys() - numbers
    choose = f"choose with --task-type {CLASSIFICATION} or {REGRESSION}"
    if numbers and texts:
        fewer = texts if len(texts) <= len(numbers) else numbers
        odd = next(i for i, cell in enumerate(cells) if cell in fewer)
        raise FrostlineError(
            f"{table.location(odd, column)}: the column mixes {len(numbers):,} distinct numbers with "
            f"{len(texts):,} distinct texts; correct {quoted(cells[odd])}, or {choose}."
        )
    if texts:
        if are_too_many(len(texts), len(cells)):
            raise FrostlineError(
                f"{table.name}, column {quoted(column)}: {len(texts):,} different labels in {len(cells):,} rows; name "
                f"the column of the labels with --label-column, or {choose}."
            )
        return CLASSIFICATION
    integers = all(WHOLE.fullmatch(cell.strip()) for cell in numbers)
    if integers and len(numbers) <= MAX_CLASSES:
        return CLASSIFICATION
    if not integers and len(numbers) > MAX_CLASSES:
        return REGRESSION
    kind = "integers" if integers else "numbers, not all of them integers"
    raise FrostlineError(
        f"{table.name}, column {quoted(column)}: {len(numbers):,} different {kind}, which may be classes or a "
        f"quantity; {choose}."
    )


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
