"""Prints tables, sizes and long sentences on the terminal."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from frostline.data.wording import harmless
from frostline.report import formatting

WIDTH = 80


def wrapped(text: str) -> list[str]:
    """The text in lines of at most 80 characters. A number stays with its percent sign, and words are never split."""
    lines = textwrap.wrap(
        formatting.unbroken(harmless(text, keep="")), WIDTH, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(formatting.UNBROKEN, " ") for line in lines]


def print_table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows as aligned columns."""
    print(*table_lines(rows, columns), sep="\n")


def table_lines(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Iterator[str]:
    """Rows as aligned columns below their names, each row on one line; numbers are aligned to the right."""
    cells = [[harmless(_text(row[name]), keep="") for name in columns] for row in rows]
    widths = [max(len(name), *(len(row[n]) for row in cells)) if cells else len(name) for n, name in enumerate(columns)]
    right = [all(row[n][:1] in "-0123456789" for row in cells) for n in range(len(columns))]
    for row in [list(columns), *cells]:
        parts = [cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(row, widths, right, strict=True)]
        yield "  ".join(parts).rstrip()


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e-3 or abs(value) >= 100 else f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 9999 else str(value)


def size_of(count: float) -> str:
    """A number of bytes with its unit."""
    return formatting.size(count).replace(formatting.UNBROKEN, " ")
