"""A table in three formats with the same content: sortable HTML, CSV and LaTeX.

A row has raw values by column key. A column defines how a value is printed, and the small print below it. The CSV has the raw
values of every column in full precision. HTML and LaTeX have the printed values of the columns that have a title.
"""

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from frostline.data.files import replace_file
from frostline.report.formatting import UNKNOWN
from frostline.sweep.results.tables import csv_bytes

Value = str | int | float | bool | None
Values = Mapping[str, Any]  # a Value by each key


@dataclass(frozen=True)
class Column:
    """How one value of each row is printed.

    Attributes:
        key: The key of the value in a row, and the name of the column in the CSV.
        title: The header, with line breaks for narrow columns. A column without a title is in the CSV only.
        show: Prints a value that is not None.
        whole: Prints several values of the row as one, in place of ``show``.
        number: Whether the column is right-aligned.
        small: Lines of small print below the value.
        rank: The sort key, if it is not the value.
        bad: Whether the value is highlighted as a problem.
        shade: A CSS class and its strength from 0 to 1.
        strong: Whether the value is printed bold.
        user_text: ``value`` or ``title`` if a user wrote it, so that it may be very long.
    """

    key: str
    title: str = ""
    show: Callable[[Any], str] = str
    whole: Callable[[Values], str] | None = None
    number: bool = True
    small: Callable[[Values], Iterable[str]] = lambda row: ()
    rank: Callable[[Values], Value] | None = None
    bad: Callable[[Values], bool] = lambda row: False
    shade: Callable[[Values], tuple[str, float]] | None = None
    strong: bool = False
    user_text: str = ""


@dataclass(frozen=True)
class Row:
    """Raw values by column key; ``tags`` are printed below the first value, and the ``chosen`` row is highlighted."""

    values: Values
    tags: tuple[str, ...] = ()
    chosen: bool = False


@dataclass(frozen=True)
class Entry:
    """One cell as a page shows it; ``rank`` is its sort key, "" if the value is unknown."""

    column: Column
    text: str
    small: tuple[str, ...]
    rank: str
    bad: bool
    shade: tuple[str, float] | None


@dataclass(frozen=True)
class ReportTable:
    """Rows and columns. The first column with a title names the row.

    Attributes:
        name: The stem of its file names.
        title: A few words at the beginning of the caption.
        caption: The sentences after the title.
        style: A CSS class of the page.
        shown: The columns with a title.
    """

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sortable: bool = True
    style: str = ""
    shown: tuple[Column, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shown", tuple(column for column in self.columns if column.title))

    @property
    def sorts(self) -> bool:
        """Whether the headers are sort buttons on a page."""
        return self.sortable and len(self.rows) > 1

    def entries(self, row: Row) -> list[Entry]:
        """The cells of a row that are shown."""
        return [_entry(column, row.values) for column in self.shown]

    def csv(self) -> bytes:
        """Every column with raw values; text that a spreadsheet would read as a formula is escaped."""
        keys = [column.key for column in self.columns]
        return csv_bytes(({key: row.values.get(key) for key in keys} for row in self.rows), keys)

    def latex(self) -> str:
        """The printed values as a LaTeX ``tabular``, which needs the packages ``booktabs`` and ``[T1]{fontenc}``."""
        import pandas as pd  # takes half a second

        lines = ([column.title for column in self.shown], *(_printed(self.entries(row), row.tags) for row in self.rows))
        head, *rows = ([_on_one_line(text) for text in line] for line in lines)
        alignment = "".join("r" if column.number else "l" for column in self.shown)
        text = pd.DataFrame(rows, columns=head).to_latex(index=False, escape=True, column_format=alignment)
        return re.sub(
            r"^(?=[\[*])", "{}", text, flags=re.MULTILINE
        )  # or they would be options of the line break before

    @cached_property
    def files(self) -> tuple[tuple[str, str, bytes], ...]:
        """The kind, name and content of each of its files."""
        return ("CSV", f"{self.name}.csv", self.csv()), ("LaTeX", f"{self.name}.tex", self.latex().encode())

    @property
    def downloads(self) -> list[tuple[str, str, str]]:
        """The files that a page offers, each with its content as a ``data:`` URI."""
        return [(kind, name, _uri(content)) for kind, name, content in self.files]


def save_tables(out: Path, tables: Iterable[ReportTable]) -> None:
    """Write each table into ``out``/tables as CSV and LaTeX.

    Tables without rows are written too, so that they replace files of an earlier state.
    """
    for table in tables:
        for _, name, content in table.files:
            replace_file(out / "tables" / name, content, inside=out)


def _entry(column: Column, values: Values) -> Entry:
    value = values.get(column.key)
    return Entry(
        column=column,
        text=_text(column, values),
        small=tuple(line for line in column.small(values) if line and line != UNKNOWN),
        rank=_rank(column.rank(values) if column.rank else value),
        bad=column.bad(values),
        shade=column.shade(values) if column.shade else None,
    )


def _text(column: Column, values: Values) -> str:
    if column.whole:
        return column.whole(values)
    value = values.get(column.key)
    return UNKNOWN if value is None or value == "" else column.show(value)


def _rank(value: Value) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return value if isinstance(value, str) else repr(value if isinstance(value, float) else int(value))


def _printed(entries: Iterable[Entry], tags: tuple[str, ...]) -> Iterable[str]:
    """The printed values of a row, with small print in parentheses."""
    for n, entry in enumerate(entries):
        beside = (*entry.small, *(tags if n == 0 else ()))
        yield f"{entry.text} ({', '.join(beside)})" if beside else entry.text


def _on_one_line(text: str) -> str:
    """The text without control characters, which LaTeX refuses."""
    return "".join(one for one in " ".join(text.split()) if one.isprintable())


def _uri(content: bytes) -> str:
    return f"data:application/octet-stream;base64,{base64.b64encode(content).decode()}"
