"""What is to be predicted: classes in a fixed order, or a number. Decided once, on the training table."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Number

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.columns import Columns
from frostline.data.tables import Table
from frostline.data.wording import folded, listed, nearest, quoted

CLASSIFICATION, REGRESSION = "single_label_classification", "regression"  # transformers' config.problem_type
MANY = 20  # more different numbers than this are no longer taken for classes

INTEGER = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

HIDDEN = {None, "", "-1", "-1.0"}  # how published test files write "not told"


@dataclass(frozen=True, kw_only=True)
class Task:
    """``labels`` in the order of the class indices; empty for regression."""

    name: str
    problem_type: str
    labels: tuple[str, ...]
    columns: Columns


def label_cells(table: Table, column: str) -> list[str | None]:
    """The labels as texts; None where there is none. Indices of a ``ClassLabel`` column become its names."""
    cells, names = table.cells(column), table.class_names.get(column)
    if names is not None:
        return [names[cell] if cell is not None and 0 <= cell < len(names) else None for cell in cells]
    wrong = next((i for i, cell in enumerate(cells) if not isinstance(cell, str | Number | None)), None)
    if wrong is not None:
        raise FrostlineError(
            f"{table.where(wrong, column)}: {quoted(cells[wrong])} is neither text nor number; give one label a row, "
            "or name another column with --label-column."
        )
    missing = (cell is None or cell != cell for cell in cells)  # JSON lines may hold NaN, which is no equal of itself
    return [None if gone else str(cell) for cell, gone in zip(cells, missing, strict=True)]


def hidden(cells: Sequence[str | None], task: Task) -> bool:
    """Whether a table has no labels at all, as GLUE's test files: all missing, empty or -1."""
    return set(cells) <= HIDDEN - set(task.labels)


def decide_task(
    table: Table,
    columns: Columns,
    *,
    name: str,
    problem_type: str | None = None,
    labels: Sequence[str] | None = None,
) -> Task:
    """The task that the labels of the training table show, or what the user says it is.

    Texts, booleans and up to 20 different whole numbers are classes; more than 20 different numbers, some of them not
    whole, are a regression; anything between must be told. Order of the classes: ``labels``, the ``ClassLabel``
    column's, numbers by value, texts by code point.
    """
    if problem_type not in (None, CLASSIFICATION, REGRESSION):
        raise FrostlineError(
            f"--problem-type {quoted(problem_type)} is not known{nearest(problem_type, [CLASSIFICATION, REGRESSION])}; "
            f"pass {CLASSIFICATION} or {REGRESSION}."
        )
    assert columns.label is not None
    cells = label_cells(table, columns.label)
    _refuse_missing(table, columns.label, cells)
    given = tuple(labels) if labels else table.class_names.get(columns.label)
    if problem_type is None:
        problem_type = CLASSIFICATION if given else _problem_type(table, columns.label, cells)
    task = Task(name=name, problem_type=problem_type, labels=(), columns=columns)
    if problem_type == REGRESSION:
        if labels:
            raise FrostlineError("--labels names classes, and a regression has none; leave it or --problem-type out.")
        return task
    counts = Counter(cell for cell in cells if cell is not None)
    _refuse_look_alikes(table, columns.label, cells, counts)
    if len(counts) < 2:
        raise FrostlineError(
            f"{table.name}, column {quoted(columns.label)}: every row has the label {quoted(cells[0])}; give rows of "
            "at least two classes, or name another column with --label-column."
        )
    if labels:
        _check_declared(table, columns.label, tuple(labels), counts)
    return replace(task, labels=given if given else _ordered(counts))


def targets_of(table: Table, task: Task) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    """Class indices or numbers of every row of a table; a label that training never shows is an error."""
    assert task.columns.label is not None
    cells = label_cells(table, task.columns.label)
    _refuse_missing(table, task.columns.label, cells)
    if task.problem_type == REGRESSION:
        return _numbers(table, task.columns.label, cells)
    index = {label: i for i, label in enumerate(task.labels)}
    unknown = next((i for i, cell in enumerate(cells) if cell not in index), None)
    if unknown is not None:
        label = str(cells[unknown])
        raise FrostlineError(
            f"{table.where(unknown, task.columns.label)}: the label {quoted(label)} is none of the "
            f"{len(index)} labels of training ({listed(task.labels)}){nearest(label, task.labels)}; correct it, or add "
            "such rows to training."
        )
    return np.array([index[cell] for cell in cells if cell is not None], dtype=np.int64)


