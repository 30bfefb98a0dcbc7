"""Columns of the user's table that `frostline predict` copies beside its predictions, such as an id."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from frostline import FrostlineError
from frostline.data.table import Table
from frostline.data.wording import did_you_mean, listed, quoted

FLAG = "--copy-columns"
TAKEN = ("row", "text", "text_pair", "label", "labels", "prediction", "tokens", "tags", "probabilities")
Rows = Sequence[Mapping[str, Any]]


def copied_columns(table: Table, names: Sequence[str]) -> dict[str, list[Any]]:
    """The cells of these columns of the table, by name.

    Raises:
        FrostlineError: The table has no column of this name, or the predictions may have one.
    """
    _refuse_taken(names, TAKEN)
    for name in names:
        if name not in table.columns:
            raise FrostlineError(
                f"{table.name}: there is no column {quoted(name)}{did_you_mean(name, table.columns)}; pass some of "
                f"{listed(table.columns)} with {FLAG}."
            )
    return {name: table.cells(name) for name in names}


def beside(copied: Mapping[str, Sequence[Any]], rows: Rows, header: Sequence[str]) -> tuple[Rows, list[str]]:
    """The rows and the header of predictions, with the copied columns after the row number.

    Raises:
        FrostlineError: A copied column has the name of a column of the predictions.
    """
    _refuse_taken(copied, header)
    first, *others = header
    cells = [dict(zip(copied, row, strict=True)) for row in zip(*copied.values(), strict=True)] or [{}] * len(rows)
    return [{**row, **copy} for row, copy in zip(rows, cells, strict=True)], [first, *copied, *others]


def _refuse_taken(names: Collection[str], taken: Collection[str]) -> None:
    """Refuse to copy a column that has the name of a column of the predictions."""
    if both := [name for name in names if name in taken]:
        raise FrostlineError(
            f"{FLAG}: {quoted(both[0])} is the name of a column of the predictions; rename that of the table, or leave it out."
        )
