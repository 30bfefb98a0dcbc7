"""The tables of a sweep, rebuilt from its results: one row a run, and every score of every epoch."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from frostline.data.files import replace_file
from frostline.data.parsing import NUMBER
from frostline.sweep.results.store import Store
from frostline.training.specification import RunSpec

COLUMNS = (
    "model",
    "task",
    "train_size",
    "trainable",
    "tuned_layers",
    "tune_embeddings",
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
    "abreast",
    "peak_memory_bytes",
    "run",
)
INTEGERS = ("train_size", "tuned_layers", "seed", "trainable_parameters", "abreast", "peak_memory_bytes")
FLOATS = (
    *("learning_rate", "validation_best", "validation_last", "train_last", "test", "best_epoch"),
    *("train_seconds", "cache_seconds"),
)
COST = ("train_seconds", "cache_seconds", "peak_memory_bytes")  # differ between two runs of the same thing
SCORE_COLUMNS = ("run", "split", "epoch", "metric", "value")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run


def run_rows(
    specs: Sequence[RunSpec],
    store: Store,
    *,
    model: str,
    task: str,
    layers: int,
    with_test: bool,
) -> list[dict[str, Any]]:
    """One row for each run of the sweep, done or not, in the order of the grid. ``layers`` is L."""
    results, failures = store.results(), store.failures()
    share = _share_of_pass([results[spec.digest] for spec in specs if spec.digest in results])
    rows = []
    for spec in specs:
        facts = results.get(spec.digest, {})
        failure = failures.get(spec.digest, {})
        status = "done" if facts else "failed" if failure else "pending"
        test = store.test(spec.digest) if with_test else None
        rows.append(
            {
                "model": model,
                "task": task,
                "train_size": spec.train_size,
                "trainable": spec.trainable,
                **_reach(spec, facts.get("audit"), layers),
                "seed": spec.seed,
                "learning_rate": spec.learning_rate,
                "status": status,
                "reason": facts.get("reason", failure.get("reason", "")),
                "test": test[0]["scores"][facts["metric"]] if facts and test else None,
                "trainable_parameters": facts.get("audit", {}).get("trainable_parameters"),
                "abreast": facts.get("provenance", {}).get("workers"),
                "run": spec.digest,
                **{name: facts.get("cost", {}).get(name) for name in COST},
                "cache_seconds": (share if _used_pass(facts) else 0.0) if facts else None,
                **{
                    name: facts.get(name)
                    for name in ("outcome", "metric", "validation_best", "validation_last", "train_last", "best_epoch")
                },
            }
        )
    return [{name: row[name] for name in COLUMNS} for row in rows]


def _share_of_pass(finished: Iterable[Mapping[str, Any]]) -> float:
    """Seconds of the pass that fall to each run which used it, the same to all. The pass is the longest that one of them
    saw: a call that goes on where another stopped reads only the rows that its own runs need."""
    seconds = [facts["cost"]["forward_pass_seconds"] for facts in finished if _used_pass(facts)]
    return max(seconds) / len(seconds) if seconds else 0.0


def _used_pass(facts: Mapping[str, Any]) -> bool:
    return facts["provenance"]["cut"] is not None


def _reach(spec: RunSpec, audit: Mapping[str, Any] | None, layers: int) -> dict[str, Any]:
    """How far down a run trains; of named parts only its audit knows, so it is None until there is one."""
    if spec.tune != "named":
        k = layers if spec.tune == "all" else spec.tune
        return {"tuned_layers": k, "tune_embeddings": spec.tune == "all"}
    if audit is None:
        return {"tuned_layers": None, "tune_embeddings": None}
    trained = [place for place, count in audit["by_place"].items() if count["trained"]]
    numbers = [int(place.removeprefix("layer ")) for place in trained if place.startswith("layer ")]
    embeddings = "embeddings" in trained
    return {"tuned_layers": layers - min([0] if embeddings else numbers, default=layers), "tune_embeddings": embeddings}


def score_rows(specs: Iterable[RunSpec], store: Store, *, with_test: bool) -> list[dict[str, Any]]:
    """Every score of every run; test scores bear the epoch that they were taken at."""
    results, rows = store.results(), []
    for spec in specs:
        facts = results.get(spec.digest)
        if facts is None:
            continue
        rows += [{"run": spec.digest, **score} for score in facts["scores"]]
        test = store.test(spec.digest) if with_test else None
        for name, value in (test[0]["scores"] if test else {}).items():
            rows.append(
                {"run": spec.digest, "split": "test", "epoch": facts["best_epoch"], "metric": name, "value": value}
            )
    return rows


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows of the results table as a pandas frame; a column has one type, whatever the values are."""
    table = pd.DataFrame(list(rows), columns=list(COLUMNS), dtype=object)
    kinds = {**dict.fromkeys(COLUMNS, "string"), **dict.fromkeys(INTEGERS, "Int64"), **dict.fromkeys(FLOATS, "Float64")}
    return table.astype({**kinds, "tune_embeddings": "boolean"})


def write_tables(out: Path, runs: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[str, Any]]) -> None:
    """Write results.csv, results.parquet and scores.csv into ``out``."""
    replace_file(out / "results.csv", csv_bytes(runs, COLUMNS))
    replace_file(out / "scores.csv", csv_bytes(scores, SCORE_COLUMNS))
    buffer = io.BytesIO()
    frame(runs).to_parquet(buffer, index=False)
    replace_file(out / "results.parquet", buffer.getvalue())


def csv_bytes(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """Rows as CSV; a text that a spreadsheet would take for a formula (a number is none) gets a leading apostrophe, so it
    stays text."""
    text = io.StringIO(newline="")
    writers = [csv.writer(text, lineterminator="\n", quoting=how) for how in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)]
    for row in ({name: name for name in columns}, *rows):
        cells = [_cell(row[name]) for name in columns]
        writers[any("\r" in str(cell) for cell in cells)].writerow(cells)  # csv alone leaves a bare \r unquoted
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(FORMULA) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return "" if value is None else value
