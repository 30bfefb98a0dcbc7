"""Read any table: a file, a ``datasets.Dataset``, a pandas ``DataFrame`` or a ``pyarrow.Table``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.conll import read_conll
from frostline.data.kinds import ENDINGS, FORMAT_OF
from frostline.data.table import Table, refuse_repeated_columns
from frostline.data.text_files import UTF8, read_delimited, read_json, text_encoding
from frostline.data.wording import did_you_mean, first_line, quoted

DELIMITED = (*ENDINGS["CSV"], *ENDINGS["TSV"])
EXTENSIONS = tuple(FORMAT_OF)
POINTER = b"version https://git-lfs"  # begins what Git LFS puts in the place of a file that it has not fetched
ONLY_DELIMITED = "--column-names is for CSV and TSV files without a header"
ONLY_CONLL, ONLY_TEXT = "is for CoNLL files", "--encoding is for text files"


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
    """Read a table without converting its cells.

    Args:
        source: A file, ``datasets.Dataset``, pandas ``DataFrame`` or ``pyarrow.Table``. Rows are numbered from 1.
        column_names: The columns of a CSV or TSV file without a header.
        name: The name in errors for a source that is not a file.
        skip_ragged: Skip and count the rows of a CSV or TSV file that have a wrong number of cells.
        of_tokens: Read a TSV or text file as a CoNLL file, because its task is token classification.
        tag_column: The column of the tags in a CoNLL file, counted from 1.
        word_column: The column of its words. By default the first one.
        encoding: The encoding of a text file that is not UTF-8.

    Raises:
        FrostlineError: The source cannot be read, or has no rows.
    """
    if isinstance(source, (str, Path)):
        return _read_file(
            Path(source),
            column_names=column_names,
            skip_ragged=skip_ragged,
            of_tokens=of_tokens,
            tag_column=tag_column,
            word_column=word_column,
            encoding=encoding,
        )
    reader = FRAME_READERS.get(type(source).__module__.partition(".")[0])
    if reader is None:
        raise FrostlineError(
            f"{name or 'the data'}: a {type(source).__name__} cannot be read as a table; give a file, a "
            "datasets.Dataset, a pandas DataFrame or a pyarrow Table."
        )
    if column_names:
        raise FrostlineError(f"{name or 'the data'}: {ONLY_DELIMITED}; leave it out.")
    _refuse_conll_options(name or "the data", tag_column, word_column)
    if encoding is not None:
        raise FrostlineError(f"{name or 'the data'}: {ONLY_TEXT}; leave it out.")
    table = reader(source, name or f"the {type(source).__name__}")
    if not len(table):
        raise FrostlineError(f"{table.name}: the table has no rows; give one with an example per row.")
    return table


def _read_file(
    path: Path,
    *,
    column_names: Sequence[str] | None,
    skip_ragged: bool,
    of_tokens: bool,
    tag_column: int | None,
    word_column: int | None,
    encoding: str | None,
) -> Table:
    """Read a file. Options that do not suit its format are an error."""
    ending = path.suffix.lower()
    if path.is_dir():
        raise FrostlineError(
            f"{path}: this is a folder; name a file in it; a folder with splits goes with `frostline sweep --data`."
        )
    if not path.exists():
        raise FrostlineError(f"{path}: there is no such file{_similar_file(path)}; check the name and the folder.")
    if ending not in FORMAT_OF:
        raise FrostlineError(
            f"{path}: the file ending {quoted(ending)} is not known; save the table as one of {', '.join(EXTENSIONS)}."
        )
    is_conll = ending in ENDINGS["CoNLL"] or (of_tokens and ending in ENDINGS["TSV"])
    is_delimited = ending in DELIMITED and not is_conll
    if column_names and not is_delimited:
        raise FrostlineError(f"{path}: {ONLY_DELIMITED}; leave it out.")
    if not is_conll:
        _refuse_conll_options(path, tag_column, word_column)
    try:
        with path.open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                raise FrostlineError(
                    f"{path}: this is a pointer of Git LFS instead of the file; get it with `git -C {path.parent} lfs pull`."
                )
        if FORMAT_OF[ending] == "Parquet":
            if encoding is not None:
                raise FrostlineError(f"{path}: {ONLY_TEXT}; leave it out.")
            return read_parquet(path)
        codec = text_encoding(path, encoding)
        if is_conll:
            table = read_conll(path, tag_column, word_column, encoding=codec)
        elif is_delimited:
            table = read_delimited(path, column_names, skip_ragged=skip_ragged, encoding=codec)
        else:
            table = read_json(path, codec)
    except UnicodeDecodeError:
        raise FrostlineError(f"{path}: the file changed while it was read; try again.") from None
    except OSError as error:
        said = " ".join(str(error.strerror or error).split())  # that of pyarrow has several lines
        raise FrostlineError(f"{path}: the file cannot be read ({said}); check the file.") from None
    if encoding is not None and codec == UTF8 and not encoding.casefold().startswith("utf"):
        table = replace(table, notes=(*table.notes, f"{path} is UTF-8, so it is not read as {encoding}."))
    return table


def _refuse_conll_options(name: str | Path, tag_column: int | None, word_column: int | None) -> None:
    """Raise an error if a column of a CoNLL file is chosen in another table."""
    given = {"--tag-column": (tag_column, "--label-column"), "--word-column": (word_column, "--text-column")}
    for flag, (number, instead) in given.items():
        if number is not None:
            raise FrostlineError(f"{name}: {flag} {ONLY_CONLL}; name the column with {instead} instead.")


def _similar_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f" and no folder {quoted(str(path.parent))}"
    return did_you_mean(path.name, [one.name for one in path.parent.iterdir() if one.suffix.lower() in EXTENSIONS])


DAMAGE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)  # what reading damaged features can raise


def read_parquet(path: Path) -> Table:
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
    return from_arrow(table, str(path))


def from_arrow(table: Any, name: str) -> Table:
    """A ``pyarrow.Table``. The class names of ``datasets`` and a ``note`` are read from its schema."""
    names = [one.strip() for one in table.column_names]
    refuse_repeated_columns(name, names)
    class_names: dict[str, tuple[str, ...]] = {}
    if b"huggingface" in (table.schema.metadata or {}):
        from datasets import Features

        try:
            class_names = _class_names(Features.from_arrow_schema(table.schema))
        except DAMAGE as error:
            raise FrostlineError(
                f"{name}: what datasets has written about its columns cannot be read ({first_line(error)}); write it again."
            ) from error
    columns = dict(zip(names, table.columns, strict=True))
    note = (table.schema.metadata or {}).get(b"note")
    notes = () if note is None else (note.decode(errors="replace"),)
    return Table(name=name, columns=columns, rows=np.arange(1, len(table) + 1), class_names=class_names, notes=notes)


def from_dataset(dataset: Any, name: str) -> Table:
    """A ``datasets.Dataset``. A ``DatasetDict`` is an error."""
    import datasets

    if not isinstance(dataset, datasets.Dataset):
        raise FrostlineError(
            f"{name}: a {type(dataset).__name__} is not one table; give a datasets.Dataset, such as one split of it."
        )
    return replace(from_arrow(dataset.with_format("arrow")[:], name), class_names=_class_names(dataset.features))


def _class_names(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    import datasets

    kinds = {one: getattr(kind, "feature", kind) for one, kind in features.items()}  # of lists: the kind of their items
    return {one.strip(): tuple(kind.names) for one, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)}


IF_MISSING = " (pandas reads 'None' and 'NA' as missing, unless read_csv gets keep_default_na=False)"


def from_pandas(frame: Any, name: str) -> Table:
    """A ``DataFrame``. Missing values become None, and an index with a name is a column, as in the file that pandas writes."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise FrostlineError(f"{name}: a {type(frame).__name__} is not a table; give a DataFrame with named columns.")
    named = [level for level in frame.index.names if level is not None and level not in frame.columns]
    if named:
        frame = frame.reset_index(level=named)
    names = [str(one).strip() for one in frame.columns]
    refuse_repeated_columns(name, names)
    columns = {}
    for position, one in enumerate(names):
        values = frame.iloc[:, position]
        columns[one] = [None if missing else cell for missing, cell in zip(values.isna(), values.tolist(), strict=True)]
    return Table(name=name, columns=columns, rows=np.arange(1, len(frame) + 1), if_missing=IF_MISSING)


FRAME_READERS: Mapping[str, Callable[[Any, str], Table]] = {  # by the library that defines the object
    "datasets": from_dataset,
    "pandas": from_pandas,
    "pyarrow": from_arrow,
}
