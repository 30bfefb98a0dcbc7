"""Read and check the cells of a label column."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from frostline import FrostlineError
from frostline.data.columns import is_list
from frostline.data.parsing import INTEGER, NUMBER, comma_joined
from frostline.data.specification import MULTI_LABEL
from frostline.data.table import Table, as_in_csv
from frostline.data.wording import did_you_mean, difference, listed, looks, quoted

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


def all_unlabelled(cells: Sequence[str | None], labels: Sequence[str]) -> bool:
    """Whether no row has a label, as in the test files of GLUE: all cells are missing, empty or -1, and -1 is not a class."""
    return {cell and whole(cell) for cell in cells} <= UNLABELLED - set(map(whole, labels))


def refuse_missing(table: Table, column: str, cells: Sequence[str | None]) -> None:
    """Raise an error if a label is missing or empty."""
    missing = [i for i, cell in enumerate(cells) if cell is None or not cell.strip()]
    if missing:
        others = len(missing) - 1
        more = f" (and in {others:,} more {'row' if others == 1 else 'rows'})" if others else ""
        lost = table.if_missing if cells[missing[0]] is None else ""
        raise FrostlineError(
            f"{table.location(missing[0], column)}: the label is missing{more}; write one, remove the row, or leave out all such "
            f"rows with --skip-unlabelled{remedy_of_lists(cell for cell in cells if cell)}{lost}."
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


def remedy_of_lists(labels: Iterable[str]) -> str:
    """What else to do about an error of labels if they look like lists, else an empty string."""
    if (found := lists_in(labels)) is None:
        return ""
    return f", or pass --label-separator {found[0]!r} and no --task-type if labels such as {quoted(found[1])} are lists"


def places_of(table: Table, labels: Sequence[Sequence[str]]) -> dict[str, str]:
    """The number of rows and the first row of each label for messages, from the labels of each row."""
    rows: dict[str, list[int]] = {}
    for row, of_row in enumerate(labels):
        for label in dict.fromkeys(of_row):
            rows.setdefault(label, []).append(row)
    return {label: f" ({len(own):,} rows, first row {table.rows[own[0]]})" for label, own in rows.items()}


def refuse_similar_labels(
    where: str,
    labels: Iterable[str],
    places: Mapping[str, str] | None = None,
    *,
    what: str = "label",
    fold_case: bool = True,
) -> None:
    """Raise an error if a person would take two labels for one, or cannot see one.

    They differ only in white space, invisible characters, Unicode form, letters that look alike or decimals that are zero, or in
    case or leading zeros, unless the user has named all labels.

    Args:
        where: Where the labels are, for the message: a file and a column, or a flag.
        labels: The labels, which may repeat.
        places: What the message adds to a label.
        what: What the labels are, for the message.
        fold_case: Whether labels that differ only in case or leading zeros are refused.
    """
    seen: dict[str, str] = {}
    for label in dict.fromkeys(labels):
        appearances = looks(label, fold_case=fold_case)
        if "" in appearances:
            raise FrostlineError(f"{where}: the {what} {quoted(label)} has no visible character; give it a name.")
        for one in map(whole, appearances):
            other = seen.setdefault(str(int(one)) if fold_case and INTEGER.fullmatch(one) else one, label)
            if other != label:
                shown = " and ".join(f"{quoted(each)}{(places or {}).get(each, '')}" for each in (other, label))
                differing = difference(other, label)
                named = what == "label" and not {*map(whole, looks(other, fold_case=False))} & {
                    *map(whole, looks(label, fold_case=False))
                }
                raise FrostlineError(
                    f"{where}: the {what}s {shown} look the same{f' and differ in {differing}' if differing else ''}; write "
                    f"them alike{', or name each label with --labels if they differ' if named else ''}."
                )


def are_too_many(labels: int, rows: int) -> bool:
    """Whether so many different labels in so many rows are probably no labels."""
    return labels > max(MAX_CLASSES, rows // 2)


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
