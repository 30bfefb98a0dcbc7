"""Tables in text files: CSV, TSV and JSON, and the encoding that reads them.

In CSV and TSV files, every text stays exactly as it is in the file. "NA", "null" and the empty text are texts. Rows are numbered
as in a spreadsheet. The header is row 1, and blank lines count. A line break inside quotation marks does not start a new row. A
JSON file has one object per line, one list of objects, or one object alone, which is a row.
"""

import codecs
import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO, TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import NAME_COLUMNS, PAIRS, TEXTS, WORDS, not_a_header
from frostline.data.table import Table, refuse_repeated_columns
from frostline.data.wording import SHOWN_ROWS, listed, quoted

UTF8 = "utf-8-sig"  # with or without a byte order mark
MARKS = {  # byte order marks; that of UTF-16 begins that of UTF-32
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
SIGNS = "‘’“”„«»–—…•€£§°®©™¿¡"
# Accented letters stand beside ASCII, those of other alphabets do not.
ACCENTED = rf"(?:(?<![^\x00-\x7f])|(?!.[^\x00-\x7f]))[{{}}ÄÖÜÉ]|[{SIGNS}]"
ALPHABET = rf"(?<![A-Za-z])[{{}}](?![A-Za-z])|[{SIGNS}]"
# Encodings that a file may have, each with a pattern of its frequent characters, or of their bytes for those of East Asia. Of
# encodings that fit a file equally well, the first is named.
CANDIDATES: dict[str, str | bytes] = {
    "cp1252": ACCENTED.format("àáâãäåæçèéêëìíîïñòóôõöøùúûüßœ"),
    "cp949": rb"[\xb0-\xc8][\xa1-\xfe]|\xa4[\xbb\xbe\xcc\xd0]",
    "cp932": rb"\x82[\x9f-\xf1]|\x83[\x40-\x96]|[\x81\x88-\x97].",
    "gb18030": rb"[\xa1\xa3\xb0-\xd7][\xa1-\xfe]",
    "euc_jp": rb"[\xa1\xa4\xa5\xb0-\xcf].",
    "big5": rb"[\xa1\xa4-\xc6].",
    "cp1251": ALPHABET.format("а-яё"),
    "koi8_r": ALPHABET.format("а-яё"),
    "cp1256": ALPHABET.format("ء-ي"),
    "cp1253": ALPHABET.format("ΐά-ώ"),
    "mac_roman": ACCENTED.format("àáâãäåæçèéêëìíîïñòóôõöøùúûüßœ"),
    "cp1250": ACCENTED.format("ąćęłńóśźżáčďéěíňřšťúůýžőűăâîşţßäöü"),
}
LINES, SHARE = 200, 0.6  # lines that are looked at; the share of frequent characters in an encoding that is named
CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f]")  # but tabs, line ends and form feeds
UNREADABLE = re.compile(f"{CONTROL.pattern}|\ufffd")
TWICE = re.compile(
    "[\xc2-\xf4][\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
)  # how the bytes of a UTF-8 letter look in cp1252 and latin1


def open_text(path: Path, encoding: str, newline: str = "\n") -> TextIO:
    """Open a file in the encoding of :func:`text_encoding`. By default lines end at line feeds only.

    Ending lines at U+2028 or at a lone carriage return as well would split texts.
    """
    return path.open(encoding=encoding, newline=newline)


def text_encoding(path: Path, given: str | None = None) -> str:
    """The encoding that reads a file: ``given``, or UTF-8 if the file is UTF-8, since hardly a file is by chance.

    Raises:
        FrostlineError: The file cannot be decoded, or there is no such encoding.
    """
    content = path.read_bytes()
    named, wide = None if given is None else _codec(given), _wide(content)
    if wide and named and named.startswith(wide[:6]):
        return wide
    if wide:
        instead = f", not {given}" if given else ""
        raise FrostlineError(
            f"{path}: the file is {wide.upper()}{instead}; pass --encoding {wide}, or save it as UTF-8."
        )
    if named and named.startswith(("utf-16", "utf-32")):
        raise FrostlineError(f"{path}: the file is not {given}; leave out --encoding, or correct it.")
    error = _first_error(content, "utf-8")
    if named is None or named.startswith("utf-8") or (error is None and not content.isascii()):
        if error is None:
            return UTF8
        raise FrostlineError(f"{path}{_not_utf8(content, error)}.")
    if (wrong := _first_error(content, named)) is not None:
        raise FrostlineError(f"{path}{_place(content, wrong)} is not {given}{_advice(content)}.")
    return named


