"""The noun Table: one content, for a page (HTML that sorts), for a spreadsheet (CSV) and for a paper (LaTeX).

A row holds raw values by column key. A column says how its value is printed, and what small print stands below it. The
CSV has every column with its raw value, in full precision; page and LaTeX have the columns with a title, as printed.
"""

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frostline.report.formatting import UNBROKEN, UNKNOWN
from frostline.sweep.results.store import replace
from frostline.sweep.results.tables import csv_bytes

Value = str | int | float | bool | None
Values = Mapping[str, Any]  # a Value by each key

LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"},
    **{"<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}", '"': "\\textquotedbl{}"},
    **{"[": "{[}", "]": "{]}", "*": "{*}"},  # behind the end of a line they would be its options
    **{UNBROKEN: "~", "–": "--", "−": "$-$", "×": "$\\times$", "’": "'", "“": "``", "”": "''", "…": "\\dots{}"},
}
SPECIAL = re.compile("|".join(map(re.escape, LATEX)))
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class Column:
    """How one value of each row is shown.

    ``title`` may hold line ends, where a narrow header should break; a column without one is in the CSV alone.
    """

    key: str
    title: str = ""
    show: Callable[[Any], str] = str  # of a value that is not None
    whole: Callable[[Values], str] | None = None  # how several values of the row are printed as one, instead
    number: bool = True
    small: Callable[[Values], Iterable[str]] = lambda row: ()  # small print, one line each
    rank: Callable[[Values], Value] | None = None  # what a sort goes by, where that is not the value
    bad: Callable[[Values], bool] = lambda row: False  # shown as an alarm
    shade: Callable[[Values], tuple[str, float]] | None = None  # a CSS class, and how strong: 0 to 1
    strong: bool = False
    wrote: str = ""  # "value" or "title": a user wrote it, and it may be very long


@dataclass(frozen=True)
class Row:
    """Raw values by column key; ``tags`` stand below the first, and the ``chosen`` row is set off."""

    values: Values
    tags: tuple[str, ...] = ()
    chosen: bool = False


@dataclass(frozen=True)
class Entry:
    """One cell, as a page shows it. ``rank`` is what its column is sorted by, "" where that is not known."""

    column: Column
    text: str
    small: tuple[str, ...]
    rank: str
    bad: bool
    shade: tuple[str, float] | None


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first column with a title names the row.

    ``name`` is the stem of its files, ``title`` a few words that name it and head its caption,
    ``caption`` the sentences after them.
    """

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sortable: bool = True
    look: str = ""  # a CSS class of the page
    shown: tuple[Column, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shown", tuple(column for column in self.columns if column.title))

    @property
    def sorts(self) -> bool:
        """Whether its headers are buttons on a page."""
        return self.sortable and len(self.rows) > 1

    def entries(self, row: Row) -> list[Entry]:
        """The cells of a row that are shown."""
        return [_entry(column, row.values) for column in self.shown]

    def csv(self) -> bytes:
        """Every column, raw; a text that a spreadsheet would take for a formula stays a text."""
        keys = [column.key for column in self.columns]
        return csv_bytes(({key: row.values.get(key) for key in keys} for row in self.rows), keys)

    def latex(self) -> str:
        """A ``table`` with booktabs' rules and the printed values, what users wrote escaped; needs ``booktabs``, and
        ``[T1]{fontenc}``."""
        lines = [
            "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{escaped(f'{self.title}. {self.caption}')}}}",
            f"\\label{{tab:{self.name.replace('_', '-')}}}",
            f"\\begin{{tabular}}{{{''.join('r' if column.number else 'l' for column in self.shown)}}}",
            "\\toprule",
            _line(column.title for column in self.shown),
            "\\midrule",
            *(_line(_printed(self.entries(row), row.tags)) for row in self.rows),
            *("\\bottomrule", "\\end{tabular}", "\\end{table}"),
        ]
        return "\n".join(lines) + "\n"

    @property
    def downloads(self) -> tuple[tuple[str, str, str], ...]:
        """What a page offers for download: the kind in words, the file's name, and its bytes as a ``data:`` URI."""
        return (
            ("CSV", f"{self.name}.csv", _uri("text/csv", self.csv())),
            ("LaTeX", f"{self.name}.tex", _uri("application/x-tex", self.latex().encode())),
        )


def save_tables(out: Path, tables: Iterable[Table]) -> list[Path]:
    """Write each table into ``out``/tables, as CSV and as LaTeX; gives the paths. Tables without rows are written too,
    so that none of an earlier state stays behind."""
    paths = []
    for table in tables:
        for kind, content in (("csv", table.csv()), ("tex", table.latex().encode())):
            paths.append(out / "tables" / f"{table.name}.{kind}")
            replace(paths[-1], content)
    return paths


def escaped(text: str) -> str:
    """Text as LaTeX prints it unchanged, on one line."""
    plain = CONTROL.sub("", " ".join(re.split(r"[ \t\r\n]+", text)))
    return SPECIAL.sub(lambda found: LATEX[found[0]], plain)


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
    for n, entry in enumerate(entries):
        beside = (*entry.small, *(tags if n == 0 else ()))
        yield f"{entry.text} ({', '.join(beside)})" if beside else entry.text


def _line(texts: Iterable[str]) -> str:
    return " & ".join(map(escaped, texts)) + " \\\\"


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(content).decode()}"
