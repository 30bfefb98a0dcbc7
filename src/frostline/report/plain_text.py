"""Prints tables, sizes and long sentences on the terminal."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
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


def table_lines(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    """Rows as aligned columns below their names, each row on one line; numbers are aligned to the right."""
    cells = [[harmless(_text(row[name]), keep="") for name in columns] for row in rows]
    left = [not all(row[n][:1] in "-0123456789" for row in cells) for n in range(len(columns))]
    return aligned([columns, *cells], left)


def aligned(rows: Sequence[Sequence[str]], left: Sequence[bool]) -> list[str]:
    """Rows as lines whose cells stand below each other, at the ``left`` or right end of their column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    ends = [str.ljust if is_left else str.rjust for is_left in left]
    return [
        "  ".join(end(cell, width) for end, cell, width in zip(ends, row, widths, strict=True)).rstrip() for row in rows
    ]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e-3 or abs(value) >= 100 else f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 9999 else str(value)


def size_of(count: float) -> str:
    """A number of bytes with its unit."""
    return formatting.size(count).replace(formatting.UNBROKEN, " ")
