"""CSV and TSV files. Every text stays exactly as it is in the file.

Cells are not converted to other types: "NA", "null" and the empty text are texts. Rows are numbered as in a spreadsheet. The
header is row 1, and blank lines count. A line break inside quotation marks does not start a new row.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import NAME_COLUMNS, not_a_header
from frostline.data.formats.encoding import UTF8, open_text, text_encoding
from frostline.data.table import Table, refuse_repeated_columns
from frostline.data.wording import SHOWN_ROWS, quoted

CELL_LIMIT = 2**31 - 1  # characters; the default of the csv module is 131,072


def read_delimited(
    path: Path, column_names: Sequence[str] | None = None, *, skip_ragged: bool = False, encoding: str = UTF8
) -> Table:
    """A table of texts. In tab-separated files, quotation marks are literal. Other files follow the quoting rules of CSV.

    In a .csv file the first line decides the separator: a tab (STS-B), else a comma, else a semicolon.

    Args:
        path: The file.
        column_names: The first columns of a file without a header. Further cells of a row are dropped and counted in the notes.
        skip_ragged: Skip rows with a wrong number of cells and count them in the notes. By default they are an error.
        encoding: The encoding of the file.
    """
    separator, numbered = _numbered_rows(path, encoding)
    header = list(column_names) if column_names else next((cells for _, cells in numbered), [])
    header = _checked_header(path, header, from_user=bool(column_names))
    width, complete, rows, longer, ragged = len(header), list[list[str]](), list[int](), 0, list[int]()
    for row, cells in numbered:
        if not cells and width > 1:
            continue  # a blank line is not a row, except in a table with one column, where it is an empty text
        cells = cells or [""]
        if len(cells) < width or (len(cells) > width and not column_names):
            if skip_ragged:
                ragged.append(row)
                continue
            why = None if column_names else not_a_header(header, complete)
            raise FrostlineError(_ragged_row(path, row, len(cells), width, separator, bool(column_names), why))
        longer += len(cells) > width
        complete.append(cells[:width])
        rows.append(row)
    if not rows:
        reason = (
            f"none of its {len(ragged):,} rows has {width} cells"
            if ragged
            else "the file has no rows" + " below its header" * (not column_names)
        )
        raise FrostlineError(f"{path}: {reason}; give a file with one example per row.")
    if column_names and complete[0] == header:
        raise FrostlineError(f"{path}, row 1: the file has a header with these names; leave out --column-names.")
    columns = {name: list(cells) for name, cells in zip(header, zip(*complete, strict=True), strict=True)}
    return Table(
        name=str(path),
        columns=columns,
        rows=np.array(rows),
        notes=_notes(path, longer, ragged, len(rows), width),
        has_header=not column_names,
    )


def first_row(path: Path, encoding: str | None = None) -> list[str]:
    """The cells of the first row, or an empty list if the file cannot be read."""
    try:
        return next((cells for _, cells in _numbered_rows(path, text_encoding(path, encoding))[1]), [])
    except OSError:
        return []


def _numbered_rows(path: Path, encoding: str) -> tuple[str, Iterator[tuple[int, list[str]]]]:
    """The separator of a file, and its rows with their numbers."""
    separator = _csv_separator(path, encoding) if path.suffix.lower() == ".csv" else "\t"
    return separator, _tab_rows(path, encoding) if separator == "\t" else _csv_rows(path, encoding, separator)


def _csv_separator(path: Path, encoding: str) -> str:
    with open_text(path, encoding) as file:
        first_line = file.readline()
    if "\t" in first_line:
        return "\t"
    return ";" if ";" in first_line and "," not in first_line else ","


def _tab_rows(path: Path, encoding: str) -> Iterator[tuple[int, list[str]]]:
    with open_text(path, encoding) as file:
        for row, line in enumerate(file, start=1):
            content = line.removesuffix("\n").removesuffix("\r")
            yield row, content.split("\t") if content else []


def _csv_rows(path: Path, encoding: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    limit, row = csv.field_size_limit(CELL_LIMIT), 0
    try:
        with open_text(path, encoding, newline="") as file:
            for row, cells in enumerate(csv.reader(file, delimiter=separator, strict=True), start=1):
                yield row, cells
    except csv.Error as error:
        raise FrostlineError(
            f"{path}, row {row + 1}: the quotation marks do not match ({error}); put the text in double quotes and "
            "double those inside it, or save the file as .tsv, where quotation marks are literal."
        ) from None
    finally:
        csv.field_size_limit(limit)


def _checked_header(path: Path, header: list[str], from_user: bool) -> list[str]:
    """The names of the columns without surrounding white space. A column without a name is named by its number."""
    if not header:
        raise FrostlineError(f"{path}: the file is empty; give a file with a header row and one example per row.")
    if any("\r" in name for name in header):
        raise FrostlineError(f"{path}: the lines end with \\r alone, as on old Macs; save the file with \\n instead.")
    names = [name.strip() or f"column {i}" for i, name in enumerate(header, start=1)]
    if len(set(names)) < len(names) and not from_user and (why := not_a_header(names, [])):
        raise FrostlineError(f"{path}, row 1: {why}; {NAME_COLUMNS}.")
    refuse_repeated_columns("--column-names" if from_user else f"{path}, row 1", names)
    return names


def _ragged_row(
    path: Path, row: int, found: int, expected: int, separator: str, from_user: bool, without_header: str | None
) -> str:
    expectation = f"--column-names has {expected}" if from_user else f"the header has {expected}"
    remedy = f"put a text that contains {quoted(separator)} or a line break in double quotes"
    if separator == "\t":
        remedy = "remove the tab or line break from its text, or save the file as .csv with commas"
    if without_header:
        expectation, remedy = f"row 1 has {expected}", f"{without_header}: {NAME_COLUMNS}"
    return f"{path}, row {row}: the row has {found} {'cell' if found == 1 else 'cells'} and {expectation}; {remedy}."


def _notes(path: Path, longer: int, ragged: Sequence[int], complete: int, width: int) -> tuple[str, ...]:
    notes = []
    if longer:
        have = "row has" if longer == 1 else "rows have"
        notes.append(f"{path}: {longer:,} {have} more cells than the {width} named columns; these cells are dropped.")
    if ragged:
        shown = ", ".join(str(row) for row in ragged[:SHOWN_ROWS])
        more = ", ..." if len(ragged) > SHOWN_ROWS else ""
        notes.append(
            f"{path}: {len(ragged):,} of {len(ragged) + complete:,} rows do not have the {width} cells of the header "
            f"(row {shown}{more}) and are skipped."
        )
    return tuple(notes)
