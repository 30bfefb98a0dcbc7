"""Read and check labels: one for a text, any number of them, or one for each word.

Several labels of a text are in a column of lists, of texts with a separator, or in a column of 0 and 1 for each label. The labels
of words are tags, in a column of lists.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from itertools import chain
from numbers import Integral
from typing import Any

from frostline import FrostlineError
from frostline.data.columns import INDICATORS, Columns, is_list, items_of
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, TOKENS
from frostline.data.table import Table, as_in_csv, is_missing
from frostline.data.tags import are_entities, entity_type, ordered_tags, refuse_odd_tags
from frostline.data.wording import (
    INTEGER,
    NUMBER,
    comma_joined,
    did_you_mean,
    difference,
    is_storable,
    listed,
    quoted,
    visible,
)

MAX_CLASSES = 20  # more distinct labels than this may be the numbers of a regression, or not labels at all
SEPARATORS = ";|,"  # of the labels of a text, in one cell
LISTS, RECURRING = 0.25, 0.6  # labels look like lists if this share of them are, and this share of their parts recur
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
NAMED = 30  # tags that a message lists, to be copied
UNLABELLED = {None, "", "-1", "-1.0"}  # cells that published test files contain instead of labels
Labels = list[str]  # of one row: one, any number, or one for each word


def label_lists(
    table: Table,
    columns: Columns,
    task_type: str | None,
    names: Sequence[str] = (),
    *,
    numbered: bool = True,
) -> list[Labels | None]:
    """The labels of each row by name. None for a row without a label; for one of several labels, also if its cell is empty.

    If all cells are missing or -1, as in the test files of GLUE, and -1 is none of the ``names`` of labels, no row has a label.
    Numbers in lists are indices of a ``ClassLabel`` if there is one, else of ``names`` if these are ``numbered``.

    Raises:
        FrostlineError: A cell is not a label, not a list of labels, or neither 0 nor 1 in a column for one label.
    """
    if columns.indicators:
        return _of_indicators(table, columns.indicators)
    column, found = columns.label, list[Labels | None]()
    assert column is not None
    if task_type not in (MULTI_LABEL, TOKENS):
        cells = label_cells(table, column)
        if {cell and whole(cell) for cell in {*cells}} <= UNLABELLED - {*map(whole, names)}:
            return [None] * len(cells)
        return [[cell] if cell and cell.strip() else None for cell in cells]
    what = "tag" if task_type == TOKENS else "label"
    remedy = "write a list of its labels, [] for none, or pass what separates them in a text with --label-separator"
    if task_type == TOKENS:
        remedy = "write a list with a tag for each word, or name another column with --label-column"
    classes, known = table.class_names.get(column), names if numbered else ()
    rows = list[list[Any] | None]()
    for n, cell in enumerate(table.cells(column) if columns.separator is None else as_in_csv(table.cells(column))):
        if columns.separator is not None and isinstance(cell, str):
            rows.append([part.strip() for part in cell.split(columns.separator) if part.strip()] or None)
        elif is_missing(cell) or (task_type == TOKENS and is_list(cell) and not len(cell)):
            rows.append(None)
        else:
            rows.append(items_of(cell, table.location(n, column), f"{what}s", remedy))
    if task_type == MULTI_LABEL:
        _refuse_vectors(table, column, rows)
    for n, items in enumerate(rows):
        for k, item in enumerate(items or ()):
            if isinstance(item, bool) or not isinstance(item, str | Integral) or not str(item).strip():
                instead = ", such as O, for each word" if task_type == TOKENS else " or a whole number"
                raise FrostlineError(
                    f"{table.location(n, column, k if task_type == TOKENS else None)}: {quoted(item)} is no {what}; write a "
                    f"text{instead}."
                )
        found.append(None if items is None else [named(item, known, classes) for item in items])
    return found


def _refuse_vectors(table: Table, column: str, rows: Sequence[Sequence[Any] | None]) -> None:
    """Raise an error if each list has a number for every label, such as ``[0, 1, 1]``, instead of the text's own labels.

    All lists are equally long then. They consist of 0 and 1, or most repeat a number, which no list of labels does.
    """
    vectors = [tuple(str(item).strip().casefold() for item in row) for row in rows if row is not None]
    if len({*map(len, vectors)}) != 1 or len(vectors[0]) < 2:
        return
    items, repeat = {*chain.from_iterable(vectors)}, sum(len({*one}) < len(one) for one in vectors)
    of_indicators = items <= INDICATORS.keys() and (repeat or len({*vectors}) > 1)
    if of_indicators or (2 * repeat > len(vectors) and all(map(NUMBER.fullmatch, items))):
        first = next(n for n, row in enumerate(rows) if row is not None)
        raise FrostlineError(
            f"{table.location(first, column)}: {quoted(rows[first])} seems to have a number for each of {len(vectors[0])} "
            "labels, as do all other rows; write a list of the names of its labels, or a column of 0 and 1 for each label, and "
            "pass them with --indicator-columns."
        )


def _of_indicators(table: Table, columns: Sequence[str]) -> list[Labels | None]:
    """The columns that have a 1 in each row. None for a row in which all cells are missing."""
    shown = [["" if is_missing(cell) else str(cell).strip().casefold() for cell in table.cells(one)] for one in columns]
    found = list[Labels | None]()
    for n, cells in enumerate(zip(*shown, strict=True)):
        if {*cells} <= {"nan", *(cell for cell in UNLABELLED if cell is not None)}:
            found.append(None)
            continue
        for column, cell in zip(columns, cells, strict=True):
            if cell not in INDICATORS:
                wrong = "the cell is empty" if not cell else f"{quoted(table.cells(column)[n])} is neither 0 nor 1"
                raise FrostlineError(
                    f"{table.location(n, column)}: {wrong}; write 1 if the text has this label, else 0, or leave the column "
                    "out of --indicator-columns."
                )
        found.append([column for column, cell in zip(columns, cells, strict=True) if INDICATORS[cell]])
    return found


def label_cells(table: Table, column: str) -> list[str | None]:
    """The labels as texts; None for a missing label. In a ``ClassLabel`` column, indices become class names."""
    cells, names = table.cells(column), table.class_names.get(column)
    if names is not None:
        return [names[cell] if cell is not None and 0 <= cell < len(names) else None for cell in cells]
    cells = as_in_csv(cells)
    wrong = next((i for i, cell in enumerate(cells) if not isinstance(cell, str | None)), None)
    if wrong is not None:
        several = f", pass --task-type {MULTI_LABEL} for lists" if is_list(cells[wrong]) else ""
        raise FrostlineError(
            f"{table.location(wrong, column)}: {quoted(cells[wrong])} is neither a text nor a number; give one label per "
            f"row{several}, or name another column with --label-column."
        )
    return cells


def refuse_missing(table: Table, columns: Columns, lists: Sequence[Labels | None]) -> None:
    """Raise an error if a row has no label, unless an empty cell says that the text has none of several labels."""
    missing = [n for n, own in enumerate(lists) if own is None] if columns.separator is None else []
    if missing:
        more = f" (and in {len(missing) - 1:,} more)" if missing[1:] else ""
        column = columns.of_labels[0]
        lost = table.if_missing if table.cells(column)[missing[0]] is None else ""
        raise FrostlineError(
            f"{table.location(missing[0], column)}: the label is missing{more}; write one, remove the row, or leave out all such "
            f"rows with --skip-unlabelled{lost}."
        )


def label_names(
    table: Table, columns: Columns, task_type: str, counts: Counter[str], given: Sequence[str] | None
) -> tuple[str, ...]:
    """All labels in the order of their outputs: those that are given, those of a ``ClassLabel``, or those in the table.

    Columns of 0 and 1 are the labels themselves. Numbers are ordered by value, other labels by code point, and tags of entities
    by type, ``O`` first. ``counts`` are the rows with each label.

    Raises:
        FrostlineError: There are fewer than two labels, or too many, two look the same, or they are not those that are given.
    """
    if columns.indicators:
        return _indicator_names(table, columns.indicators, counts, given)
    column, of_words = columns.label, task_type == TOKENS
    assert column is not None
    where = "--labels" if given and of_words else f"{table.name}, column {quoted(column)}"
    names = tuple(given or table.class_names.get(column, ()))
    if len(set(names)) < len(names):
        raise FrostlineError(
            f"--labels names {quoted(max(names, key=names.count))} more than once; name each once, and put a label with "
            "a comma in double quotes."
        )
    if given and not of_words:
        _refuse_others(where, names, counts)
    known = {*map(whole, names)}
    # The case of plain tags can matter, as in Czech.
    fold_case = are_entities(names or [*counts]) if of_words else not given
    several = [*names, *(one for one in counts if whole(one) not in known and not (of_words and names))]
    refuse_similar_labels(where, several, what="tag" if of_words else "label", fold_case=fold_case)
    if len(names if names and task_type != CLASSIFICATION else counts) < 2:
        found = f"the only label is {quoted(next(iter(counts)))}" if counts else "no row has a label"
        raise FrostlineError(
            f"{where}: {found}; give rows of at least two labels, or name another column with --label-column."
        )
    if of_words and not names and all(map(INTEGER.fullmatch, counts)):
        raise FrostlineError(
            f"{where}: the tags are numbers without names; name them in the order of the numbers with --labels, such as "
            "--labels O,B-person,I-person."
        )
    if task_type == MULTI_LABEL and not names:
        refuse_too_many(table, column, len(counts), "all labels with --labels")
    if not names and task_type == CLASSIFICATION and all(WHOLE.fullmatch(label.strip()) for label in counts):
        names = ordered({*map(whole, counts)})
    names = names or (ordered_tags(counts) if of_words else ordered(counts))
    if of_words:
        refuse_odd_tags(where, names)
    return names


def _indicator_names(
    table: Table, columns: tuple[str, ...], counts: Counter[str], given: Sequence[str] | None
) -> tuple[str, ...]:
    if given:
        raise FrostlineError(
            "--labels is for a label column, and --indicator-columns name the labels: leave --labels out."
        )
    if len(columns) < 2:
        raise FrostlineError(
            f"{table.name}: --indicator-columns {columns[0]} is one label only; name at least two columns, or pass "
            f"--label-column {columns[0]}."
        )
    refuse_similar_labels(f"{table.name}, --indicator-columns", columns, what="column")
    if never := [column for column in columns if not counts[column]]:
        raise FrostlineError(
            f"{table.name}, column {quoted(never[0])}: no row has a 1, so this label cannot be learned; leave the column out "
            "of --indicator-columns, or add such rows."
        )
    return columns


def _refuse_others(where: str, labels: tuple[str, ...], counts: Counter[str]) -> None:
    """Raise an error if the labels that the user gives are not those of the rows."""
    given, found = positions(labels), positions(counts)
    unknown = [one for one in counts if one not in given and whole(one) not in given]
    absent = [one for one in labels if one not in found and whole(one) not in found]
    if unknown:
        hint = did_you_mean(unknown[0], labels)
        if (flag := comma_joined(unknown[:1])) != unknown[0]:
            hint = f" (as CSV, which quotes it: {flag})"
        raise FrostlineError(
            f"{where}: {listed(unknown)} is not among --labels{hint}; add it there or correct it in the file."
        )
    if absent:
        hint = did_you_mean(absent[0], counts)
        raise FrostlineError(
            f"{where}: no row has {listed(absent)}, which --labels names{hint}; remove it there or add such rows."
        )


def label_indices(
    table: Table, columns: Columns, task_type: str, labels: Sequence[str], lists: Sequence[Labels], *, trained: bool
) -> list[list[int]]:
    """The indices of the labels of each row. ``trained``: whether a model has been, so that its labels cannot change.

    Raises:
        FrostlineError: A label is none of ``labels``.
    """
    index, of_words = positions(labels), task_type == TOKENS
    for n, own in enumerate(lists):
        for k, label in enumerate(own):
            if label not in index and whole(label) not in index:
                what, others, remedy = "label", labels, "add such rows to the training data"
                if of_words:
                    others = [one for one in labels if entity_type(one) != entity_type(label)]  # so spelled otherwise
                    every = ordered_tags({*labels, *(one for row in lists for one in row)})
                    what, remedy = "tag", f"pass --labels {comma_joined(every)} to include it"
                    if len(every) > NAMED or INTEGER.fullmatch(label):
                        remedy = "name all tags with --labels"
                if trained:
                    remedy = "leave the row out"
                raise FrostlineError(
                    f"{table.location(n, columns.of_labels[0], k if of_words else None)}: the {what} {quoted(label)}"
                    f"{did_you_mean(label, others)} is none of the {len(labels)} training {what}s ({listed(labels)}); correct "
                    f"it, or {remedy}."
                )
    return [[index[label] if label in index else index[whole(label)] for label in own] for own in lists]


def lists_in(labels: Iterable[str]) -> tuple[str, str] | None:
    """The separator and an example if many labels look like lists, such as ``good;books``; None if they do not.

    The parts of a list are also labels, or parts of others. Those of names such as ``arts; culture`` are not.
    """
    distinct = {label for label in labels if not DECIMAL_COMMA.fullmatch(label)}
    for separator in SEPARATORS:
        parts = {label: {part.strip() for part in label.split(separator)} - {""} for label in distinct}
        lists = [label for label, own in parts.items() if len(own) > 1]
        uses = Counter(part for own in parts.values() for part in own)
        of_lists = {part for label in lists for part in parts[label]}
        recurring = sum(uses[part] > 1 for part in of_lists)
        if len(lists) > 1 and len(lists) >= LISTS * len(distinct) and recurring >= RECURRING * len(of_lists):
            return separator, min(lists)
    return None


def refuse_similar_labels(where: str, labels: Iterable[str], *, what: str, fold_case: bool = True) -> None:
    """Raise an error if a person would take two labels for one, or cannot see one, or if no file can store one.

    Two such labels differ only in white space, invisible characters, Unicode form, letters that look alike or decimals that are
    zero, or in case or how a number is written (``fold_case``), unless the user has named all labels.
    """
    seen: dict[str | Decimal, str] = {}
    for label in dict.fromkeys(labels):
        shown = whole(visible(label, fold_case=fold_case))
        if not shown:
            raise FrostlineError(f"{where}: the {what} {quoted(label)} has no visible character; give it a name.")
        if not is_storable(label):
            raise FrostlineError(f"{where}: the {what} {quoted(label)} contains half a character; write it again.")
        is_number = fold_case and "e" not in shown and NUMBER.fullmatch(shown)  # an exponent may be too large
        other = seen.setdefault(Decimal(shown) if is_number else shown, label)
        if other != label:
            named = what == "label" and len({whole(visible(one, fold_case=False)) for one in (other, label)}) == 2
            differing = difference(other, label)
            raise FrostlineError(
                f"{where}: the {what}s {quoted(other)} and {quoted(label)} look the same"
                f"{f' and differ in {differing}' if differing else ''}; write them alike"
                f"{', or name each label with --labels if they differ' if named else ''}."
            )


def refuse_too_many(table: Table, column: str, labels: int, otherwise: str) -> None:
    """Raise an error if so many different labels are probably none."""
    if labels > max(MAX_CLASSES, len(table) // 2):
        raise FrostlineError(
            f"{table.name}, column {quoted(column)}: {labels:,} different labels in {len(table):,} rows; name the column of the "
            f"labels with --label-column, or {otherwise}."
        )


def whole(label: str) -> str:
    """A whole number without its decimals: ``1`` for ``1.0``, as pandas writes it in a column with missing cells."""
    match = WHOLE.fullmatch(label.strip())
    if match is None:
        return label
    return "0" if match[1] == "-0" else match[1]


def positions(labels: Iterable[str]) -> dict[str, int]:
    """The position of each label, and of each whole number also without decimals."""
    positions = {label: n for n, label in enumerate(labels)}
    return {whole(label): n for label, n in positions.items()} | positions


def ordered(labels: Collection[str]) -> tuple[str, ...]:
    """The labels in their order: numbers by value, texts by code point."""
    numeric = all(NUMBER.fullmatch(label.strip()) for label in labels)
    return tuple(sorted(labels, key=lambda label: (float(label) if numeric else 0.0, label)))


def named(item: object, names: Sequence[str], classes: Sequence[str] | None = None) -> str:
    """The name of a label or tag. A number is an index of the ``classes`` of a ``ClassLabel``.

    Without one, it is an index of the names, unless one of these is a number itself.
    """
    if classes is not None and isinstance(item, Integral):
        return classes[int(item)] if 0 <= int(item) < len(classes) else str(item)
    text, names = str(item), classes or names
    if text in names or not INTEGER.fullmatch(text) or any(INTEGER.fullmatch(name) for name in names):
        return text
    return names[int(text)] if 0 <= int(text) < len(names) else text
