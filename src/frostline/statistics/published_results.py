"""Anybody's results as runs: a long table, one row a run and metric, with its columns mapped to ours."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan, nan
from pathlib import Path
from typing import Any, TypeVar

from frostline import FrostlineError
from frostline.data.folding import plain
from frostline.data.glue import DEV_CHANCE, GLUE
from frostline.data.tables import Table, read_table
from frostline.data.wording import listed, nearest, quoted
from frostline.statistics.cells import FULL, NAMED
from frostline.statistics.metrics import is_known, lowest

# Our column, and what else it is called. The first that stands in a table is taken.
NAMES: Mapping[str, tuple[str, ...]] = {
    "score": ("score", "value", "validation_best", "result"),
    "trainable": ("trainable",),
    "tuned_layers": ("tuned_layers", "k", "unfrozen_layers", "tuned"),
    "frozen_layers": ("frozen_layers", "frozen"),
    "full": ("full", "tune_embeddings"),
    "layers": ("layers", "num_hidden_layers", "of_layers"),
    "seed": ("seed", "trial", "random_seed"),
    "model": ("model", "model_name"),
    "task": ("task", "dataset"),
    "metric": ("metric",),
    "train_size": ("train_size", "n", "examples", "train_examples"),
    "learning_rate": ("learning_rate", "lr", "rate"),
    "outcome": ("outcome",),
    "status": ("status",),
    "train_last": ("train_last", "train_score"),
    "trainable_parameters": ("trainable_parameters",),
    "train_seconds": ("train_seconds", "seconds", "train_runtime"),
    "cache_seconds": ("cache_seconds",),
    "abreast": ("abreast",),
    "peak_memory_bytes": ("peak_memory_bytes",),
    "chance": ("chance",),
}
NUMBERS = (
    *("train_size", "learning_rate", "train_last", "trainable_parameters", "train_seconds", "cache_seconds"),
    *("abreast", "peak_memory_bytes", "chance", "layers"),
)
METRICS = {  # what others call the metrics
    **{"mcc": "matthews_correlation", "matthews": "matthews_correlation", "matthews_corrcoef": "matthews_correlation"},
    **{"acc": "accuracy", "spearman": "spearmanr", "rho": "spearmanr", "pearsonr": "pearson"},
}
T = TypeVar("T")
STATUS = {  # and what others call it
    "done": ("finished", "completed", "complete", "success", "succeeded", "ok"),
    "failed": ("failure", "error", "crashed", "killed", "cancelled", "canceled"),
    "pending": ("running", "queued", "scheduled"),
}
LOWER_IS_BETTER = ("loss", "error", "perplexity", "mse", "rmse", "mae")
ZERO = ("matthews_correlation", "spearmanr", "pearson", "r2")  # what a constant scores in these


@dataclass(frozen=True)
class Results:
    """The runs of one model on one task, and what is known of their metric."""

    model: str
    task: str
    metric: str
    chance: float | None
    layers: int | None  # L
    runs: tuple[dict[str, Any], ...]


def read_results(
    source: Any,
    *,
    columns: Mapping[str, str] | None = None,
    constants: Mapping[str, str] | None = None,
    metrics: Mapping[str, str] | None = None,
    chances: Mapping[str, float] | None = None,
) -> list[Results]:
    """Runs from a table, by model and task, in the order of the table.

    ``columns``: our name of a column, and its name there; ``constants``: a value for a column that the table lacks;
    ``metrics``: by task (or ``""`` for all), where a table holds several metrics of a run; ``chances``: what the best
    constant prediction scores, by task.

    Raises:
        FrostlineError: a column, row or value that cannot be used.
    """
    table = read_table(source)
    read = _Reader(table, _found(table, columns or {}, constants or {}), constants or {})
    rows = [read.row(n) for n in range(len(table))]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in _one_metric(table, rows, _by_task(metrics)):
        groups.setdefault((row["model"], row["task"]), []).append(row)
    if not groups:
        raise FrostlineError(f"{table.name}: no row has a score; give a table with one row a run.")
    return [_results(table, model, task, group, _by_task(chances)) for (model, task), group in groups.items()]


class _Reader:
    """Cells of a table under our names."""

    def __init__(self, table: Table, found: Mapping[str, str], constants: Mapping[str, str]) -> None:
        self.table, self.found, self.constants = table, found, constants
        self.cells = {name: table.cells(column) for name, column in found.items()}
        stem = Path(table.name).stem
        column = str(found.get("score", "score")).lower()
        metric = column if is_known(METRICS.get(column, column)) else "score"
        self.defaults = {"model": "model", "task": stem, "metric": metric, "status": "done", **constants}

    def row(self, n: int) -> dict[str, Any]:
        """The run in row ``n``; what the table does not know is None."""
        run: dict[str, Any] = {name: self.text(name, n) for name in ("model", "task", "metric", "outcome")}
        run |= {name: self.number(name, n) for name in NUMBERS}
        run["metric"] = METRICS.get(str(run["metric"]).lower(), run["metric"])
        run["row"] = int(self.table.rows[n])
        run["seed"] = self.seed(n)
        score = self.number("score", n)
        run["validation_best"] = score if score is not None and isfinite(score) else None
        run["status"] = self.status(n)
        self.check(run, n)
        run["tuned"] = self.depth(n)
        if run["tuned"] == FULL and run["layers"] is None and (self.text("tuned_layers", n) or "").isdigit():
            run["layers"] = self.number("tuned_layers", n)  # in a row of full they are all there are
        return run

    def check(self, run: Mapping[str, Any], n: int) -> None:
        """Refuse numbers that cannot be what they are said to be."""
        score, metric = run["validation_best"], str(run["metric"])
        if score is not None and is_known(metric) and metric != "r2" and not lowest(metric) <= score <= 1:
            raise FrostlineError(
                f"{self.where('score', n)}: {score:g} cannot be {metric}, which goes from {lowest(metric):g} to 1; divide "
                "scores in per cent by 100, or name the metric with --set metric=NAME."
            )
        if any(word in metric.lower().replace("_", " ").split() for word in LOWER_IS_BETTER):
            raise FrostlineError(
                f"{self.table.name}: {metric} is better when lower, and everything here is better when higher; give another "
                "metric with --metric, or its negative under another name."
            )
        rate = run["learning_rate"]
        if rate is not None and not 0 < rate < inf:
            raise FrostlineError(f"{self.where('learning_rate', n)}: {rate:g} is no learning rate; correct it.")
        for name in ("train_size", "layers"):
            if run[name] is not None and not (1 <= run[name] < inf and run[name] == int(run[name])):
                raise FrostlineError(f"{self.where(name, n)}: {run[name]:g} is no whole number from 1 on; correct it.")

    def text(self, name: str, n: int) -> str | None:
        cell = self.cells[name][n] if name in self.cells else self.defaults.get(name)
        return None if cell is None or str(cell).strip() == "" else str(cell).strip()

    def number(self, name: str, n: int) -> float | None:
        text = self.text(name, n)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            raise FrostlineError(f"{self.where(name, n)}: {quoted(text)} is not a number; correct it.") from None
        return None if isnan(value) else value

    def seed(self, n: int) -> int | str:
        text = self.text("seed", n)
        if text is None:
            raise FrostlineError(f"{self.where('seed', n)}: the seed is missing; runs of a cell are told apart by it.")
        whole = text.removesuffix(".0")
        return int(whole) if re.fullmatch("-?[0-9]+", whole) else text

    def status(self, n: int) -> str:
        said = self.text("status", n) or "done"
        found = next((ours for ours, theirs in STATUS.items() if said.lower() in (ours, *theirs)), None)
        if found is None:
            raise FrostlineError(
                f"{self.where('status', n)}: {quoted(said)} is none of {', '.join(STATUS)}; say which it is."
            )
        return found

    def depth(self, n: int) -> int | str:
        """Tuned layers, ``all`` or ``named``; frozen layers count from the top, as a negative number, until L is known."""
        known = self.found.keys() | self.constants.keys()
        full = (self.text("full", n) or "").lower()
        if full in ("1", "1.0", "true", "yes", "full", "all") and "trainable" not in known:
            return FULL
        name = next((name for name in ("trainable", "tuned_layers") if name in known), "frozen_layers")
        text = (self.text(name, n) or "").lower().removeprefix("last ")
        if name == "frozen_layers" and text == "all":
            return 0  # the head alone is tuned
        if name != "frozen_layers" and text in ("all", "full"):
            return FULL
        if text == NAMED:
            return NAMED
        try:
            k = float(text)
        except ValueError:
            k = nan
        if not (0 <= k < inf and k == int(k)):
            raise FrostlineError(
                f"{self.where(name, n)}: {quoted(text)} is no number of layers; give whole numbers from 0, or all."
            )
        return -int(k) - 1 if name == "frozen_layers" else int(k)

    def where(self, name: str, n: int) -> str:
        column = self.found.get(name)
        return self.table.where(n, column) if column else f"{self.table.name}, {name}"


def _found(table: Table, columns: Mapping[str, str], constants: Mapping[str, str]) -> dict[str, str]:
    """The columns of the table under our names."""
    for ours in (*columns, *constants):
        if ours not in NAMES:
            raise FrostlineError(
                f"There is no column {quoted(ours)}{nearest(ours, NAMES)} to name: known are {', '.join(NAMES)}."
            )
    for ours, theirs in columns.items():
        if theirs not in table.columns:
            raise FrostlineError(
                f"{table.name}: there is no column {quoted(theirs)}{nearest(theirs, table.columns)}, which --columns "
                f"names for {ours}; it has {listed(table.columns)}."
            )
    there = {name.lower(): name for name in table.columns if name not in columns.values()}
    found = {ours: next((there[name] for name in names if name in there), None) for ours, names in NAMES.items()}
    chosen = {ours: theirs for ours, theirs in {**found, **columns}.items() if theirs and ours not in constants}
    if "score" not in chosen:
        named = [name for name in table.columns if is_known(METRICS.get(name.lower(), name.lower()))]
        if len(named) == 1:
            chosen["score"] = named[0]
        elif named:
            raise FrostlineError(
                f"{table.name}: the score could be {listed(named)}; take one with --columns score={named[0]}."
            )
    missing = [name for name in ("score", "seed") if name not in chosen and name not in constants]
    if not {"trainable", "tuned_layers", "frozen_layers", "full"} & (chosen.keys() | constants.keys()):
        missing.append("tuned_layers")
    if missing:
        raise FrostlineError(
            f"{table.name}: no column ({listed(table.columns)}) is known for {', '.join(missing)}; name it with --columns "
            f"{missing[0]}=COLUMN, or give one value for all rows with --set {missing[0]}=VALUE."
        )
    return chosen


def _by_task(given: Mapping[str, T] | None) -> dict[str, T]:
    """What is said of tasks, however they are spelled."""
    return {plain(task): value for task, value in (given or {}).items()}


def _one_metric(table: Table, rows: Sequence[dict[str, Any]], wanted: Mapping[str, str]) -> Iterable[dict[str, Any]]:
    """The rows of one metric a task: the one that is asked for, GLUE's own, or the only one."""
    there: dict[str, list[str]] = {}
    for row in rows:
        if row["metric"] is not None and row["metric"] not in there.setdefault(row["task"], []):
            there[row["task"]].append(row["metric"])
    chosen = {}
    for task, metrics in there.items():
        asked = wanted.get(plain(task), wanted.get(""))
        asked = METRICS.get(asked.lower(), asked) if asked else _usual(task) if len(metrics) > 1 else metrics[0]
        if asked not in metrics:
            raise FrostlineError(
                f"{table.name}: {task} has scores in {listed(metrics)}{' and not in ' + quoted(asked) if asked else ''}; "
                f"say which with --metric {task}=NAME."
            )
        chosen[task] = asked
    for row in rows:  # a run that has no result yet, or failed, need not say what it would be scored by
        metric = chosen.get(row["task"], row["metric"])
        if row["metric"] in (None, metric) and metric is not None:
            yield {**row, "metric": metric}


