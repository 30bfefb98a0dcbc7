"""The prediction task, decided once from the training table, and the targets of a table."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import Columns
from frostline.data.examples import Targets
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TASK_TYPES, TOKENS
from frostline.data.labels import (
    MAX_CLASSES,
    WHOLE,
    check_declared,
    label_cells,
    label_names,
    label_sets,
    lists_in,
    ordered,
    positions,
    refuse_missing,
    refuse_similar_labels,
    refuse_too_many,
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
    column, where = columns.label, f"{table.name}, column {quoted(columns.label)}"
    cells = label_cells(table, column)
    given = tuple(labels) if labels else table.class_names.get(column)
    if task_type is None and not given and (found := lists_in(cell for cell in cells if cell)):
        raise FrostlineError(
            f"{where}: labels such as {quoted(found[1])} look like lists; choose with --label-separator {found[0]!r} for several "
            f"labels a text, or --task-type {CLASSIFICATION} if each is one class."
        )
    refuse_missing(table, column, cells)
    counts = Counter(cell for cell in cells if cell is not None)
    if task_type is None:
        task_type = CLASSIFICATION if given else _task_type(table, column, cells, counts)
    task = Task(name=name, task_type=task_type, labels=(), columns=columns)
    if task_type == REGRESSION:
        if labels:
            raise FrostlineError(
                "--labels names classes, and a regression has none; leave out --labels or --task-type."
            )
        return task
    known = {*map(whole, given or ())}
    for several in (counts, [*(given or ()), *(one for one in counts if whole(one) not in known)]):
        refuse_similar_labels(where, several, fold_case=not labels)
    if len(counts) < 2:
        raise FrostlineError(
            f"{where}: every row has the label {quoted(cells[0])}; give rows of at least two classes, or name another column "
            "with --label-column."
        )
    if labels:
        check_declared(table, column, tuple(labels), counts)
    if all(map(WHOLE.fullmatch, map(str.strip, counts))):
        counts = Counter({whole(label): rows for label, rows in counts.items()})
    return replace(task, labels=given if given else ordered(counts))


def _task_type(table: Table, column: str, cells: Sequence[str | None], labels: Iterable[str]) -> str:
    """Classification or regression, or an error if the labels could be either."""
    numbers = {label for label in labels if NUMBER.fullmatch(label.strip())}
    texts = {*labels} - numbers
    choose = f"choose with --task-type {CLASSIFICATION} or {REGRESSION}"
    if numbers and texts:
        fewer = texts if len(texts) <= len(numbers) else numbers
        odd = next(i for i, cell in enumerate(cells) if cell in fewer)
        raise FrostlineError(
            f"{table.location(odd, column)}: the column mixes {len(numbers):,} distinct numbers with "
            f"{len(texts):,} distinct texts; correct {quoted(cells[odd])}, or {choose}."
        )
    if texts:
        refuse_too_many(table, column, len(texts), choose)
        return CLASSIFICATION
    integers, many = all(WHOLE.fullmatch(cell.strip()) for cell in numbers), len(numbers) > MAX_CLASSES
    if integers != many:
        return CLASSIFICATION if integers else REGRESSION
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
        wrong = next((i for i, cell in enumerate(cells) if cell is None or not NUMBER.fullmatch(cell.strip())), None)
        if wrong is not None:
            raise FrostlineError(
                f"{table.location(wrong, column)}: {quoted(cells[wrong])} is not a number; write one with a decimal point, or "
                f"pass --task-type {CLASSIFICATION}."
            )
        numbers = np.array([float(cell) for cell in cells if cell is not None])
        if len(infinite := np.flatnonzero(~np.isfinite(numbers))):
            where, cell = table.location(int(infinite[0]), column), cells[int(infinite[0])]
            raise FrostlineError(f"{where}: {quoted(cell)} is too large; correct it.")
        return numbers
    index = positions(task.labels)
    known = [cell if cell in index else cell and whole(cell) for cell in cells]
    unknown = next((i for i, cell in enumerate(known) if cell not in index), None)
    if unknown is not None:
        label = str(cells[unknown])
        raise FrostlineError(
            f"{table.location(unknown, column)}: the label {quoted(label)}{did_you_mean(label, task.labels)} is none of the "
            f"{len(task.labels)} training labels ({listed(task.labels)}); correct it, or add such rows to the training data."
        )
    return np.array([index[cell] for cell in known if cell is not None], dtype=np.int64)
