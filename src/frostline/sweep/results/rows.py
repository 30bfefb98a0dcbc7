"""The scored examples, stored next to the results. Answer and report are rebuilt from them, without the data files."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.data.files import replace_file
from frostline.sweep.results.inside import require_inside

Folds = NDArray[np.int64]


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
    pq.write_table(table, buffer)
    replace_file(out / f"{split}.parquet", buffer.getvalue())


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
    table = _read(out, "validation", only="fold")
    return None if table is None else table["fold"].to_numpy().astype(np.int64)


def _read(out: Path, split: str, only: str | None = None) -> pa.Table | None:
    """The table of a split, or one of its columns; None if it does not exist."""
    path = out / f"{split}.parquet"
    require_inside(path, out)
    if not path.exists():
        return None
    try:
        if only is not None and only not in pq.read_schema(path).names:
            return None
        return pq.read_table(path, columns=None if only is None else [only])
    except (OSError, pa.ArrowException) as error:
        raise FrostlineError(f"{path} is damaged: run the sweep's command again to write it.") from error
