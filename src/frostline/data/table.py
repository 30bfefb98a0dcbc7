"""A table of cells, with the row numbers of its source."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.wording import did_you_mean, is_storable, listed, quoted


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Columns of cells. A table does not know what its columns mean.

    Attributes:
        name: The name of the table in errors: the path of its file, or a description.
        columns: Cells by column, each a list or an Arrow column.
        rows: The number of each row in its source, ``[N]``.
        class_names: The names of the classes of each ``datasets.ClassLabel`` column.
        word_lines: The line of each word, if the rows are sentences of a CoNLL file.
        notes: Notes for the user about reading the table, a sentence each.
        if_missing: What else may be the reason if cells are missing, for messages.
        has_header: Whether a line of the file names the columns. It may be an example, if the file has no header.
    """

    name: str
    columns: Mapping[str, Any]
    rows: npt.NDArray[np.int64]
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    word_lines: Sequence[Sequence[int]] | None = None
    notes: tuple[str, ...] = ()
    if_missing: str = ""
    has_header: bool = False

    def __len__(self) -> int:
        return len(self.rows)

    def cells(self, column: str) -> list[Any]:
        """The cells of one column as Python values; None for a missing value."""
        values = self.columns[column]
        return values if isinstance(values, list) else list(values.to_pylist())

    def require_column(self, name: str, remedy: str) -> None:
        """Refuse the name of a column that the table lacks. The message ends with the ``remedy``."""
        if name not in self.columns:
            raise FrostlineError(
                f"{self.name}: there is no column {quoted(name)}{did_you_mean(name, self.columns)}{remedy}."
            )

    def first(self, rows: int) -> "Table":
        """The first ``rows`` rows."""
        return self.take(range(min(rows, len(self))))

    def take(self, indices: Sequence[int]) -> "Table":
        """The rows at these positions, in this order."""
        return replace(
            self,
            columns={
                name: [cells[i] for i in indices] if isinstance(cells, list) else cells.take(list(indices))
                for name, cells in self.columns.items()
            },
            rows=self.rows[list(indices)],
            word_lines=self.word_lines and [self.word_lines[i] for i in indices],
        )

    def location(self, index: int, column: str, word: int | None = None) -> str:
        """The location of a cell for error messages: ``train.csv, row 17, column 'text'``.

        With the index of a ``word`` of a sentence, it names the line of this word, if that is known.
        """
        row = f"row {self.rows[index]}"
        if word is not None and self.word_lines is not None:
            row = f"line {self.word_lines[index][word]}"
        return f"{self.name}, {row}, column {quoted(column)}"

    def texts(self, column: str) -> tuple[str, ...]:
        """The cells of a text column, as a CSV file holds them: a missing text is an empty one, and numbers are texts.

        Raises:
            FrostlineError: A cell is a list or an object, or cannot be encoded as UTF-8.
        """
        cells = ["" if cell is None else cell for cell in as_in_csv(self.cells(column))]
        wrong = next((i for i, cell in enumerate(cells) if not isinstance(cell, str)), None)
        if wrong is not None:
            inner = (
                f"write one of its values ({listed(cells[wrong])})"
                if isinstance(cells[wrong], dict)
                else "write a text"
            )
            raise FrostlineError(
                f"{self.location(wrong, column)}: {quoted(cells[wrong])} is not a text; {inner}, or name another column."
            )
        broken = next((i for i, cell in enumerate(cells) if not is_storable(cell)), None)
        if broken is not None:
            raise FrostlineError(
                f"{self.location(broken, column)}: the text contains half a character (a lone surrogate), which no file "
                "can store; write the text again."
            )
        return tuple(cells)


def as_in_csv(cells: Sequence[Any]) -> list[Any]:
    """The cells as a CSV file holds them: numbers and times as texts, and None for every kind of missing value.

    pandas and Arrow store whole numbers with missing ones as floating-point numbers. They are written as whole numbers. Lists
    and objects, which no CSV file can hold, stay as they are.
    """
    found = [None if is_missing(cell) else cell for cell in cells]
    present = [cell for cell in found if cell is not None]
    if len(present) < len(found) and all(isinstance(cell, float) and cell.is_integer() for cell in present):
        found = [None if cell is None else int(cell) for cell in found]
    if all(isinstance(cell, datetime) and cell.time() == time() for cell in present):
        found = [None if cell is None else cell.date() for cell in found]
    return [str(cell) if isinstance(cell, Number | date | time) else cell for cell in found]


def is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN, NaT or pandas' NA, which has no truth value."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, Number) and cell != cell)


def checked_names(where: str, names: Iterable[str]) -> list[str]:
    """The names of columns without white space around them. Equal names are an error, which says ``where`` they are."""
    stripped = [name.strip() for name in names]
    repeated = [one for one in dict.fromkeys(stripped) if stripped.count(one) > 1]
    if repeated:
        raise FrostlineError(f"{where}: several columns are named {listed(repeated)}; give each column its own name.")
    return stripped