def _problem_type(table: Table, column: str, cells: Sequence[str | None]) -> str:
    counts = Counter(cell for cell in cells if cell)
    numbers = {cell for cell in counts if NUMBER.fullmatch(cell.strip())}
    texts = counts.keys() - numbers
    say = f"say with --problem-type {CLASSIFICATION} or {REGRESSION}"
    if numbers and texts:
        fewer = texts if len(texts) <= len(numbers) else numbers
        odd = next(i for i, cell in enumerate(cells) if cell in fewer)
        raise FrostlineError(
            f"{table.where(odd, column)}: {quoted(cells[odd])} stands among {len(numbers):,} different numbers and "
            f"{len(texts):,} different texts; correct it, or {say} what the labels are."
        )
    if texts:
        if len(texts) > max(MANY, len(cells) // 2):
            raise FrostlineError(
                f"{table.name}, column {quoted(column)}: {len(texts):,} different labels in {len(cells):,} rows; name "
                f"the column of the labels with --label-column, or {say} what they are."
            )
        return CLASSIFICATION
    whole = all(INTEGER.fullmatch(cell.strip()) for cell in numbers)
    if whole and len(numbers) <= MANY:
        return CLASSIFICATION
    if not whole and len(numbers) > MANY:
        return REGRESSION
    kind = "whole numbers" if whole else "numbers, some not whole"
    raise FrostlineError(
        f"{table.name}, column {quoted(column)}: {len(numbers):,} different {kind}, which may be classes or a "
        f"quantity; {say}."
    )


def _refuse_missing(table: Table, column: str, cells: Sequence[str | None]) -> None:
    missing = [i for i, cell in enumerate(cells) if cell is None or not cell.strip()]
    if missing:
        more = f" (and in {len(missing) - 1:,} more rows)" if len(missing) > 1 else ""
        raise FrostlineError(
            f"{table.where(missing[0], column)}: the label is missing{more}; write one or take the row out."
        )


def _refuse_look_alikes(table: Table, column: str, cells: Sequence[str | None], counts: Counter[str]) -> None:
    seen: dict[str, str] = {}
    for label in counts:
        other = seen.setdefault(_look(label), label)
        if other != label:
            shown = " and ".join(
                f"{quoted(one)} ({counts[one]:,} rows, first row {table.rows[cells.index(one)]})"
                for one in (other, label)
            )
            raise FrostlineError(
                f"{table.name}, column {quoted(column)}: the labels {shown} look the same; write them alike."
            )


def _look(label: str) -> str:
    """The label without case, white space, Unicode form and leading zeros."""
    plain = folded(unicodedata.normalize("NFKC", label))
    return str(int(plain)) if INTEGER.fullmatch(plain) else plain


def _check_declared(table: Table, column: str, labels: tuple[str, ...], counts: Counter[str]) -> None:
    if len(set(labels)) < len(labels):
        raise FrostlineError(f"--labels names {quoted(max(labels, key=labels.count))} more than once; name each once.")
    unknown, unseen = [one for one in counts if one not in labels], [one for one in labels if one not in counts]
    if unknown:
        hint = nearest(unknown[0], labels)
        raise FrostlineError(
            f"{table.name}, column {quoted(column)}: {listed(unknown)} is not among --labels{hint}; add it there or "
            "correct it in the file."
        )
    if unseen:
        hint = nearest(unseen[0], counts)
        raise FrostlineError(
            f"{table.name}, column {quoted(column)}: no row has {listed(unseen)}, which --labels names{hint}; take it "
            "out there or add such rows."
        )


def _ordered(counts: Counter[str]) -> tuple[str, ...]:
    numeric = all(NUMBER.fullmatch(label.strip()) for label in counts)
    return tuple(sorted(counts, key=lambda label: (float(label) if numeric else 0.0, label)))


def _numbers(table: Table, column: str, cells: Sequence[str | None]) -> npt.NDArray[np.float64]:
    wrong = next((i for i, cell in enumerate(cells) if cell is None or not NUMBER.fullmatch(cell.strip())), None)
    if wrong is not None:
        raise FrostlineError(
            f"{table.where(wrong, column)}: {quoted(cells[wrong])} is not a number; write one with a decimal point, or "
            f"pass --problem-type {CLASSIFICATION}."
        )
    numbers = np.array([float(cell) for cell in cells if cell is not None])
    endless = np.flatnonzero(~np.isfinite(numbers))
    if len(endless):
        first = int(endless[0])
        raise FrostlineError(f"{table.where(first, column)}: {quoted(cells[first])} is too large; correct it.")
    return numbers
