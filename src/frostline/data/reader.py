"""Read any table: a file, a ``datasets.Dataset``, a pandas ``DataFrame`` or a ``pyarrow.Table``."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.conll import read_conll
from frostline.data.kinds import FORMAT_OF
from frostline.data.table import Table, checked_names
from frostline.data.text_files import read_delimited, read_json
from frostline.data.wording import did_you_mean, first_line, quoted

POINTER = b"version https://git-lfs"  # begins what Git LFS puts in the place of a file that it has not fetched


def read_table(
    source: Any,
    *,
    column_names: Sequence[str] | None = None,
    name: str | None = None,
    skip_ragged: bool = False,
    of_tokens: bool = False,
    tag_column: int | None = None,
    word_column: int | None = None,
    encoding: str | None = None,
) -> Table:
    """Read a file, ``datasets.Dataset``, pandas ``DataFrame`` or ``pyarrow.Table`` without converting its cells.

    The options are those of :class:`frostline.data.kinds.DataSettings`. One that does not suit the format is an error. ``name``
    is the name in errors of a source that is no file. With ``of_tokens``, a TSV or text file is read as a CoNLL file.
    """
    options = {
        "column_names": column_names,
        "encoding": encoding,
        "tag_column": tag_column,
        "word_column": word_column,
    }
    if not isinstance(source, str | Path):
        reader = FRAME_READERS.get(type(source).__module__.partition(".")[0])
        if reader is None:
            raise FrostlineError(
                f"{name or 'the data'}: a {type(source).__name__} cannot be read as a table; give a file, a "
                "datasets.Dataset, a pandas DataFrame or a pyarrow Table."
            )
        _refuse_options(name or "the data", None, options)
        table = reader(source, name or f"the {type(source).__name__}")
        if not len(table):
            raise FrostlineError(f"{table.name}: the table has no rows; give one with an example per row.")
        return table
    path, form = Path(source), FORMAT_OF.get(Path(source).suffix.lower())
    require_file(path)
    if form is None:
        raise FrostlineError(
            f"{path}: the file ending {quoted(path.suffix.lower())} is not known; save the table as one of "
            f"{', '.join(FORMAT_OF)}."
        )
    form = "CoNLL" if of_tokens and form == "TSV" else form
    _refuse_options(path, form, options)
    try:
        with path.open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                raise FrostlineError(
                    f"{path}: this is a pointer of Git LFS instead of the file; get it with `git -C {path.parent} lfs pull`."
                )
        if form == "Parquet":
            return _read_parquet(path)
        if form == "CoNLL":
            return read_conll(path, tag_column, word_column, encoding=encoding)
        if form == "JSON lines":
            return read_json(path, encoding)
        return read_delimited(path, column_names, skip_ragged=skip_ragged, encoding=encoding)
    except OSError as error:
        said = " ".join(str(error.strerror or error).split())  # that of pyarrow has several lines
        raise FrostlineError(f"{path}: the file cannot be read ({said}); check the file.") from None


OPTIONS = {  # the formats that have an option, and what to do with others
    "column_names": (("CSV", "TSV"), "CSV and TSV files without a header; leave it out"),
    "encoding": (("CSV", "TSV", "JSON lines", "CoNLL"), "text files; leave it out"),
    "tag_column": (("CoNLL",), "CoNLL files; name the column with --label-column instead"),
    "word_column": (("CoNLL",), "CoNLL files; name the column with --text-column instead"),
}


def _refuse_options(name: str | Path, form: str | None, given: Mapping[str, object]) -> None:
    """Raise an error if an option is given that the format of a table does not have. A table in memory has none."""
    for option, (forms, remedy) in OPTIONS.items():
        if given[option] and form not in forms:
            raise FrostlineError(f"{name}: --{option.replace('_', '-')} is for {remedy}.")


def require_file(path: Path) -> None:
    """Refuse a folder, and a file that is not there.

    Raises:
        FrostlineError: The message names a similar file.
    """
    if path.is_dir():
        raise FrostlineError(
            f"{path}: this is a folder; name a file in it; a folder with splits goes with `frostline sweep --data`."
        )
    if not path.exists():
        similar = f" and no folder {quoted(str(path.parent))}"
        if path.parent.is_dir():
            beside = [one.name for one in path.parent.iterdir() if one.suffix.lower() in FORMAT_OF and one.exists()]
            similar = did_you_mean(path.name, beside)
        raise FrostlineError(f"{path}: there is no such file{similar}; check the name and the folder.")


DAMAGE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)  # what reading damaged features can raise


def _read_parquet(path: Path) -> Table:
    """The table in a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        table.validate(full=True)  # also that text is UTF-8
    except pa.ArrowInvalid:
        raise FrostlineError(
            f"{path}: this is not a Parquet file, or a damaged one; write it again, or correct the ending of its name."
        ) from None
    if not table.num_rows:
        raise FrostlineError(f"{path}: the file has no rows; give one with an example per row.")
    return _from_arrow(table, str(path))