def garbled_word(text: str) -> str | None:
    """The first word of a text that was probably decoded wrongly; None if there is none.

    It has a control character or U+FFFD, or the text is UTF-8 that was read as cp1252 or latin1.
    """
    if found := UNREADABLE.search(text):
        return next((word for word in text.split() if UNREADABLE.search(word)), found[0])  # U+0085 is white space
    if TWICE.search(text):
        for encoding in ("latin1", "cp1252"):
            try:
                text.encode(encoding).decode()
            except UnicodeError:
                continue
            return next(word for word in text.split() if not word.isascii())
    return None


def _codec(name: str) -> str:
    """The usual name of an encoding of texts."""
    try:
        TextIOWrapper(BytesIO(), encoding=name)
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise FrostlineError(
            f"--encoding {quoted(name)} is not known; give one such as utf-16, {', '.join([*CANDIDATES][:4])}."
        ) from None


def _wide(content: bytes) -> str | None:
    """UTF-16 or UTF-32: by the byte order mark, or because line ends and commas only make sense so; None for other files."""
    if marked := next((name for mark, name in MARKS.items() if content.startswith(mark)), None):
        return marked
    if b"\0" not in content[:4096]:
        return None
    expected = len(re.findall(rb"[\n\t,{]", content)) / 2  # some of these bytes may be parts of letters
    for name in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        try:
            text = content.decode(name)
        except UnicodeError:
            continue
        if len(re.findall(r"[\n\t,{]", text)) > expected and not CONTROL.search(text[:4096]):
            return name
    return None


def _first_error(content: bytes, encoding: str) -> UnicodeError | None:
    try:
        content.decode(encoding)
    except UnicodeError as error:
        return error
    return None


def _place(content: bytes, error: UnicodeError) -> str:
    """The line and the byte of an error."""
    start = getattr(error, "start", 0)
    line = content.count(b"\n", 0, start) + 1
    return f", line {line}: byte {start:,} (0x{content[start]:02x})"


def _not_utf8(content: bytes, error: UnicodeError) -> str:
    """What is wrong with a file that is not UTF-8, and what to do."""
    if b"\0" in content:
        return ": this is not a UTF-8 text file; export the table as CSV, or correct the ending of its name"
    place = _place(content, error)
    if getattr(error, "start", 0) > len(content) - 4 and "end of data" in str(error):
        return f"{place} begins a character that is cut off; the file is not complete, write or copy it again"
    lines = [line for line in content.split(b"\n") if not line.isascii()]
    broken = [line for line in lines if _first_error(line, "utf-8") is not None]
    if len(broken) < len(lines):
        return (
            f"{place} is not UTF-8, as in {len(broken):,} of the {len(lines):,} lines with other characters than ASCII: the file "
            f"mixes encodings, or is damaged; write {'this line' if len(broken) == 1 else 'these lines'} again"
        )
    return f"{place} is not UTF-8{_advice(content)}"


def _advice(content: bytes) -> str:
    """The encoding that the bytes look like, with a word as it reads it, and what to do."""
    name, word = _guess(content)
    if name is None:
        return "; pass the encoding that the program which wrote it uses with --encoding, or save the file as UTF-8"
    return (
        f"; it looks like {name} ({quoted(word, 24)}): pass --encoding {name} if this reads right, else that of the program "
        "which wrote it, or save it as UTF-8"
    )


def _guess(content: bytes) -> tuple[str | None, str]:
    """The encoding in which a file has the largest share of frequent characters, and a word as it reads it."""
    lines = b"\n".join([line for line in content.split(b"\n") if not line.isascii()][:LINES])
    best: tuple[float, str | None, str] = (SHARE, None, "")
    for name, pattern in CANDIDATES.items():
        try:
            text = lines.decode(name)
        except UnicodeDecodeError:
            continue
        beyond = [char for char in text if not char.isascii()]
        if isinstance(pattern, str):
            frequent = len(re.findall(pattern, text))
        else:
            frequent = sum(re.fullmatch(pattern, char.encode(name), re.DOTALL) is not None for char in beyond)
        if frequent > best[0] * len(beyond):
            word = next(word for word in re.split(r"[\s,;|\"]+", text) if not word.isascii())
            best = frequent / len(beyond), name, word
    return best[1:]


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


