"""A table in three formats with the same content: sortable HTML, CSV and LaTeX.

A row stands for any object. A column reads a value of it, and defines how the value is printed, and the small print below it. The
CSV has the raw values of every column in full precision. HTML and LaTeX have the printed values of the columns that have a title.
"""

import base64
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frostline.data.files import replace_file
from frostline.report.formatting import UNKNOWN, interval
from frostline.sweeps.results.tables import csv_bytes

if TYPE_CHECKING:
    import pandas as pd

Value = str | int | float | bool | None
Ends = tuple[float | None, float | None]


@dataclass(frozen=True)
class Column:
    """How one value of each row is read and printed. Functions of a row get the object that it stands for.

    Attributes:
        key: The name of the column in the CSV.
        title: The header, with line breaks for narrow columns. A column without a title is in the CSV only.
        show: Prints a value that is not None.
        of: Reads the value, or names the attribute, such as ``validation.mean``; by default it is the attribute ``key``.
        whole: Prints several values of the row as one, in place of ``show``.
        number: Whether the column is right-aligned.
        ends: Reads the ends of the value's interval, or names both, for the CSV (``key_low``, ``key_high``) and the small print.
        small: Lines of small print below the value and its interval.
        rank: The sort key, if it is not the value; ``place`` is the place of the row in the table.
        bad: Whether the value is highlighted as a problem.
        shade: A CSS class and its strength from 0 to 1.
        user_text: ``value`` or ``title`` if a user wrote it, so that it may be very long.
    """

    key: str
    title: str = ""
    show: Callable[[Any], str] = str
    of: Callable[[Any], Value] | str = ""
    whole: Callable[[Any], str] | None = None
    number: bool = True
    ends: Callable[[Any], "Ends"] | tuple[str, str] | None = None
    small: Callable[[Any], Iterable[str]] = lambda row: ()
    rank: Callable[[Any], Value] | str | None = None
    bad: Callable[[Any], bool] = lambda row: False
    shade: Callable[[Any], tuple[str, float]] | None = None
    strong: bool = False
    user_text: str = ""

    def value(self, row: "Row") -> Value:
        """The raw value of a row."""
        found: Value = (self.of if callable(self.of) else attrgetter(self.of or self.key))(row.of)
        return found

    def interval(self, row: "Row") -> "Ends":
        """The ends of the value's interval; None without one."""
        if self.ends is None:
            return None, None
        found: Ends = (self.ends if callable(self.ends) else attrgetter(*self.ends))(row.of)
        return found

    def values(self, row: "Row") -> dict[str, Value]:
        """The raw values of a row by their names in the CSV: the value, and the ends of its interval."""
        low, high = self.interval(row)
        return {self.key: self.value(row), **({f"{self.key}_low": low, f"{self.key}_high": high} if self.ends else {})}


@dataclass(frozen=True)
class Row:
    """What a row is of; ``tags`` are printed below the first value, and the ``chosen`` row is highlighted."""

    of: Any
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
    """

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sortable: bool = True
    style: str = ""

    @property
    def shown(self) -> list[Column]:
        """The columns with a title."""
        return [column for column in self.columns if column.title]

    @property
    def sorts(self) -> bool:
        """Whether the headers are sort buttons on a page."""
        return self.sortable and len(self.rows) > 1

    def records(self) -> list[dict[str, Value]]:
        """The raw values of every column, for each row."""
        return [{key: x for column in self.columns for key, x in column.values(row).items()} for row in self.rows]

    def entries(self) -> list[tuple[Row, list[Entry]]]:
        """The rows with their cells that are shown."""
        return [(row, [_entry(column, row, n) for column in self.shown]) for n, row in enumerate(self.rows)]

    def csv(self) -> bytes:
        """Every column with raw values; text that a spreadsheet would read as a formula is escaped."""
        ends = {column.key: ("", *(("_low", "_high") if column.ends else ())) for column in self.columns}
        return csv_bytes(self.records(), [f"{key}{end}" for key, all_ends in ends.items() for end in all_ends])

    def printed(self) -> "pd.DataFrame":
        """The printed values, with their small print in brackets."""
        import pandas as pd  # takes half a second

        lines = []
        for row, entries in self.entries():
            beside = [", ".join((*entry.small, *(() if n else row.tags))) for n, entry in enumerate(entries)]
            lines.append([f"{one.text} ({beside[n]})" if beside[n] else one.text for n, one in enumerate(entries)])
        return pd.DataFrame(lines, columns=[column.title.replace("\n", " ") for column in self.shown])

    def latex(self) -> str:
        """The printed values as a LaTeX ``tabular``, which needs the packages ``booktabs`` and ``[T1]{fontenc}``."""
        alignment = "".join("r" if column.number else "l" for column in self.shown)
        table = self.printed().map(_on_one_line)
        table.columns = table.columns.map(_on_one_line)
        text = table.to_latex(index=False, escape=True, column_format=alignment)
        # a bracket at the beginning of a line would be an option of the line break before
        return re.sub(r"^(?=[\[*])", "{}", text, flags=re.MULTILINE)

    @cached_property
    def files(self) -> tuple[tuple[str, str, bytes], ...]:
        """The kind, name and content of each of its files."""
        return ("CSV", f"{self.name}.csv", self.csv()), ("LaTeX", f"{self.name}.tex", self.latex().encode())

    @property
    def downloads(self) -> list[tuple[str, str, str]]:
        """The files that a page offers, each with its content as a ``data:`` URI."""
        uri = "data:application/octet-stream;base64,"
        return [(kind, name, uri + base64.b64encode(content).decode()) for kind, name, content in self.files]


def save_tables(out: Path, tables: Iterable[ReportTable]) -> None:
    """Write each table into ``out``/tables as CSV and LaTeX.

    Tables without rows are written too, so that they replace files of an earlier state.
    """
    for table in tables:
        for _, name, content in table.files:
            replace_file(out / "tables" / name, content, inside=out)


def _entry(column: Column, row: Row, place: int) -> Entry:
    value, rank = column.value(row), column.rank
    ends = [interval(*column.interval(row), column.show)] if column.ends else []
    text = UNKNOWN if value is None or value == "" else column.show(value)
    return Entry(
        column=column,
        text=column.whole(row.of) if column.whole else text,
        small=tuple(line for line in (*ends, *column.small(row.of)) if line and line != UNKNOWN),
        rank=_rank(place if rank == "place" else rank(row.of) if callable(rank) else value),
        bad=column.bad(row.of),
        shade=column.shade(row.of) if column.shade else None,
    )


def _rank(value: Value) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return value if isinstance(value, str) else repr(value if isinstance(value, float) else int(value))


def _on_one_line(text: str) -> str:
    """The text without control characters, which LaTeX refuses."""
    return "".join(one for one in " ".join(text.split()) if one.isprintable())