def _from_arrow(table: Any, name: str) -> Table:
    """A ``pyarrow.Table``. The class names of ``datasets`` and a ``note`` are read from its schema."""
    import pyarrow as pa

    names = checked_names(name, table.column_names)
    class_names: dict[str, tuple[str, ...]] = {}
    if b"huggingface" in (table.schema.metadata or {}):
        from datasets import ClassLabel, Features

        try:
            for column, kind in Features.from_arrow_schema(table.schema).items():
                kind = getattr(kind, "feature", kind)  # of a list: the kind of its items
                if isinstance(kind, ClassLabel):
                    class_names[column.strip()] = tuple(kind.names)
        except DAMAGE as error:
            raise FrostlineError(
                f"{name}: what datasets has written about its columns cannot be read ({first_line(error)}); write it again."
            ) from error
    views = [pa.types.is_string_view(column.type) for column in table.columns]  # pyarrow cannot take rows of them
    cells = [column.cast("large_string") if view else column for column, view in zip(table.columns, views, strict=True)]
    columns = dict(zip(names, cells, strict=True))
    note = (table.schema.metadata or {}).get(b"note")
    notes = () if note is None else (note.decode(errors="replace"),)
    return Table(name=name, columns=columns, rows=np.arange(1, len(table) + 1), class_names=class_names, notes=notes)


def _from_dataset(dataset: Any, name: str) -> Table:
    """A ``datasets.Dataset``. A ``DatasetDict`` is an error."""
    import datasets

    if not isinstance(dataset, datasets.Dataset):
        raise FrostlineError(
            f"{name}: a {type(dataset).__name__} is not one table; give a datasets.Dataset, such as one split of it."
        )
    return _from_arrow(dataset.with_format("arrow")[:], name)


def _from_pandas(frame: Any, name: str) -> Table:
    """A ``DataFrame``. Missing values become None, and an index with a name is a column, as in the file that pandas writes."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise FrostlineError(f"{name}: a {type(frame).__name__} is not a table; give a DataFrame with named columns.")
    named = [level for level in frame.index.names if level is not None and level not in frame.columns]
    if named:
        frame = frame.reset_index(level=named)
    names = checked_names(name, map(str, frame.columns))
    columns = {}
    for position, one in enumerate(names):
        values = frame.iloc[:, position]
        columns[one] = [None if missing else cell for missing, cell in zip(values.isna(), values.tolist(), strict=True)]
    return Table(
        name=name,
        columns=columns,
        rows=np.arange(1, len(frame) + 1),
        if_missing=" (pandas reads 'None' and 'NA' as missing, unless read_csv gets keep_default_na=False)",
    )


FRAME_READERS: Mapping[str, Callable[[Any, str], Table]] = {  # by the library that defines the object
    "datasets": _from_dataset,
    "pandas": _from_pandas,
    "pyarrow": _from_arrow,
}
