"""Tables in text files: CSV, TSV and JSON, and the encoding that reads them.

In CSV and TSV files, every text stays exactly as it is in the file. "NA", "null" and the empty text are texts. Rows are numbered
as in a spreadsheet. The header is row 1, and blank lines count. A line break inside quotation marks does not start a new row. A
JSON file has one object per line, one list of objects, or one object alone, which is a row.
"""

import codecs
import csv
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO, TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import NAME_COLUMNS, PAIRS, TEXTS, WORDS, not_a_header
from frostline.data.table import Table, refuse_repeated_columns
from frostline.data.wording import first_rows, quoted

UTF8 = "utf-8-sig"  # with or without a byte order mark
MARKS = {  # byte order marks; that of UTF-16 begins that of UTF-32
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
CELL_LIMIT = 2**31 - 1  # characters; the default of the csv module is 131,072


def open_text(path: Path, encoding: str, newline: str = "\n") -> TextIO:
    """Open a file. By default lines end at line feeds only: ending them at U+2028 or a lone carriage return would split texts."""
    return path.open(encoding=encoding, newline=newline)


def text_encoding(path: Path, given: str | None = None) -> str:
    """The encoding that reads a file: ``given``, or UTF-8 if the file is UTF-8, since hardly a file is by chance.

    Raises:
        FrostlineError: The file cannot be decoded, or there is no such encoding.
    """
    content, named = path.read_bytes(), None if given is None else _codec(given)
    is_wide = named is not None and named.startswith(("utf-16", "utf-32"))
    if marked := next((name for mark, name in MARKS.items() if content.startswith(mark)), None):
        if named and named.startswith(marked):
            return marked
        instead = f", not {given}" if given else ""
        raise FrostlineError(
            f"{path}: the file is {marked.upper()}{instead}; pass --encoding {marked}, or save it as UTF-8."
        )
    if is_wide and b"\0" not in content:
        raise FrostlineError(f"{path}: the file is not {given}; leave out --encoding, or correct it.")
    if named in ("utf-16", "utf-32"):  # without a mark, one of the two orders of bytes makes sense
        readable = (one for one in (f"{named}-le", f"{named}-be") if _first_error(content, one) is None)
        if found := next((one for one in readable if "\n" in content.decode(one)), None):
            return found
        raise FrostlineError(f"{path}: the file is not {given}; leave out --encoding, or correct it.")
    error = _first_error(content, "utf-8")
    begin = content[:4096]
    if not is_wide and 2 * max(begin[::2].count(0), begin[1::2].count(0)) > max(1, len(begin) // 2):
        raise FrostlineError(
            f"{path}: the file seems to be UTF-16 without a mark; pass --encoding utf-16, or save it as UTF-8."
        )
    if error is None and not is_wide and (named is None or named.startswith("utf-8") or not content.isascii()):
        return UTF8
    if named is not None and not named.startswith("utf-8"):
        error = _first_error(content, named)
    if error is None and named is not None:
        return named
    if b"\0" in content:
        raise FrostlineError(
            f"{path}: this is not a UTF-8 text file; export the table as CSV, or correct the ending of its name."
        )
    start = error.start if isinstance(error, UnicodeDecodeError) else 0
    number = content.count(b"\n", 0, start) + 1
    place = f"{path}, line {number}: byte {start:,} (0x{content[start]:02x})"
    if start > len(content) - 4 and "end of data" in str(error):
        raise FrostlineError(
            f"{place} begins a character that is cut off; the file is not complete: write or copy it again."
        )
    lines = [line for line in content.split(b"\n") if not line.isascii()]
    broken = sum(_first_error(line, "utf-8") is not None for line in lines)
    if named is None and broken < len(lines):
        raise FrostlineError(
            f"{place} is not UTF-8, as in {broken:,} of the {len(lines):,} lines with other characters than ASCII: the file "
            "mixes encodings, or is damaged; write these lines again."
        )
    line = content[content.rfind(b"\n", 0, start) + 1 :].partition(b"\n")[0].decode("cp1252", "replace")
    word = next((word for word in re.split(r"[\s,;|\"]+", line) if not word.isascii()), line)
    raise FrostlineError(
        f"{place} is not {given or 'UTF-8'}; in cp1252 it reads "
        f"{quoted(word, 24)}: pass --encoding cp1252 if this is right, else that of the program that wrote it, or save it as "
        "UTF-8."
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


def _first_error(content: bytes, encoding: str) -> UnicodeError | None:
    try:
        content.decode(encoding)
    except UnicodeError as error:
        return error
    return None


def read_delimited(
    path: Path, column_names: Sequence[str] | None = None, *, skip_ragged: bool = False, encoding: str = UTF8
) -> Table:
    """A table of texts. In tab-separated files, quotation marks are literal. Other files follow the quoting rules of CSV.

    In a .csv file the first line decides the separator: a tab (STS-B), else a comma, else a semicolon. ``column_names`` are the
    first columns of a file without a header: further cells of a row are dropped and counted in the notes. With ``skip_ragged``,
    rows with a wrong number of cells are skipped and counted; by default they are an error.
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
            expected = "--column-names has" if column_names else "the header has"
            remedy = f"put a text that contains {quoted(separator)} or a line break in double quotes"
            if separator == "\t":
                remedy = "remove the tab or line break from its text, or save the file as .csv with commas"
            if not column_names and (why := not_a_header(header, complete)):
                expected, remedy = "row 1 has", f"{why}: {NAME_COLUMNS}"
            count = f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'}"
            raise FrostlineError(f"{path}, row {row}: the row has {count} and {expected} {width}; {remedy}.")
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
    notes = []
    if longer:
        have = "row has" if longer == 1 else "rows have"
        notes.append(f"{path}: {longer:,} {have} more cells than the {width} named columns; these cells are dropped.")
    if ragged:
        notes.append(
            f"{path}: {len(ragged):,} of {len(ragged) + len(rows):,} rows do not have the {width} cells of the header "
            f"(row {first_rows(ragged)}) and are skipped."
        )
    columns = {name: list(cells) for name, cells in zip(header, zip(*complete, strict=True), strict=True)}
    return Table(
        name=str(path),
        columns=columns,
        rows=np.array(rows),
        notes=tuple(notes),
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
    separator = "\t"
    if path.suffix.lower() == ".csv":
        with open_text(path, encoding) as file:
            first = file.readline()
        separator = "\t" if "\t" in first else ";" if ";" in first and "," not in first else ","

    def rows() -> Iterator[tuple[int, list[str]]]:
        if separator == "\t":
            with open_text(path, encoding) as file:
                for row, line in enumerate(file, start=1):
                    content = line.removesuffix("\n").removesuffix("\r")
                    yield row, content.split("\t") if content else []
            return
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

    return separator, rows()


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


def read_json(path: Path, encoding: str = UTF8) -> Table:
    """A table of JSON objects. If an object lacks a key, the value is missing.

    Rows are numbered by line, or by position in the list, from 1.
    """
    with open_text(path, encoding) as file:
        start = file.read(4096).lstrip()
    if not start:
        raise FrostlineError(f"{path}: the file is empty; give a file with one JSON object per line.")
    if start[0] == "[":
        numbered = list(enumerate(_parsed(path, path.read_text(encoding=encoding)), start=1))
    else:
        numbered = _objects(path, encoding)
    rows: list[dict[str, Any]] = []
    for row, item in numbered:
        if not isinstance(item, dict):
            kind = type(item).__name__
            raise FrostlineError(
                f'{path}, row {row}: this is a {kind}; write an object such as {{"text": ...}} instead.'
            )
        names = [name.strip() for name in item]
        refuse_repeated_columns(f"{path}, row {row}", names)
        rows.append(dict(zip(names, item.values(), strict=True)))
    if len(rows) == 1 and any(isinstance(value, list | dict) for value in rows[0].values()):
        cells = {name.casefold(): value for name, value in rows[0].items()}
        texts = any(isinstance(cells.get(name), str) for name in (*TEXTS, *chain.from_iterable(PAIRS)))
        words = (value for name, value in cells.items() if name in WORDS and isinstance(value, list))
        if not texts and not any(value and isinstance(value[0], str) for value in words):  # so no example
            raise FrostlineError(
                f"{path}: the file has one object instead of one for each example; write a list of objects, an example each (in "
                "pandas orient='records')."
            )
    columns = list(dict.fromkeys(name for item in rows for name in item))
    if not columns:
        raise FrostlineError(f"{path}: the file has no rows; give a file with one JSON object per line.")
    return Table(
        name=str(path),
        columns={name: [item.get(name) for item in rows] for name in columns},
        rows=np.array([row for row, _ in numbered]),
    )


def _objects(path: Path, encoding: str) -> list[tuple[int, Any]]:
    """The object of each line with its number, or the object that is the whole file."""
    found = []
    with open_text(path, encoding) as file:
        for row, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                found.append((row, _parsed(path, line, row)))
            except FrostlineError:
                with suppress(ValueError, RecursionError):
                    if not found:
                        return [(1, json.loads(path.read_text(encoding=encoding)))]
                raise
    return found


def _parsed(path: Path, text: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        reason, at = getattr(error, "msg", "nested too deep"), getattr(error, "lineno", 1) if line is None else line
        raise FrostlineError(
            f"{path}, line {at}: this is not JSON ({reason}); correct that line, and write one object per line or one "
            "list of objects."
        ) from None
