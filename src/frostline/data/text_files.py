"""Tables in text files: CSV, TSV and JSON, and the encoding that reads them.

In CSV and TSV files, every text stays exactly as it is in the file, but blanks after separators such as ``, `` belong to none.
"NA", "null" and the empty text are texts. Rows are numbered as in a spreadsheet. The header is row 1, and blank lines count. A
line break inside quotation marks does not start a new row. A JSON file has one object per line, one list of objects, or one
object alone, which is a row.
"""

import codecs
import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import NAME_COLUMNS, WORDS, not_a_header
from frostline.data.table import Table, checked_names
from frostline.data.wording import counted, first_rows, quoted

MARKS = {  # byte order marks name the encoding; that of UTF-16 begins that of UTF-32
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
CELL_LIMIT = 2**31 - 1  # characters; the default of the csv module is 131,072


def read_text(path: Path, given: str | None = None) -> str:
    """The text of a file: in the encoding of its byte order mark, else in UTF-8 if it is valid UTF-8, else as ``given``.

    Raises:
        FrostlineError: The file cannot be decoded, or there is no such encoding.
    """
    content, named = path.read_bytes(), None if given is None else _codec(given)
    marked = next((name for mark, name in MARKS.items() if content.startswith(mark)), None)
    # UTF-16 has a zero before or after each ASCII character.
    zeros = [content[first:4096:2].count(0) for first in (0, 1)]
    is_wide = named is not None and named.startswith(("utf-16", "utf-32"))
    if is_wide and not any(zeros):
        is_wide, named = False, None
    elif named in ("utf-16", "utf-32"):
        named += "-le" if zeros[1] > zeros[0] else "-be"
    elif not marked and not is_wide and 4 * max(zeros) > len(content[:4096]):
        raise FrostlineError(
            f"{path}: the file seems to be UTF-16 without a mark; pass --encoding utf-16, or save it as UTF-8."
        )
    for encoding in (marked, named if is_wide or content.isascii() else "utf-8", named or "utf-8"):
        if encoding is not None:
            try:
                return content.decode(encoding)
            except UnicodeError as problem:
                error = problem
    start = error.start if isinstance(error, UnicodeDecodeError) else 0
    if b"\0" in content:
        raise FrostlineError(
            f"{path}: this is not a text file in {given or 'UTF-8'}; export the table as CSV, or correct the ending of its name."
        )
    number = content.count(b"\n", 0, start) + 1
    place = f"{path}, line {number}: byte {start:,} (0x{content[start]:02x})"
    if "unexpected end of data" in str(error):
        raise FrostlineError(
            f"{place} begins a character that is cut off; the file is not complete: write or copy it again."
        )
    lines = [line for line in content.split(b"\n") if not line.isascii()]
    broken = sum(line.decode(errors="ignore").encode() != line for line in lines)
    if named in (None, "utf-8") and broken < len(lines):
        raise FrostlineError(
            f"{place} is not UTF-8, as in {broken:,} of the {len(lines):,} lines with other characters than ASCII: the file "
            "mixes encodings, or is damaged; write these lines again."
        )
    line = content[content.rfind(b"\n", 0, start) + 1 :].partition(b"\n")[0].decode("cp1252", "replace")
    word = next((word for word in re.split(r"[\s,;|\"]+", line) if not word.isascii()), line)
    raise FrostlineError(
        f"{place} is not {given or 'UTF-8'}; in cp1252 it reads {quoted(word, 24)}: pass --encoding cp1252 if this is right, "
        "else that of the program that wrote it, or save it as UTF-8."
    )


def _codec(name: str) -> str:
    """The usual name of an encoding of texts."""
    try:
        TextIOWrapper(BytesIO(), encoding=name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise FrostlineError(
            f"--encoding {quoted(name)} is not known; give one such as cp1252, cp949, cp932, gb18030 or utf-16."
        ) from None


def read_delimited(path: Path, column_names: Sequence[str] | None, *, skip_ragged: bool, encoding: str | None) -> Table:
    """A table of texts. In tab-separated files, quotation marks are literal. Other files follow the quoting rules of CSV.

    In a .csv file the first line decides the separator: a tab (STS-B), else a comma, else a semicolon. ``column_names`` are the
    first columns of a file without a header: further cells of a row are dropped and counted in the notes. With ``skip_ragged``,
    rows with a wrong number of cells are skipped and counted; by default they are an error.
    """
    separator, numbered = _numbered_rows(path, encoding)
    header = list(column_names) if column_names else next((cells for _, cells in numbered), [])
    if not header:
        raise FrostlineError(f"{path}: the file is empty; give a file with a header row and one example per row.")
    names = [name.strip() or f"column {i}" for i, name in enumerate(header, start=1)]
    if len(set(names)) < len(names) and not column_names and (why := not_a_header(names, [])):
        raise FrostlineError(f"{path}, row 1: {why}; {NAME_COLUMNS}.")
    header = checked_names("--column-names" if column_names else f"{path}, row 1", names)
    width, complete, rows, longer, ragged = len(header), list[list[str]](), list[int](), 0, list[int]()
    for row, cells in numbered:
        if not cells and width > 1:
            continue  # a blank line is not a row, except in a table with one column, where it is an empty text
        cells = cells or [""]
        if len(cells) < width or (len(cells) > width and not column_names):
            if skip_ragged:
                ragged.append(row)
                continue
            expected = "--column-names has" if column_names else "the header has"
            remedy = f"put a text that contains {quoted(separator[0])} or a line break in double quotes"
            if separator == "\t":
                remedy = "remove the tab or line break from its text, or save the file as .csv with commas"
            if not column_names and (why := not_a_header(header, complete)):
                expected, remedy = "row 1 has", f"{why}: {NAME_COLUMNS}"
            count = counted(len(cells), "cell")
            raise FrostlineError(f"{path}, row {row}: the row has {count} and {expected} {width}; {remedy}.")
        longer += len(cells) > width
        complete.append(cells[:width])
        rows.append(row)
    if not rows:
        reason = f"none of its {len(ragged):,} rows has {width} cells" if ragged else "the file has no rows"
        raise FrostlineError(f"{path}: {reason}; give a file with one example per row.")
    if column_names and complete[0] == header:
        raise FrostlineError(f"{path}, row 1: the file has a header with these names; leave out --column-names.")
    notes = []
    if separator.endswith(" "):
        notes.append(f"{path}: a blank follows each separator of row 1, so blanks after separators belong to no cell.")
    if longer:
        have = counted(longer, "row has", "rows have")
        notes.append(f"{path}: {have} more cells than the {width} named columns; these cells are dropped.")
    if ragged:
        notes.append(
            f"{path}: {len(ragged):,} of {len(ragged) + len(rows):,} rows do not have the {width} cells of the header "
            f"(row {first_rows(ragged)}) and are skipped."
        )
    if swallowed := _rows_in_cells(separator, complete):
        which = first_rows([rows[n] for n in swallowed])
        notes.append(
            f"Warning: {path}: a cell has lines that look like rows of their own (row {which}), as if a quotation mark began one "
            "text and ended a later one; double such marks and put the text in double quotes, or save the file as .tsv."
        )
    if separator == "\t" and (marked := _rows_with_marks_of_csv(complete)):
        which = first_rows([rows[n] for n in marked])
        notes.append(
            f"Warning: {path}: cells are in quotation marks (row {which}), as programs write them in CSV. In tab-separated files "
            "they belong to the text; save the file as .csv with commas."
        )
    return Table(
        name=str(path),
        columns={name: list(cells) for name, cells in zip(header, zip(*complete, strict=True), strict=True)},
        rows=np.array(rows),
        notes=tuple(notes),
        has_header=not column_names,
    )


def first_row(path: Path, encoding: str | None) -> list[str]:
    """The cells of the first row, or an empty list if the file cannot be read."""
    with suppress(OSError):
        return next((cells for _, cells in _numbered_rows(path, encoding)[1]), [])
    return []


def _numbered_rows(path: Path, encoding: str | None) -> tuple[str, Iterator[tuple[int, list[str]]]]:
    """The separator of a file, with a blank if one follows each separator of its first row, and its rows with their numbers."""
    text, separator = read_text(path, encoding), "\t"
    if path.suffix.lower() == ".csv":
        first = text.partition("\n")[0]
        separator = "\t" if "\t" in first else ";" if ";" in first and "," not in first else ","
        if separator != "\t" and 0 < first.count(separator) == first.count(f"{separator} "):
            separator += " "

    def rows() -> Iterator[tuple[int, list[str]]]:
        if separator == "\t":  # only line feeds end a line: U+2028 or a lone carriage return may be in a text
            for row, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
                content = line.removesuffix("\r")
                yield row, content.split("\t") if content else []
            return
        limit, row = csv.field_size_limit(CELL_LIMIT), 0
        try:
            lines, skip = StringIO(text, newline=""), separator.endswith(" ")
            found = csv.reader(lines, delimiter=separator[0], skipinitialspace=skip, strict=True)
            for row, cells in enumerate(found, start=1):
                yield row, cells
        except csv.Error as error:
            raise FrostlineError(
                f"{path}, row {row + 1}: the quotation marks do not match ({error}); put the text in double quotes and "
                "double those inside it, or save the file as .tsv, where quotation marks are literal."
            ) from None
        finally:
            csv.field_size_limit(limit)

    return separator, rows()


def _rows_in_cells(separator: str, rows: Sequence[Sequence[str]]) -> list[int]:
    """The positions of rows of which a cell has a line that looks like a row.

    It has a cell for each column, and one of them recurs in its column, as labels do.
    """
    recurring = [
        {cell for cell, count in Counter(cells).items() if cell and count > 1} for cells in zip(*rows, strict=True)
    ]

    def is_row(line: str, column: int) -> bool:
        """Whether a line of a cell in this column looks like a row."""
        parts = line.split(separator)
        others = (part in recurring[n] for n, part in enumerate(parts) if n != column)
        return len(parts) == len(recurring) and any(others)

    return [
        n
        for n, cells in enumerate(rows)
        if any("\n" in cell and any(is_row(line, m) for line in cell.split("\n")) for m, cell in enumerate(cells))
    ]


QUOTED = re.compile(r'"(?:[^"]|"")*"')  # a cell as CSV quotes it


def _rows_with_marks_of_csv(rows: Sequence[Sequence[str]]) -> list[int]:
    """The positions of rows with a cell that CSV has quoted: of all rows if all cells of a column are.

    Else, none unless this is so of every cell with a quotation mark. Texts may be quotations. So marks inside have to be doubled,
    or all cells with a comma are in marks, and no others, as a spreadsheet writes a tab-separated file.
    """
    if len(rows) > 1 and any(all(map(QUOTED.fullmatch, cells)) for cells in zip(*rows, strict=True)):
        return list(range(len(rows)))
    marked = [(n, cell) for n, cells in enumerate(rows) for cell in cells if '"' in cell]
    if not all(QUOTED.fullmatch(cell) for _, cell in marked):
        return []
    others = (cell for cells in rows for cell in cells if '"' not in cell)
    with_comma = len(marked) > 1 and all("," in cell for _, cell in marked) and not any("," in cell for cell in others)
    if not with_comma and not any('""' in cell[1:-1] for _, cell in marked):
        return []
    return list(dict.fromkeys(n for n, _ in marked))


class _Object(dict[str, Any]):
    """An object of JSON. Of a key that is written twice, it has the last value, and ``names`` has the key twice."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.names = [name for name, _ in pairs]


def read_json(path: Path, encoding: str | None = None) -> Table:
    """A table of JSON objects. If an object lacks a key, the value is missing.

    Rows are numbered by line, or by position in the list, from 1.
    """
    text = read_text(path, encoding)
    if not text.strip():
        raise FrostlineError(f"{path}: the file is empty; give a file with one JSON object per line.")
    numbered, rows = _numbered_objects(path, text), list[dict[str, Any]]()
    for row, item in numbered:
        if not isinstance(item, _Object):
            kind = type(item).__name__
            raise FrostlineError(
                f'{path}, row {row}: this is a {kind}; write an object such as {{"text": ...}} instead.'
            )
        rows.append(dict(zip(checked_names(f"{path}, row {row}", item.names), item.values(), strict=True)))
    columns = list(dict.fromkeys(name for item in rows for name in item))
    if not columns:
        raise FrostlineError(f"{path}: the file has no rows; give a file with one JSON object per line.")
    if len(rows) == 1 and all(isinstance(value, list | dict) for value in rows[0].values()):
        words = (value for name, value in rows[0].items() if name.casefold() in WORDS and isinstance(value, list))
        if not any(value and isinstance(value[0], str) for value in words):  # so no example
            raise FrostlineError(
                f"{path}: the file has one object instead of one for each example; write a list of objects, an example each (in "
                "pandas orient='records')."
            )
    return Table(
        name=str(path),
        columns={name: [item.get(name) for item in rows] for name in columns},
        rows=np.array([row for row, _ in numbered]),
    )


def _numbered_objects(path: Path, text: str) -> list[tuple[int, Any]]:
    """The items of the list, or the objects of all lines with their numbers, or the object that is the whole file."""
    found, number = list[tuple[int, Any]](), 0
    try:
        if text.lstrip().startswith("["):
            return list(enumerate(json.loads(text, object_pairs_hook=_Object), start=1))
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                found.append((number, json.loads(line, object_pairs_hook=_Object)))
        return found
    except (ValueError, RecursionError) as error:
        with suppress(ValueError, RecursionError):
            if not found:
                return [(1, json.loads(text, object_pairs_hook=_Object))]
        reason = (
            "nested too deep" if isinstance(error, RecursionError) else getattr(error, "msg", "a number is too long")
        )
        raise FrostlineError(
            f"{path}, line {number or getattr(error, 'lineno', 1)}: this is not JSON ({reason}); correct that line, and write "
            "one object per line or one list of objects."
        ) from None
