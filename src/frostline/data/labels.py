"""Read and check labels: one for a text, or any number of them.

Several labels of a text are in a column of lists, of texts with a separator, or in a column of 0 and 1 for each label. Their
targets are bool, ``[N, C]``: whether a text has a label.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.columns import INDICATORS, Columns, is_list, items_of
from frostline.data.kinds import MULTI_LABEL
from frostline.data.table import Table, as_in_csv, is_missing
from frostline.data.wording import INTEGER, NUMBER, comma_joined, did_you_mean, difference, listed, looks, quoted

MAX_CLASSES = 20  # more distinct labels than this may be the numbers of a regression, or not labels at all
SEPARATORS = ";|,"  # of the labels of a text, in one cell
LISTS, RECURRING = 0.25, 0.6  # labels look like lists if this share of them are, and this share of their parts recur
DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")
UNLABELLED = {None, "", "-1", "-1.0"}  # cells that published test files contain instead of labels


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


def refuse_missing(table: Table, column: str, cells: Sequence[str | None]) -> None:
    """Raise an error if a label is missing or empty."""
    missing = [i for i, cell in enumerate(cells) if cell is None or not cell.strip()]
    if missing:
        more = f" (and in {len(missing) - 1:,} more)" if missing[1:] else ""
        lost = table.if_missing if cells[missing[0]] is None else ""
        raise FrostlineError(
            f"{table.location(missing[0], column)}: the label is missing{more}; write one, remove the row, or leave out all such "
            f"rows with --skip-unlabelled{lost}."
        )


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


def refuse_similar_labels(where: str, labels: Iterable[str], *, what: str = "label", fold_case: bool = True) -> None:
    """Raise an error if a person would take two labels for one, or cannot see one.

    They differ only in white space, invisible characters, Unicode form, letters that look alike or decimals that are zero, or in
    case or leading zeros (``fold_case``), unless the user has named all labels.
    """
    seen: dict[str, str] = {}
    for label in dict.fromkeys(labels):
        appearances = {*map(whole, looks(label, fold_case=fold_case))}
        if "" in appearances:
            raise FrostlineError(f"{where}: the {what} {quoted(label)} has no visible character; give it a name.")
        for one in appearances:
            other = seen.setdefault(str(int(one)) if fold_case and INTEGER.fullmatch(one) else one, label)
            if other != label:
                exact = [{*map(whole, looks(each, fold_case=False))} for each in (other, label)]
                named = what == "label" and exact[0].isdisjoint(exact[1])
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


def check_declared(table: Table, column: str, labels: tuple[str, ...], counts: Counter[str]) -> None:
    """Raise an error if the labels that the user gives are not those of the rows, each once."""
    if len(set(labels)) < len(labels):
        raise FrostlineError(
            f"--labels names {quoted(max(labels, key=labels.count))} more than once; name each once, and put a label with "
            "a comma in double quotes."
        )
    given, found = positions(labels), positions(counts)
    unknown = [one for one in counts if one not in given and whole(one) not in given]
    absent = [one for one in labels if one not in found and whole(one) not in found]
    if unknown:
        hint = did_you_mean(unknown[0], labels)
        if (flag := comma_joined(unknown[:1])) != unknown[0]:
            hint = f" (as CSV, which quotes it: {flag})"
        raise FrostlineError(
            f"{table.name}, column {quoted(column)}: {listed(unknown)} is not among --labels{hint}; add it there or "
            "correct it in the file."
        )
    if absent:
        hint = did_you_mean(absent[0], counts)
        raise FrostlineError(
            f"{table.name}, column {quoted(column)}: no row has {listed(absent)}, which --labels names{hint}; remove it "
            "there or add such rows."
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


def ordered(counts: Counter[str]) -> tuple[str, ...]:
    """The labels in their order: numbers by value, texts by code point."""
    numeric = all(NUMBER.fullmatch(label.strip()) for label in counts)
    return tuple(sorted(counts, key=lambda label: (float(label) if numeric else 0.0, label)))


LabelSets = npt.NDArray[np.bool_]

EMPTY = {"", "nan", "-1", "-1.0"}  # cells that test files contain instead of 0 or 1


def label_names(table: Table, columns: Columns, given: Sequence[str] | None) -> tuple[str, ...]:
    """All labels in the order of their outputs: those that are given, those of a ``ClassLabel``, or those in the table.

    Columns of 0 and 1 are the labels themselves. Fewer than two labels, and labels that no row has, are an error.
    """
    if columns.indicators:
        return _indicator_names(table, columns, given)
    column = columns.label
    assert column is not None
    names = tuple(given or table.class_names.get(column, ()))
    counts = Counter(label for labels in _named_lists(table, columns, names) for label in set(labels))
    if given:
        check_declared(table, column, tuple(given), counts)
    refuse_similar_labels(f"{table.name}, column {quoted(column)}", [*counts, *names], fold_case=not given)
    if not names:
        refuse_too_many(table, column, len(counts), "all labels with --labels")
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


def _named_lists(table: Table, columns: Columns, labels: Sequence[str]) -> list[list[str]]:
    """The names of the labels of each row. Numbers are indices of a ``ClassLabel`` if there is one, else of ``labels``."""
    column, separator = columns.label, columns.separator
    assert column is not None
    classes = table.class_names.get(column)
    remedy = (
        "write a list of its labels, [] for none, or pass what separates the labels of a text with --label-separator"
        if separator is None
        else "write a text, empty for no label"
    )
    found = []
    for n, cell in enumerate(table.cells(column)):
        location = table.location(n, column)
        if separator is not None and (isinstance(cell, str) or is_missing(cell)):
            parts = cell.split(separator) if isinstance(cell, str) else []
            items = [part.strip() for part in parts if part.strip()]
        else:
            items = items_of(cell, location, "labels", remedy)
        for item in items:
            if isinstance(item, bool) or not isinstance(item, str | Integral) or not str(item).strip():
                raise FrostlineError(f"{location}: {quoted(item)} is no label; write a text or a whole number.")
        found.append([named(item, labels, classes) for item in items])
    return found


def named(item: object, names: Sequence[str], classes: Sequence[str] | None = None) -> str:
    """The name of a label or tag. A number is an index of the ``classes`` of a ``ClassLabel``.

    Without one, it is an index of the names, unless they are numbers themselves.
    """
    if classes is not None and isinstance(item, Integral):
        return classes[int(item)] if 0 <= int(item) < len(classes) else str(item)
    text, names = str(item), classes or names
    if text in names or not INTEGER.fullmatch(text) or all(INTEGER.fullmatch(name) for name in names):
        return text
    return names[int(text)] if 0 <= int(text) < len(names) else text


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
    shown = [str(cell).strip().casefold() if cell is not None else "" for cell in table.cells(column)]
    wrong = next((n for n, cell in enumerate(shown) if cell not in INDICATORS), None)
    if wrong is not None:
        blank = shown[wrong] in ("", "nan")
        found = "the cell is empty" if blank else f"{quoted(table.cells(column)[wrong])} is neither 0 nor 1"
        skip = ", or leave out rows without any label with --skip-unlabelled" if blank else ""
        raise FrostlineError(
            f"{table.location(wrong, column)}: {found}; write 1 if the text has this label, else 0, or leave the column out of "
            f"--indicator-columns{skip}."
        )
    return np.array([INDICATORS[cell] for cell in shown], np.bool_)
