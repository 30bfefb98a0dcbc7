"""The prediction task, decided once from the training table, and the targets of a table."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import Columns
from frostline.data.examples import Targets
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TASK_TYPES, TOKENS
from frostline.data.labels import (
    DECIMAL_COMMA,
    MAX_CLASSES,
    WHOLE,
    Labels,
    label_indices,
    label_lists,
    label_names,
    lists_in,
    refuse_missing,
    refuse_too_many,
)
from frostline.data.table import Table
from frostline.data.tags import are_entities, filled, refuse_wrong_tags
from frostline.data.wording import NUMBER, counted, quoted


@dataclass(frozen=True, kw_only=True)
class Task:
    """The prediction task.

    Attributes:
        name: The name of the task in all results.
        task_type: One of :data:`frostline.data.kinds.TASK_TYPES`.
        labels: The names of the classes in the order of their indices; empty for regression.
        columns: The columns of the training table.
        numbered: Whether numbers in lists are indices of the labels, because the user or a ``ClassLabel`` has named them. Other
            labels have an order of our own.
    """

    name: str
    task_type: str
    labels: tuple[str, ...]
    columns: Columns
    numbered: bool = True


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
    distinct numbers, not all integers, are a regression. In every other case, the user must decide. The labels and their order
    are those of :func:`frostline.data.labels.label_names`.

    Raises:
        FrostlineError: The task is ambiguous, a label is missing, or the table's labels do not match ``labels``.
    """
    assert task_type in (None, *TASK_TYPES)
    names = labels or table.class_names.get(columns.label or "", ())
    lists = label_lists(table, columns, task_type, names)
    where = f"{table.name}, column {quoted(columns.of_labels[0])}"
    if task_type is None and not names and (found := lists_in(own[0] for own in lists if own)):
        raise FrostlineError(
            f"{where}: labels such as {quoted(found[1])} look like lists; choose with --label-separator {found[0]!r} for several "
            f"labels a text, or --task-type {CLASSIFICATION} if each is one class."
        )
    refuse_missing(table, columns, lists)
    counts = Counter(label for own in lists for label in {*(own or ())})
    if task_type is None:
        task_type = CLASSIFICATION if names else _task_type(table, columns.of_labels[0], lists, counts)
    if task_type == REGRESSION and labels:
        raise FrostlineError("--labels names classes, and a regression has none; leave out --labels or --task-type.")
    if task_type == REGRESSION and len(counts) == 1:
        raise FrostlineError(
            f"{where}: every row has the number {quoted(*counts)}; give rows with different ones, or name another column with "
            "--label-column."
        )
    found_names = () if task_type == REGRESSION else label_names(table, columns, task_type, counts, labels)
    return Task(name=name, task_type=task_type, labels=found_names, columns=columns, numbered=bool(names))


def lists_of(table: Table, task: Task) -> list[Labels | None]:
    """The labels of each row of a table of the task, as :func:`frostline.data.labels.label_lists` reads them."""
    return label_lists(table, task.columns, task.task_type, task.labels, numbered=task.numbered)


def _task_type(table: Table, column: str, lists: Sequence[Labels | None], labels: Iterable[str]) -> str:
    """Classification or regression, or an error if the labels could be either."""
    numbers = {label for label in labels if NUMBER.fullmatch(label.strip())}
    texts = {*labels} - numbers
    choose = f"choose with --task-type {CLASSIFICATION} or {REGRESSION}"
    if texts and all(map(DECIMAL_COMMA.fullmatch, map(str.strip, texts))):
        raise FrostlineError(
            f"{table.name}, column {quoted(column)}: labels such as {quoted(min(texts))} look like numbers with a decimal comma; "
            f"write a decimal point, or pass --task-type {CLASSIFICATION} if they are classes."
        )
    if numbers and texts:
        fewer = texts if len(texts) <= len(numbers) else numbers
        odd, cell = next((n, own[0]) for n, own in enumerate(lists) if own and own[0] in fewer)
        raise FrostlineError(
            f"{table.location(odd, column)}: the column mixes {counted(len(numbers), 'distinct number')} with "
            f"{counted(len(texts), 'distinct text')}; correct {quoted(cell)}, or {choose}."
        )
    if texts:
        refuse_too_many(table, column, len(texts), choose)
        return CLASSIFICATION
    integers, many = all(WHOLE.fullmatch(cell.strip()) for cell in numbers), len(numbers) > MAX_CLASSES
    if integers != many:
        return CLASSIFICATION if integers else REGRESSION
    found = counted(len(numbers), "number that is no integer", "different numbers, not all of them integers")
    found = f"{len(numbers):,} different integers" if integers else found
    raise FrostlineError(
        f"{table.name}, column {quoted(column)}: {found}, which may be classes or a quantity; {choose}."
    )


LARGEST = float(np.finfo(np.float32).max)  # models compute with numbers up to this one


def targets_of(table: Table, task: Task, texts: Sequence[str], *, trained: bool = False) -> Targets:
    """The target of every row, ``[N]``: int64 class indices, or float64 numbers for regression.

    For token classification ``[N, W]``: the index of each word's tag, filled up with ``NO_WORD``, where W is the number of words
    of the longest sentence. For texts with any number of labels bool ``[N, C]``: whether a text has a label. ``texts`` are the
    texts or sentences of the rows. ``trained``: whether a model for the task has been, which a message depends on.

    Raises:
        FrostlineError: A label is missing, is not a finite number, or is none of the training labels, or tags do not suit words.
    """
    lists = lists_of(table, task)
    refuse_missing(table, task.columns, lists)
    column, given = task.columns.of_labels[0], [own or [] for own in lists]
    if task.task_type == REGRESSION:
        for n, (cell,) in enumerate(given):
            is_number = NUMBER.fullmatch(cell.strip())
            if not is_number or abs(float(cell)) > LARGEST:
                wrong = f"is not a number; write one with a decimal point, or pass --task-type {CLASSIFICATION}"
                raise FrostlineError(
                    f"{table.location(n, column)}: {quoted(cell)} {'is too large; correct it' if is_number else wrong}."
                )
        return np.array([float(cell) for (cell,) in given])
    indices = label_indices(table, task.columns, task.task_type, task.labels, given, trained=trained)
    if task.task_type == TOKENS:
        refuse_wrong_tags(table, column, given, texts, entities=are_entities(task.labels))
        return filled(indices, max(map(len, indices)))
    if task.task_type == MULTI_LABEL:
        targets = np.zeros((len(table), len(task.labels)), np.bool_)
        for n, own in enumerate(indices):
            targets[n, own] = True
        return targets
    return np.array([index for (index,) in indices], dtype=np.int64)
