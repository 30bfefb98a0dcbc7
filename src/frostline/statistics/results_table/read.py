"""Reads a table of results as runs, grouped by model and task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from frostline import FrostlineError
from frostline.data.columns import NAME_COLUMNS
from frostline.data.formats.reader import read_table
from frostline.data.labels import refuse_similar_labels
from frostline.data.parsing import normalized_name
from frostline.data.table import Table
from frostline.data.wording import listed
from frostline.statistics.results_table.columns import find_columns
from frostline.statistics.results_table.metric import baseline_score, rows_of_one_metric
from frostline.statistics.results_table.row import NUMBERS, RowReader
from frostline.statistics.tune import FULL, name_of

T = TypeVar("T")


@dataclass(frozen=True)
class Results:
    """The runs of one model on one task.

    Attributes:
        chance: The score of the best constant prediction; None: unknown.
        layers: The number of layers of the model, L; None: unknown.
        runs: Rows as in results.csv.
    """

    model: str
    task: str
    metric: str
    chance: float | None
    layers: int | None
    runs: tuple[dict[str, Any], ...]


def read_results(
    source: Any,
    *,
    columns: Mapping[str, str] | None = None,
    constants: Mapping[str, str] | None = None,
    metrics: Mapping[str, str] | None = None,
    chances: Mapping[str, float] | None = None,
    encoding: str | None = None,
) -> list[Results]:
    """Read the runs of a table by model and task, in the order of the table.

    Args:
        source: The table: a path, or anything that ``read_table`` reads.
        columns: The table's name of a column, by our name.
        constants: One value for all rows, by our name of a column that the table lacks.
        metrics: The metric to use by task (``""`` for all tasks), if a table holds several metrics of a run.
        chances: The score of the best constant prediction, by task.
        encoding: The encoding of a text file that is not UTF-8.

    Raises:
        FrostlineError: A column, row or value cannot be used.
    """
    try:
        table = read_table(source, encoding=encoding)
    except FrostlineError as error:  # such a table has known columns, so they cannot be named otherwise
        raise FrostlineError(str(error).replace(NAME_COLUMNS, "write a header above it")) from None
    reader = RowReader(table, find_columns(table, columns or {}, constants or {}), constants or {})
    rows = [reader.run(n) for n in range(len(table))]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows_of_one_metric(table, rows, _by_task(metrics)):
        groups.setdefault((row["model"], row["task"]), []).append(row)
    if not groups:
        raise FrostlineError(f"{table.name}: no row has a score; give a table with one row per run.")
    for what in ("model", "task"):
        refuse_similar_labels(table.name, [row[what] for row in rows], what=what)
    return [_results(table, group, _by_task(chances)) for group in groups.values()]


def _by_task(given: Mapping[str, T] | None) -> dict[str, T]:
    """Values by the normalized names of tasks."""
    return {normalized_name(task): value for task, value in (given or {}).items()}


def _results(table: Table, rows: Sequence[dict[str, Any]], chances: Mapping[str, float]) -> Results:
    """The runs of one model and task."""
    model, task, metric = rows[0]["model"], rows[0]["task"], rows[0]["metric"]
    layers = _layers(table, rows)
    if len({row["train_size"] is None for row in rows}) > 1:
        first = next(row["row"] for row in rows if row["train_size"] is None)
        raise FrostlineError(f"{table.name}, row {first}: the train size is missing, which other rows of {task} have.")
    runs = [_run(row, layers) for row in rows]
    _refuse_repeated_runs(table, runs)
    return Results(model, task, metric, baseline_score(task, metric, chances, rows), layers, tuple(runs))


def _layers(table: Table, rows: Sequence[Mapping[str, Any]]) -> int | None:
    """The number of layers of the model, checked against the tuned layers of every row; None: unknown."""
    model, task = rows[0]["model"], rows[0]["task"]
    known = {int(row["layers"]) for row in rows if row["layers"]}
    if len(known) > 1:
        raise FrostlineError(
            f"{table.name}: {model} on {task} has {listed(sorted(known))} layers; correct it, a model has one number."
        )
    layers = known.pop() if known else None
    counts = [row["tuned"] for row in rows if isinstance(row["tuned"], int)]
    if layers is None and any(k < 0 for k in counts):
        raise FrostlineError(
            f"{table.name}: frozen layers count from the bottom; give the number of layers with --set layers=L."
        )
    too_deep = next((row for row in rows if layers is not None and not _fits(row["tuned"], layers)), None)
    if too_deep is not None:
        raise FrostlineError(
            f"{table.name}, row {too_deep['row']}: that is more layers than the {layers} of {model}; correct it, or give the "
            "number of layers with --set layers=L."
        )
    return layers


def _fits(tuned: int | str, layers: int) -> bool:
    return isinstance(tuned, str) or -1 - layers <= tuned <= layers


def _run(row: Mapping[str, Any], layers: int | None) -> dict[str, Any]:
    tuned = row["tuned"]
    if isinstance(tuned, int) and tuned < 0:
        assert layers is not None
        tuned += layers + 1
    return {
        **{name: row[name] for name in NUMBERS},
        **{name: row[name] for name in ("row", "seed", "metric", "outcome", "validation_best")},
        **{name: row[name] for name in ("model", "task")},
        "run": f"row {row['row']}",
        "train_size": None if row["train_size"] is None else int(row["train_size"]),
        "status": row["status"],
        "reason": "",
        "tuned_layers": tuned if isinstance(tuned, int) else layers,
        "tune_embeddings": tuned == FULL,
        "trainable": name_of(tuned),
    }


def _refuse_repeated_runs(table: Table, runs: Sequence[Mapping[str, Any]]) -> None:
    rows: dict[tuple[Any, ...], int] = {}
    for run in runs:
        key = tuple(run[name] for name in ("train_size", "trainable", "learning_rate", "seed"))
        other = rows.setdefault(key, run["row"])
        if other != run["row"]:
            raise FrostlineError(
                f"{table.name}, row {run['row']}: this run ({run['trainable']}, seed {run['seed']}) is already in row {other}; "
                "give each run once, or name the columns that distinguish them with --columns."
            )
