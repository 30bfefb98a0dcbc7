"""Arrow tables: Parquet files, ``pyarrow.Table`` and ``datasets.Dataset``."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.table import Table, refuse_repeated_columns
from frostline.data.wording import first_line

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
