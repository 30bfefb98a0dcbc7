"""JSON files: one object per line, one list of objects, or one object alone, which is a row."""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import PAIRS, TEXTS, WORDS
from frostline.data.formats.encoding import UTF8, open_text
from frostline.data.table import Table, refuse_repeated_columns
from frostline.data.wording import listed, quoted


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