def _usual(task: str) -> str | None:
    """GLUE's metric of a task that bears a name of GLUE's."""
    found = GLUE.get(plain(task).removesuffix("mm")) or GLUE.get(plain(task))
    return found.metric if found else None


def _chance(task: str, metric: str, given: Mapping[str, float], rows: Sequence[Mapping[str, Any]]) -> float | None:
    """What guessing scores: as given, as in the table, as known of GLUE's development sets, or 0 where a constant has 0."""
    if plain(task) in given:
        return given[plain(task)]
    in_table = {row["chance"] for row in rows} - {None}
    if len(in_table) == 1:
        return float(in_table.pop())
    if metric in ZERO:
        return 0.0
    return DEV_CHANCE.get((plain(task), metric))


def _results(
    table: Table, model: str, task: str, rows: Sequence[dict[str, Any]], chances: Mapping[str, float]
) -> Results:
    metric = rows[0]["metric"]
    said = {int(row["layers"]) for row in rows if row["layers"]}
    if len(said) > 1:
        raise FrostlineError(
            f"{table.name}: {model} on {task} has {listed(sorted(said))} layers; a model has one number."
        )
    layers = said.pop() if said else None
    counts = [row["tuned"] for row in rows if isinstance(row["tuned"], int)]
    if layers is None and any(k < 0 for k in counts):
        raise FrostlineError(
            f"{table.name}: frozen layers are counted from the bottom, so say with --set layers=L how many layers there are."
        )
    too_deep = next((row for row in rows if layers is not None and not _fits(row["tuned"], layers)), None)
    if too_deep is not None:
        raise FrostlineError(
            f"{table.name}, row {too_deep['row']}: that is more layers than the {layers} of {model}; correct it, or say how many "
            "it has with --set layers=L."
        )
    if len({row["train_size"] is None for row in rows}) > 1:
        first = next(row["row"] for row in rows if row["train_size"] is None)
        raise FrostlineError(f"{table.name}, row {first}: the train size is missing, which other rows of {task} have.")
    runs = [_run(row, model, task, layers) for row in rows]
    _refuse_twice(table, runs)
    return Results(model, task, metric, _chance(task, metric, chances, rows), layers, tuple(runs))


