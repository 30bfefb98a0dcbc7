"""The files of a sweep's tables: one row per run, and one row per score."""

import csv
import io
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frostline.data.files import replace_file
from frostline.data.wording import NUMBER
from frostline.statistics.run_result import RunResult

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = tuple(field.name for field in fields(RunResult) if field.name != "above_baseline")
INTEGERS = ("train_size", "tuned_layers", "seed", "trainable_parameters", "concurrent_runs", "peak_memory_bytes")
FLOATS = (
    *("tuned_share", "learning_rate", "num_train_epochs", "validation_best", "validation_last", "train_last", "test"),
    *("best_epoch", "train_seconds", "cache_seconds"),
)
COST = ("train_seconds", "cache_seconds", "peak_memory_bytes")  # not reproducible
SCORE_COLUMNS = ("run", "split", "epoch", "metric", "value")
FORMULA = ("=", "+", "-", "−", "@")  # a spreadsheet runs text that starts with one of these as a formula


def frame(rows: Sequence[RunResult]) -> "pd.DataFrame":
    """Rows of the results table as a pandas frame. The type of a column does not depend on its values."""
    import pandas as pd  # takes half a second, and `frostline status` does not need it

    table = pd.DataFrame(
        [{name: getattr(row, name) for name in COLUMNS} for row in rows], columns=list(COLUMNS), dtype=object
    )
    kinds = {**dict.fromkeys(COLUMNS, "string"), **dict.fromkeys(INTEGERS, "Int64"), **dict.fromkeys(FLOATS, "Float64")}
    return table.astype({**kinds, "tune_embeddings": "boolean"})


def write_tables(out: Path, runs: Sequence[RunResult], scores: Sequence[Mapping[str, Any]]) -> None:
    """Write results.csv, results.parquet and scores.csv into ``out``."""
    replace_file(out / "results.csv", csv_bytes(map(vars, runs), COLUMNS), inside=out)
    replace_file(out / "scores.csv", csv_bytes(scores, SCORE_COLUMNS), inside=out)
    buffer = io.BytesIO()
    frame(runs).to_parquet(buffer, index=False)
    replace_file(out / "results.parquet", buffer.getvalue(), inside=out)


def csv_bytes(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, safe: bool = True) -> bytes:
    """Rows as CSV. With ``safe``, text that a spreadsheet would take for a formula gets a leading apostrophe; numbers do not."""
    text = io.StringIO(newline="")
    writers = [csv.writer(text, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)]
    for row in ({name: name for name in columns}, *rows):
        cells = [_cell(row[name], safe=safe) for name in columns]
        has_return = any("\r" in str(cell) for cell in cells)  # QUOTE_MINIMAL leaves a bare \r unquoted
        writers[has_return].writerow(cells)
    return text.getvalue().encode()


def _cell(value: Any, *, safe: bool) -> Any:
    if safe and is_formula(value):
        return f"'{value}"
    return "" if value is None else value


def is_formula(cell: Any) -> bool:
    """Whether a spreadsheet may run a cell. Some skip blanks and invisible characters, and take full-width signs for others."""
    if not isinstance(text := cell, str):
        return False
    if text.startswith(("\t", "\r", "\n")):
        return True
    start = next((n for n, one in enumerate(text) if one.isprintable() and not one.isspace()), len(text))
    first, number = (unicodedata.normalize("NFKC", part).strip() for part in (text[start : start + 1], text))
    return first.startswith(FORMULA) and not NUMBER.fullmatch(number)
