"""The tables of a sweep, made from its results: one row per run, and one row per score."""

import csv
import io
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frostline.data.files import replace_file
from frostline.data.wording import NUMBER
from frostline.model.terms import EMBEDDINGS, layer_number
from frostline.statistics.recipe import FULL
from frostline.statistics.run_result import RunResult
from frostline.sweep.results.store import Store
from frostline.training.result import AuditRecord, RunRecord
from frostline.training.run import Run

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "model",
    "task",
    "train_size",
    "recipe",
    "tuned_layers",
    "tune_embeddings",
    "tuned_share",
    "seed",
    "learning_rate",
    "status",
    "reason",
    "outcome",
    "metric",
    "validation_best",
    "validation_last",
    "train_last",
    "test",
    "best_epoch",
    "trainable_parameters",
    "train_seconds",
    "cache_seconds",
    "concurrent_runs",
    "peak_memory_bytes",
    "run",
)
INTEGERS = ("train_size", "tuned_layers", "seed", "trainable_parameters", "concurrent_runs", "peak_memory_bytes")
FLOATS = (
    *("tuned_share", "learning_rate", "validation_best", "validation_last", "train_last", "test", "best_epoch"),
    *("train_seconds", "cache_seconds"),
)
COST = ("train_seconds", "cache_seconds", "peak_memory_bytes")  # not reproducible
OF_RESULT = ("outcome", "reason", "metric", "validation_best", "validation_last", "train_last", "best_epoch")
SCORE_COLUMNS = ("run", "split", "epoch", "metric", "value")
FORMULA = ("=", "+", "-", "−", "@")  # a spreadsheet runs text that starts with one of these as a formula


def run_rows(
    specs: Sequence[Run],
    store: Store,
    results: Mapping[str, RunRecord],
    *,
    model: str,
    task: str,
    layers: int,
    with_test: bool,
) -> list[RunResult]:
    """One row for each run, done or not, in the order of ``specs``. ``layers`` is the number of layers, L."""
    failures = store.failures()
    cached = [result for spec in specs if (result := results.get(spec.digest)) and result.provenance.from_cache]
    # Each call has its own forward pass. A resumed call computes only the examples that its runs need: the longest one counts.
    share = max((one.cost.forward_pass_seconds for one in cached), default=0.0) / max(1, len(cached))
    rows = []
    for spec in specs:
        result, failure = results.get(spec.digest), failures.get(spec.digest)
        about = {
            **{"model": model, "task": task, "train_size": spec.train_size, "recipe": spec.recipe, "run": spec.digest},
            **_depth_columns(spec, result.audit if result else None, layers),
            **{"seed": spec.seed, "learning_rate": spec.learning_rate},
        }
        if result is None:
            status, reason = "failed" if failure else "pending", failure.reason if failure else ""
            rows.append(RunResult(**about, status=status, reason=reason))
            continue
        on_test = store.test(spec.digest) if with_test else None
        rows.append(
            RunResult(
                **about,
                **{name: getattr(result, name) for name in OF_RESULT},
                test=on_test[0].scores.get(result.metric) if on_test else None,
                trainable_parameters=result.audit.trainable_parameters,
                train_seconds=result.cost.train_seconds,
                cache_seconds=share if result.provenance.from_cache else 0.0,
                concurrent_runs=result.provenance.workers,
                peak_memory_bytes=result.cost.peak_memory_bytes,
            )
        )
    return rows


def _depth_columns(spec: Run, audit: AuditRecord | None, layers: int) -> dict[str, Any]:
    """The columns on the depth of a run: its layers, whether it trains embeddings, and the share of layers that run in training.

    For named parts and ways they are None until there is an audit.
    """
    k = layers if spec.recipe == FULL else spec.recipe.k
    if k is not None:
        return {"tuned_layers": k, "tune_embeddings": spec.recipe == FULL, "tuned_share": k / layers}
    if audit is None:
        return {}
    numbers = [number for place in audit.trained_places if (number := layer_number(place)) is not None]
    embeddings = EMBEDDINGS in audit.trained_places
    return {
        "tuned_layers": layers - min([0] if embeddings else numbers, default=layers),
        "tune_embeddings": embeddings,
        "tuned_share": audit.tuned_share,
    }


def score_rows(
    specs: Iterable[Run], store: Store, results: Mapping[str, RunRecord], *, with_test: bool
) -> list[dict[str, Any]]:
    """Every score of every run. The epoch of a test score is the epoch of the best validation score."""
    rows: list[dict[str, Any]] = []
    for result in (results[spec.digest] for spec in specs if spec.digest in results):
        rows += [{"run": result.digest, **score.model_dump()} for score in result.scores]
        on_test = store.test(result.digest) if with_test else None
        for name, value in (on_test[0].scores if on_test else {}).items():
            rows.append(
                {"run": result.digest, "split": "test", "epoch": result.best_epoch, "metric": name, "value": value}
            )
    return rows


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


def csv_bytes(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """Rows as CSV. Text that a spreadsheet would take for a formula gets a leading apostrophe; numbers do not."""
    text = io.StringIO(newline="")
    writers = [csv.writer(text, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)]
    for row in ({name: name for name in columns}, *rows):
        cells = [_cell(row[name]) for name in columns]
        has_return = any("\r" in str(cell) for cell in cells)  # QUOTE_MINIMAL leaves a bare \r unquoted
        writers[has_return].writerow(cells)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and _is_formula(value):
        return f"'{value}"
    return "" if value is None else value


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet may run a text. Some skip blanks and invisible characters, and take full-width signs for others."""
    if text.startswith(("\t", "\r", "\n")):
        return True
    start = next((n for n, one in enumerate(text) if one.isprintable() and not one.isspace()), len(text))
    first, number = (unicodedata.normalize("NFKC", part).strip() for part in (text[start : start + 1], text))
    return first.startswith(FORMULA) and not NUMBER.fullmatch(number)