def _fits(tuned: int | str, layers: int) -> bool:
    return isinstance(tuned, str) or -1 - layers <= tuned <= layers


def _run(row: Mapping[str, Any], model: str, task: str, layers: int | None) -> dict[str, Any]:
    tuned = row["tuned"]
    if isinstance(tuned, int) and tuned < 0:
        assert layers is not None
        tuned += layers + 1
    return {
        **{name: row[name] for name in NUMBERS},
        **{name: row[name] for name in ("row", "seed", "metric", "outcome", "validation_best")},
        "model": model,
        "task": task,
        "run": f"row {row['row']}",
        "train_size": None if row["train_size"] is None else int(row["train_size"]),
        "status": row["status"],
        "reason": "",
        "tuned_layers": tuned if isinstance(tuned, int) else layers,
        "tune_embeddings": tuned == FULL,
        "trainable": f"last {tuned}" if isinstance(tuned, int) else tuned,
    }


def _refuse_twice(table: Table, runs: Sequence[Mapping[str, Any]]) -> None:
    key: Callable[[Mapping[str, Any]], Any] = lambda run: tuple(  # noqa: E731
        run[name] for name in ("train_size", "trainable", "learning_rate", "seed")
    )
    first: dict[Any, int] = {}
    for run in runs:
        other = first.setdefault(key(run), run["row"])
        if other != run["row"]:
            raise FrostlineError(
                f"{table.name}, row {run['row']}: this run ({run['trainable']}, seed {run['seed']}) stands in row {other} "
                "already; give each once, or name the columns that tell them apart with --columns."
            )
