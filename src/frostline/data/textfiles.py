"""CSV, TSV and JSON files, read so that every text comes out as it stands in the file.

No library's type guessing touches a cell: "NA", "null" and the empty text are texts. Row numbers are those that a
spreadsheet shows (the header is row 1, a quoted line break does not count, a blank line does); in a JSON file they
are line numbers, or positions in the list counted from 1.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.wording import listed, quoted

SHOWN_ROWS = 10
CELL_LIMIT = 2**31 - 1  # characters; the csv module stops at 131,072 unless told


class Contents(NamedTuple):
    """What a file holds: cells by column, the row number of each, and what a user should be told."""

    columns: dict[str, list[Any]]
    rows: npt.NDArray[np.int64]
    notes: tuple[str, ...] = ()


def read_delimited(
    path: Path, column_names: Sequence[str] | None = None, *, leave_out_ragged: bool = False
) -> Contents:
    """A table of texts. Tab-separated cells are literal; other files follow the quoting rules of CSV.

    In a .csv file the first line decides the separator: a tab (STS-B), else a comma, else a semicolon. ``column_names``
    says that the file has no header and names the leading columns; what a row holds beyond them is left out, and
    counted in the notes. Another row whose cells are not as many as the columns is an error or, with
    ``leave_out_ragged``, left out and counted in the notes too.
    """
    separator, numbered = _numbered(path)
    header = list(column_names) if column_names else next((cells for _, cells in numbered), [])
    _check_header(path, header, given=bool(column_names))
    width, cells_of, rows, longer, ragged = len(header), [], [], 0, list[int]()
    for row, cells in numbered:
        if not cells and width > 1:
            continue  # a blank line: between rows it is nothing, in a table of one column it is an empty text
        cells = cells or [""]
        if len(cells) < width or (len(cells) > width and not column_names):
            if leave_out_ragged:
                ragged.append(row)
                continue
            raise FrostlineError(_ragged(path, row, len(cells), width, separator, bool(column_names)))
        longer += len(cells) > width
        cells_of.append(cells[:width])
        rows.append(row)
    if not rows:
        whole = f"none of its {len(ragged):,} rows has {width} cells" if ragged else "there are no rows in it"
        raise FrostlineError(f"{path}: {whole}; give a file with one example a row.")
    if column_names and cells_of[0] == header:
        raise FrostlineError(f"{path}, row 1: the names given are the file's own header; leave out --column-names.")
    columns = {name: list(cells) for name, cells in zip(header, zip(*cells_of, strict=True), strict=True)}
    notes = []
    if longer:
        have = "row has" if longer == 1 else "rows have"
        notes.append(f"{path}: {longer:,} {have} more cells than the {width} columns named; the rest was left out.")
    if ragged:
        notes.append(_left_out(path, ragged, len(rows), width))
    return Contents(columns, np.array(rows), tuple(notes))


def first_row(path: Path) -> list[str]:
    """The cells of the first row, to tell whether it is a header; none where the file cannot be read."""
    try:
        return next((cells for _, cells in _numbered(path)[1]), [])
    except (OSError, UnicodeDecodeError):
        return []


def read_json(path: Path) -> Contents:
    """JSON lines, or one list of objects. A key that a row does not have is a missing value there."""
    with _opened(path) as file:
        start = file.read(4096).lstrip()
    if not start:
        raise FrostlineError(f"{path}: the file is empty; give a file with one JSON object a line.")
    numbered = list(_json_items(path) if start[0] == "[" else _json_lines(path))
    for row, item in numbered:
        if not isinstance(item, dict):
            kind = type(item).__name__
            raise FrostlineError(f'{path}, row {row}: a {kind} where an object such as {{"text": ...}} is needed.')
    names = list(dict.fromkeys(name for _, item in numbered for name in item))
    if not names:
        raise FrostlineError(f"{path}: there are no rows in it; give a file with one JSON object a line.")
    return Contents(
        {name: [item.get(name) for _, item in numbered] for name in names}, np.array([row for row, _ in numbered])
    )


def _opened(path: Path) -> TextIO:
    """Only a line feed ends a line: splitting at U+2028 or at a lone carriage return would cut texts in two."""
    return path.open(encoding="utf-8-sig", newline="\n")


def _numbered(path: Path) -> tuple[str, Iterator[tuple[int, list[str]]]]:
    """The separator of a file, and its rows with their numbers."""
    separator = _csv_separator(path) if path.suffix.lower() == ".csv" else "\t"
    return separator, _tab_rows(path) if separator == "\t" else _csv_rows(path, separator)


def _csv_separator(path: Path) -> str:
    with _opened(path) as file:
        first_line = file.readline()
    if "\t" in first_line:
        return "\t"
    return ";" if ";" in first_line and "," not in first_line else ","


def _tab_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    with _opened(path) as file:
        for row, line in enumerate(file, start=1):
            content = line.removesuffix("\n").removesuffix("\r")
            yield row, content.split("\t") if content else []


def _csv_rows(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    limit, row = csv.field_size_limit(CELL_LIMIT), 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for row, cells in enumerate(csv.reader(file, delimiter=separator, strict=True), start=1):
                yield row, cells
    except csv.Error as error:
        raise FrostlineError(
            f"{path}, row {row + 1}: its quotation marks do not add up ({error}); put the text in double quotes and "
            "double those inside it, or save the file as .tsv, where they are literal."
        ) from None
    finally:
        csv.field_size_limit(limit)


def _json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    with _opened(path) as file:
        for row, line in enumerate(file, start=1):
            if line.strip():
                yield row, _parsed(path, line, row)


def _json_items(path: Path) -> Iterator[tuple[int, Any]]:
    return enumerate(_parsed(path, path.read_text(encoding="utf-8-sig")), start=1)


def _parsed(path: Path, text: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        reason, at = getattr(error, "msg", "nested too deep"), getattr(error, "lineno", 1) if line is None else line
        raise FrostlineError(
            f"{path}, line {at}: this is not JSON ({reason}); correct that line, and write one object a line or one "
            "list of objects."
        ) from None


def _check_header(path: Path, header: list[str], given: bool) -> None:
    """Strips the names and names the nameless, in place; a name that stands twice is an error."""
    if not header:
        raise FrostlineError(f"{path}: the file is empty; give a file with a header row and one example a row.")
    if any("\0" in name for name in header):
        raise FrostlineError(f"{path}: this looks like UTF-16; save it as UTF-8: {iconv(path, 'utf-16')}.")
    if any("\r" in name for name in header):
        raise FrostlineError(f"{path}: its lines end as on old Macs (\\r alone); save it with \\n at their ends.")
    header[:] = [name.strip() or f"column {i}" for i, name in enumerate(header, start=1)]
    twice = [name for name in dict.fromkeys(header) if header.count(name) > 1]
    if twice:
        where = "--column-names" if given else f"{path}, row 1"
        raise FrostlineError(f"{where}: {listed(twice)} stands more than once; give each column a name of its own.")


def _ragged(path: Path, row: int, found: int, expected: int, separator: str, given: bool) -> str:
    against = f"{expected} columns are named" if given else f"the header has {expected}"
    remedy = (
        "take the tab or line break out of its text, or save the file as .csv"
        if separator == "\t"
        else f"put a text that holds {quoted(separator)} or a line break in double quotes"
    )
    return f"{path}, row {row}: {found} cells where {against}; {remedy}."


def _left_out(path: Path, ragged: Sequence[int], whole: int, width: int) -> str:
    shown = ", ".join(str(row) for row in ragged[:SHOWN_ROWS])
    more = ", ..." if len(ragged) > SHOWN_ROWS else ""
    return (
        f"{path}: {len(ragged):,} of {len(ragged) + whole:,} rows do not have the {width} cells of the header "
        f"(row {shown}{more}) and are left out."
    )


def iconv(path: Path, encoding: str) -> str:
    """The command that makes a UTF-8 file of it."""
    return f"iconv -f {encoding} -t utf-8 '{path}' > '{path.stem}-utf8{path.suffix}'"


def not_utf8(path: Path) -> str:
    """The sentence for a file that cannot be decoded: the first byte that is wrong, and how to save it anew."""
    content = path.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return f"{path}: the file is UTF-16, not UTF-8; save it as UTF-8: {iconv(path, 'utf-16')}."
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        return (
            f"{path}, line {line}: byte {error.start:,} (0x{byte:02x}) is not UTF-8; save the file as UTF-8, for "
            f"example: {iconv(path, 'latin1')} (cp1252, cp949, ... where it was written so)."
        )
    return f"{path}: the file changed while it was read; try again."