def read_json(path: Path, encoding: str = UTF8) -> Table:
    """A table of JSON objects. If an object lacks a key, the value is missing.

    Rows are numbered by line, or by position in the list, from 1.
    """
    with open_text(path, encoding) as file:
        start = file.read(4096).lstrip()
    if not start:
        raise FrostlineError(f"{path}: the file is empty; give a file with one JSON object per line.")
    numbered = _items_of_list(path, encoding) if start[0] == "[" else _objects(path, encoding)
    if len(numbered) == 1 and isinstance(numbered[0][1], dict) and (layout := _layout(numbered[0][1])):
        raise FrostlineError(f"{path}: the file has one object instead of one for each example; {layout}.")
    for row, item in numbered:
        if isinstance(item, dict):
            refuse_repeated_columns(f"{path}, row {row}", [name.strip() for name in item])
        else:
            kind = type(item).__name__
            raise FrostlineError(
                f'{path}, row {row}: this is a {kind}; write an object such as {{"text": ...}} instead.'
            )
    numbered = [(row, {name.strip(): cell for name, cell in item.items()}) for row, item in numbered]
    names = list(dict.fromkeys(name for _, item in numbered for name in item))
    if not names:
        raise FrostlineError(f"{path}: the file has no rows; give a file with one JSON object per line.")
    return Table(
        name=str(path),
        columns={name: [item.get(name) for _, item in numbered] for name in names},
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
                if found or (item := _over_lines(path, encoding)) is None:
                    raise
                return [(1, item)]
    return found


def _over_lines(path: Path, encoding: str) -> Any:
    """The object that is the whole file; None if it is none.

    Raises:
        FrostlineError: Several objects have several lines each.
    """
    try:
        return json.loads(path.read_text(encoding=encoding))
    except (json.JSONDecodeError, RecursionError) as error:
        if getattr(error, "msg", "") != "Extra data":
            return None
        raise FrostlineError(
            f"{path}, line {getattr(error, 'lineno', 1)}: the objects do not each stand on one line; write each on a line of its "
            "own, or one list of objects."
        ) from None


def _items_of_list(path: Path, encoding: str) -> list[tuple[int, Any]]:
    """The items of the list that is the whole file. If each line is a list, the first of these, which is no object."""
    text = path.read_text(encoding=encoding)
    try:
        items = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        lines = getattr(error, "msg", "") == "Extra data"
        first = json.loads(text[: error.pos]) if lines and isinstance(error, json.JSONDecodeError) else []
        items = _parsed(path, text) if not first or isinstance(first[0], dict) else [first]
    return list(enumerate(items, start=1))


def _layout(item: Mapping[str, Any]) -> str | None:
    """Where the examples are in an object that holds all of them, and what to do; None if it is an example itself."""
    if _is_row(item):
        return None
    inner = {name: value for name, value in item.items() if isinstance(value, list | dict)}
    if {"columns", "data"} <= inner.keys():
        return "write it with orient='records', if pandas has written it"
    instead = "write a list of objects, an example each, instead of"
    keyed = len(inner) == len(item) and all(
        isinstance(one, dict) and any(not isinstance(cell, list | dict) for cell in one.values())
        for one in inner.values()
    )
    if inner and keyed:
        return f"{instead} an object for each of the keys {listed(item)} (in pandas orient='records')"
    lists = [found for name, value in inner.items() for found in _lists_of_objects(name, value)]
    if lists := [found for found in lists if found[2]] or lists:
        if len(lists) > 1:
            return f"save each list of the keys {listed(place for place, _, _ in lists)} as a file of its own"
        place, within, _ = lists[0]
        objects = "" if within is None else f", and of its objects only what is under {quoted(within)}"
        return f"save the list under its key {quoted(place)} alone{objects}"
    columns = [name for name, value in inner.items() if isinstance(value, list)]
    return f"{instead} a list for each of the keys {listed(columns)} (in pandas orient='records')" if columns else None


def _is_row(item: Mapping[str, Any]) -> bool:
    """Whether an object has a text, or a list of words, under a common name."""
    cells = {name.casefold(): cell for name, cell in item.items()}
    words = [cells[name] for name in WORDS if name in cells]
    return any(isinstance(cells.get(name), str) for name in (*TEXTS, *chain.from_iterable(PAIRS))) or any(
        isinstance(cell, list) and cell and isinstance(cell[0], str) for cell in words
    )


def _lists_of_objects(place: str, value: Any) -> Iterator[tuple[str, str | None, bool]]:
    """The place of each list of objects, the key under which each object holds its example, and whether that is a row."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _lists_of_objects(f"{place}.{name}", one)
    elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        within = next((name for name, one in value[0].items() if isinstance(one, dict) and _is_row(one)), None)
        yield place, within, within is not None or _is_row(value[0])


def _parsed(path: Path, text: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        reason, at = getattr(error, "msg", "nested too deep"), getattr(error, "lineno", 1) if line is None else line
        raise FrostlineError(
            f"{path}, line {at}: this is not JSON ({reason}); correct that line, and write one object per line or one "
            "list of objects."
        ) from None
