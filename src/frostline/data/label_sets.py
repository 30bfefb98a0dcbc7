"""Read texts with any number of labels: from a column of lists, of texts with a separator, or a column of 0 and 1 for each label.

Targets are bool, ``[N, C]``: whether a text has a label.
"""

from collections import Counter
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.columns import INDICATORS, Columns, is_list, items_of
from frostline.data.labels import are_too_many, check_declared, ordered, places_of, refuse_similar_labels
from frostline.data.parsing import INTEGER
from frostline.data.table import Table, is_missing
from frostline.data.wording import did_you_mean, listed, quoted

LabelSets = npt.NDArray[np.bool_]

BLANK = {None, "", "nan"}
EMPTY = {*BLANK, "-1", "-1.0"}  # cells that test files contain instead of 0 or 1


def label_names(table: Table, columns: Columns, given: Sequence[str] | None) -> tuple[str, ...]:
    """All labels in the order of their outputs: those that are given, those of a ``ClassLabel``, or those in the table.

    Columns of 0 and 1 are the labels themselves.

    Raises:
        FrostlineError: There are fewer than two labels, or no row has a label that the user names.
    """
    if columns.indicators:
        return _indicator_names(table, columns, given)
    column = columns.label
    assert column is not None
    names = tuple(given or table.class_names.get(column, ()))
    sets = _named_lists(table, columns, names)
    counts = Counter(label for labels in sets for label in set(labels))
    if given:
        check_declared(table, column, tuple(given), counts)
    refuse_similar_labels(
        f"{table.name}, column {quoted(column)}", [*counts, *names], places_of(table, sets), fold_case=not given
    )
    if not names:
        if are_too_many(len(counts), len(table)):
            raise FrostlineError(
                f"{table.name}, column {quoted(column)}: {len(counts):,} different labels in {len(table):,} rows; name the "
                "column of the labels with --label-column, or all labels with --labels."
            )
        names = ordered(counts)
    if len(names) < 2:
        found = f"the only label is {quoted(names[0])}" if names else "no row has a label"
        raise FrostlineError(
            f"{table.name}, column {quoted(column)}: {found}; give rows of at least two labels, or name another column with "
            "--label-column."
        )
    return names


def label_sets(table: Table, columns: Columns, labels: Sequence[str]) -> LabelSets:
    """Whether each row has each label, ``[N, C]``. An empty list is a text without a label.

    Raises:
        FrostlineError: A cell is no list, a label is unknown, or a cell of an indicator column is neither 0 nor 1.
    """
    if columns.indicators:
        return np.stack([_indicators(table, column) for column in columns.indicators], 1)
    assert columns.label is not None
    index = {label: n for n, label in enumerate(labels)}
    found = np.zeros((len(table), len(labels)), np.bool_)
    for n, items in enumerate(_named_lists(table, columns, labels)):
        for label in items:
            if label not in index:
                raise FrostlineError(
                    f"{table.location(n, columns.label)}: the label {quoted(label)}{did_you_mean(label, labels)} is none of the "
                    f"{len(index)} training labels ({listed(labels)}); correct it, or add such rows to the training data."
                )
            found[n, index[label]] = True
    return found


def has_no_label_sets(table: Table, columns: Columns) -> bool:
    """Whether no row says which labels it has, as in published test files."""
    if columns.indicators:
        return all(_shown(cell) in EMPTY for column in columns.indicators for cell in table.cells(column))
    assert columns.label is not None
    cells = table.cells(columns.label)
    return not any(len(cell) if is_list(cell) else str(cell).strip() for cell in cells if cell is not None)


def _named_lists(table: Table, columns: Columns, labels: Sequence[str]) -> list[list[str]]:
    """The names of the labels of each row. Numbers are indices of a ``ClassLabel`` if there is one, else of ``labels``."""
    assert columns.label is not None
    by_index = {str(n): name for n, name in enumerate(table.class_names.get(columns.label, ()))}
    if by_index:
        return [[by_index.get(item, item) for item in items] for items in _lists(table, columns)]
    return [[_named(item, labels) for item in items] for items in _lists(table, columns)]


def _lists(table: Table, columns: Columns) -> list[list[str]]:
    """The labels of each row as texts. Numbers become texts."""
    column, separator = columns.label, columns.separator
    assert column is not None
    remedy = (
        "write a list of its labels, [] for none, or pass what separates the labels of a text with --label-separator"
    )
    if separator is not None:
        remedy = "write a text, empty for no label"
    found = []
    for n, cell in enumerate(table.cells(column)):
        location = table.location(n, column)
        if separator is not None and (isinstance(cell, str) or is_missing(cell)):
            text = cell if isinstance(cell, str) else ""
            found.append([part.strip() for part in text.split(separator) if part.strip()])
            continue
        items = items_of(cell, location, "labels", remedy)
        for item in items:
            if isinstance(item, bool) or not isinstance(item, str | Integral) or not str(item).strip():
                raise FrostlineError(f"{location}: {quoted(item)} is no label; write a text or a whole number.")
        found.append([str(item) for item in items])
    return found


def _named(label: str, names: Sequence[str]) -> str:
    """The name of a label. A number is an index of the names, unless the names themselves are numbers."""
    if label in names or not INTEGER.fullmatch(label) or all(INTEGER.fullmatch(name) for name in names):
        return label
    return names[int(label)] if 0 <= int(label) < len(names) else label


def _indicator_names(table: Table, columns: Columns, given: Sequence[str] | None) -> tuple[str, ...]:
    if given:
        raise FrostlineError(
            "--labels is for a label column, and --indicator-columns name the labels: leave --labels out."
        )
    if len(columns.indicators) < 2:
        raise FrostlineError(
            f"{table.name}: --indicator-columns {columns.indicators[0]} is one label only; name at least two columns, or pass "
            f"--label-column {columns.indicators[0]}."
        )
    refuse_similar_labels(f"{table.name}, --indicator-columns", columns.indicators, what="column")
    for column in columns.indicators:
        if not _indicators(table, column).any():
            raise FrostlineError(
                f"{table.name}, column {quoted(column)}: no row has a 1, so this label cannot be learned; leave the column out "
                "of --indicator-columns, or add such rows."
            )
    return columns.indicators


def _indicators(table: Table, column: str) -> LabelSets:
    """Whether each row has a 1 in a column of 0 and 1, ``[N]``."""
    cells = table.cells(column)
    known = [INDICATORS.get(_shown(cell) or "") for cell in cells]
    if None in known:
        n = known.index(None)
        found = f"{quoted(cells[n])} is neither 0 nor 1"
        if _shown(cells[n]) in BLANK:
            found = "the cell is empty"
        skip = ", or leave out rows without any label with --skip-unlabelled" if found == "the cell is empty" else ""
        raise FrostlineError(
            f"{table.location(n, column)}: {found}; write 1 if the text has this label, else 0, or leave the column out of "
            f"--indicator-columns{skip}."
        )
    return np.array(known, np.bool_)


def _shown(cell: Any) -> str | None:
    return None if cell is None else str(cell).strip().casefold()
