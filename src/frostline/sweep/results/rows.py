"""The scored examples, stored next to the results. Answer and report are rebuilt from them, without the data files."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.data.files import ARRAY_BYTES, read_inside, replace_file

Folds = NDArray[np.int64]
FORM = {"fold": pa.int64(), "row": pa.int64(), "text": pa.string(), "pair": pa.string()}
CHECKSUM = b"checksum"  # the key of a checksum in the metadata of a file


def write_rows(out: Path, split: str, examples: Examples, folds: Folds | None = None) -> None:
    """Write ``<split>.parquet``: row number in the data file, text, pair, target (class index, number, a list with the index of
    each word's tag, or a list with whether the text has each label), and fold if there are ``folds``."""
    table = pa.table(
        {
            **({} if folds is None else {"fold": folds}),
            "row": examples.rows,
            "text": pa.array(examples.texts, pa.string()),
            "pair": pa.array(examples.pairs if examples.pairs is not None else [None] * len(examples), pa.string()),
            "target": list(examples.targets) if examples.targets.ndim > 1 else examples.targets,
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({CHECKSUM: _checksum(table)}), buffer)
    replace_file(out / f"{split}.parquet", buffer.getvalue(), inside=out)


def read_rows(out: Path, split: str) -> Examples | None:
    """The examples that :func:`write_rows` wrote; None if there is no such split."""
    table = _read(out, split)
    if table is None:
        return None
    pairs, lists = table["pair"].to_pylist(), pa.types.is_list(table["target"].type)
    return Examples(
        texts=tuple(table["text"].to_pylist()),
        pairs=None if None in pairs else tuple(pairs),
        rows=table["row"].to_numpy().astype(np.int64),
        name=split,
        targets=np.array(table["target"].to_pylist()) if lists else table["target"].to_numpy(),
    )


def read_folds(out: Path) -> Folds | None:
    """The fold of each validation row; None without folds."""
    table = _read(out, "validation")
    return None if table is None or "fold" not in table.column_names else table["fold"].to_numpy().astype(np.int64)


def _read(out: Path, split: str) -> pa.Table | None:
    """The table of a split; None if it does not exist.

    Raises:
        FrostlineError: The file is damaged, or is no ordinary file in the folder.
    """
    path = out / f"{split}.parquet"
    try:
        table = pq.read_table(io.BytesIO(read_inside(path, out, ARRAY_BYTES)))
        if (table.schema.metadata or {}).get(CHECKSUM) != _checksum(table) or not _has_form(table):
            raise ValueError("its content has another checksum or form")
    except FileNotFoundError:
        return None
    except FrostlineError:  # a link
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise FrostlineError(f"{path} is damaged: run the sweep's command again to write it.") from error
    return table


def _has_form(table: pa.Table) -> bool:
    """Whether a table has the columns that :func:`write_rows` writes, each of its type and with all values."""
    kinds = {name: table.schema.field(name).type for name in table.column_names}
    target = kinds.pop("target", pa.null())
    if pa.types.is_list(target):
        target = target.value_type if len(pc.unique(pc.list_value_length(table["target"]))) <= 1 else pa.null()
    return (
        {"fold": FORM["fold"], **kinds} == FORM
        and (pa.types.is_integer(target) or pa.types.is_floating(target) or pa.types.is_boolean(target))
        and not any(table[name].null_count for name in table.column_names if name != "pair")
    )


def _checksum(table: pa.Table) -> bytes:
    """A checksum of all cells."""
    return xxhash.xxh3_128_hexdigest(json.dumps(table.to_pydict(), default=repr).encode()).encode()
