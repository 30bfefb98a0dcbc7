"""JSON files: one object per line, or one list of objects."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.formats.encoding import UTF8, open_text
from frostline.data.table import Table


def read_json(path: Path, encoding: str = UTF8) -> Table:
    """A table of JSON objects. If an object lacks a key, the value is missing.

    Rows are numbered by line, or by position in the list, from 1.
    """
    with open_text(path, encoding) as file:
        start = file.read(4096).lstrip()
    if not start:
        raise FrostlineError(f"{path}: the file is empty; give a file with one JSON object per line.")
    numbered = list(_items_of_list(path, encoding) if start[0] == "[" else _lines(path, encoding))
    for row, item in numbered:
        if not isinstance(item, dict):
            kind = type(item).__name__
            raise FrostlineError(
                f'{path}, row {row}: this is a {kind}; write an object such as {{"text": ...}} instead.'
            )
    names = list(dict.fromkeys(name for _, item in numbered for name in item))
    if not names:
        raise FrostlineError(f"{path}: the file has no rows; give a file with one JSON object per line.")
    return Table(
        name=str(path),
        columns={name: [item.get(name) for _, item in numbered] for name in names},
        rows=np.array([row for row, _ in numbered]),
    )


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    with open_text(path, encoding) as file:
        for row, line in enumerate(file, start=1):
            if line.strip():
                yield row, _parsed(path, line, row)


def _items_of_list(path: Path, encoding: str) -> Iterator[tuple[int, Any]]:
    return enumerate(_parsed(path, path.read_text(encoding=encoding)), start=1)


def _parsed(path: Path, text: str, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        reason, at = getattr(error, "msg", "nested too deep"), getattr(error, "lineno", 1) if line is None else line
        raise FrostlineError(
            f"{path}, line {at}: this is not JSON ({reason}); correct that line, and write one object per line or one "
            "list of objects."
        ) from None
