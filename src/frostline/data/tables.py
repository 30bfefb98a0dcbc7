"""Any table of texts, read without guessing: files, ``datasets.Dataset``, pandas and pyarrow.

Errors name the file, the row and what to do. Nothing here knows what the columns mean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.textfiles import Contents, not_utf8, read_delimited, read_json
from frostline.data.wording import listed, nearest, quoted

DELIMITED = (".csv", ".tsv", ".txt")
JSON = (".jsonl", ".ndjson", ".json")
EXTENSIONS = (*DELIMITED, *JSON, ".parquet")


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Columns of cells, each a list or an Arrow column, and the number of each row in its file."""

    name: str
    columns: Mapping[str, Any]
    rows: npt.NDArray[np.int64]
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of ``datasets.ClassLabel`` columns
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def cells(self, column: str) -> list[Any]:
        """The cells of one column as Python values; None where the value is missing."""
        values = self.columns[column]
        return values if isinstance(values, list) else list(values.to_pylist())

    def first(self, rows: int) -> "Table":
        """The table up to so many rows."""
        return replace(
            self, columns={name: cells[:rows] for name, cells in self.columns.items()}, rows=self.rows[:rows]
        )

    def where(self, index: int, column: str) -> str:
        """ "train.csv, row 17, column 'text'", which errors begin with."""
        return f"{self.name}, row {self.rows[index]}, column {quoted(column)}"

    def texts(self, column: str) -> tuple[str, ...]:
        """The cells of a column of texts. A missing or other value is an error; an empty text is a text."""
        cells = self.cells(column)
        wrong = next((i for i, cell in enumerate(cells) if not isinstance(cell, str)), None)
        if wrong is not None:
            found = "the text is missing" if cells[wrong] is None else f"{quoted(cells[wrong])} is not a text"
            remedy = "write an empty text or take the row out" if cells[wrong] is None else "write it as a text"
            raise FrostlineError(f"{self.where(wrong, column)}: {found}; {remedy}, or name another column.")
        try:
            "".join(cells).encode()
        except UnicodeEncodeError:
            broken = next(i for i, cell in enumerate(cells) if any("\ud800" <= char <= "\udfff" for char in cell))
            raise FrostlineError(
                f"{self.where(broken, column)}: the text holds half a character (a lone surrogate), which no file "
                "can keep; write the text anew."
            ) from None
        return tuple(cells)


def read_table(
    source: Any,
    *,
    column_names: Sequence[str] | None = None,
    name: str | None = None,
    leave_out_ragged: bool = False,
) -> Table:
    """The table in a file, or of a ``datasets.Dataset``, pandas ``DataFrame`` or ``pyarrow.Table``.

    ``column_names``, ``leave_out_ragged``: for CSV and TSV files without a header, or with broken rows (see
    ``textfiles.read_delimited``). ``name``: what errors call a source that is no file. Rows of a source that has no
    header are counted from 1.
    """
    if isinstance(source, (str, Path)):
        return _read_file(Path(source), column_names, leave_out_ragged)
    package = type(source).__module__.partition(".")[0]
    reader = {"datasets": _from_dataset, "pandas": _from_pandas, "pyarrow": _from_arrow}.get(package)
    if reader is None:
        raise FrostlineError(
            f"{name or 'the data'}: a {type(source).__name__} cannot be read as a table; give a file, a "
            "datasets.Dataset, a pandas DataFrame or a pyarrow Table."
        )
    if column_names:
        raise FrostlineError(
            f"{name or 'the data'}: --column-names is for CSV and TSV files without a header; leave it out here."
        )
    table = reader(source, name or f"the {type(source).__name__}")
    if not len(table):
        raise FrostlineError(f"{table.name}: it has no rows; give one with an example a row.")
    return table


def _read_file(path: Path, column_names: Sequence[str] | None, leave_out_ragged: bool) -> Table:
    kind = path.suffix.lower()
    if path.is_dir():
        raise FrostlineError(f"{path}: this is a folder; name a file in it, or pass the folder with --data.")
    if not path.exists():
        raise FrostlineError(f"{path}: there is no such file{_near(path)}; check the name and the folder.")
    if kind not in EXTENSIONS:
        raise FrostlineError(f"{path}: the ending {quoted(kind)} is not known; use one of {', '.join(EXTENSIONS)}.")
    if column_names and kind not in DELIMITED:
        raise FrostlineError(f"{path}: --column-names is for CSV and TSV files without a header; leave it out here.")
    try:
        if kind == ".parquet":
            return _read_parquet(path)
        contents: Contents = (
            read_delimited(path, column_names, leave_out_ragged=leave_out_ragged)
            if kind in DELIMITED
            else read_json(path)
        )
    except UnicodeDecodeError:
        raise FrostlineError(not_utf8(path)) from None
    except OSError as error:
        raise FrostlineError(f"{path}: it cannot be read ({error.strerror or error}); check the file.") from None
    return Table(name=str(path), columns=contents.columns, rows=contents.rows, notes=contents.notes)


def _near(path: Path) -> str:
    if not path.parent.is_dir():
        return f" and no folder {quoted(str(path.parent))}"
    return nearest(path.name, [one.name for one in path.parent.iterdir() if one.suffix.lower() in EXTENSIONS])


def _read_parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid:
        raise FrostlineError(f"{path}: this is not a Parquet file; write it anew, or name it for what it is.") from None
    if not table.num_rows:
        raise FrostlineError(f"{path}: the file has no rows; give one with an example a row.")
    return _from_arrow(table, str(path))


def _from_arrow(table: Any, name: str) -> Table:
    """Class names are kept where the data sets library has left them in the schema; a ``note`` there is passed on."""
    names = table.column_names
    twice = [one for one in dict.fromkeys(names) if names.count(one) > 1]
    if twice:
        raise FrostlineError(f"{name}: column {listed(twice)} stands more than once; give each a name of its own.")
    class_names: dict[str, tuple[str, ...]] = {}
    if b"huggingface" in (table.schema.metadata or {}):
        from datasets import Features

        class_names = _class_names(Features.from_arrow_schema(table.schema))
    columns = {one: table.column(one) for one in names}
    note = (table.schema.metadata or {}).get(b"note")
    notes = () if note is None else (note.decode(),)
    return Table(name=name, columns=columns, rows=np.arange(1, len(table) + 1), class_names=class_names, notes=notes)


def _from_dataset(dataset: Any, name: str) -> Table:
    import datasets

    if not isinstance(dataset, datasets.Dataset):
        raise FrostlineError(
            f"{name}: a {type(dataset).__name__} is not one table; give a datasets.Dataset, such as one split of it."
        )
    return replace(_from_arrow(dataset.with_format("arrow")[:], name), class_names=_class_names(dataset.features))


def _class_names(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    import datasets

    return {one: tuple(kind.names) for one, kind in features.items() if isinstance(kind, datasets.ClassLabel)}


def _from_pandas(frame: Any, name: str) -> Table:
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise FrostlineError(f"{name}: a {type(frame).__name__} is not a table; give a DataFrame with named columns.")
    names = [str(one) for one in frame.columns]
    twice = [one for one in dict.fromkeys(names) if names.count(one) > 1]
    if twice:
        raise FrostlineError(f"{name}: column {listed(twice)} stands more than once; give each a name of its own.")
    columns = {}
    for position, one in enumerate(names):
        values = frame.iloc[:, position]
        columns[one] = [None if gone else cell for gone, cell in zip(values.isna(), values.tolist(), strict=True)]
    return Table(name=name, columns=columns, rows=np.arange(1, len(frame) + 1))
