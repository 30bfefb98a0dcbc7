"""Reads a table of results from any source as runs. It has one row per run and metric; its columns are mapped to ours.

:func:`read_results` is the entry point. It checks what needs several rows, maps the table's columns to ours, reads each row as a
run, chooses the metric of each task, and finds the score of its constant baseline.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, isfinite, isnan, nan
from pathlib import Path
from typing import Any, TypeVar

from frostline import FrostlineError
from frostline.data.columns import NAME_COLUMNS
from frostline.data.glue import DEV_CHANCE, GLUE
from frostline.data.labels import refuse_similar_labels
from frostline.data.reader import read_table
from frostline.data.table import Table
from frostline.data.wording import did_you_mean, listed, normalized_name, quoted
from frostline.statistics.evidence import Scores
from frostline.statistics.metrics import METRICS, canonical_name
from frostline.statistics.recipe import FULL, HEAD_ONLY, Recipe
from frostline.statistics.run_group import RunGroup
from frostline.statistics.run_result import RunResult


def rows_of_one_metric(
    table: Table, rows: Sequence[dict[str, Any]], wanted: Mapping[str, str]
) -> Iterable[dict[str, Any]]:
    """The rows of one metric per task: the one in ``wanted`` (``""`` for all tasks), GLUE's own, or the only one.

    Raises:
        FrostlineError: A task has several metrics, or not the one that is wanted.
    """
    present: dict[str, list[str]] = {}
    for row in rows:
        if row["metric"] is not None and row["metric"] not in present.setdefault(row["task"], []):
            present[row["task"]].append(row["metric"])
    chosen = {}
    for task, metrics in present.items():
        metric = wanted.get(normalized_name(task), wanted.get(""))
        metric = canonical_name(metric) if metric else _glue_metric(task) if len(metrics) > 1 else metrics[0]
        if metric not in metrics:
            raise FrostlineError(
                f"{table.name}: {task} has scores in {listed(metrics)}{' but not in ' + quoted(metric) if metric else ''}; "
                f"choose one with --metric {task}=NAME."
            )
        chosen[task] = metric
    for row in rows:  # a run without a result may have no metric
        metric = chosen.get(row["task"], row["metric"])
        if row["metric"] in (None, metric) and metric is not None:
            yield {**row, "metric": metric}


def _glue_metric(task: str) -> str | None:
    """GLUE's metric for a task that has the name of one of GLUE's."""
    found = GLUE.get(normalized_name(task).removesuffix("mm")) or GLUE.get(normalized_name(task))
    return found.metric if found else None


def baseline_score(
    task: str, metric: str, given: Mapping[str, float], rows: Sequence[Mapping[str, Any]]
) -> float | None:
    """The score of the best constant prediction.

    It is the first known of: the user's value, the table's value, the value that the metric defines, and the value of GLUE's
    development set. None: unknown.
    """
    if normalized_name(task) in given:
        return given[normalized_name(task)]
    in_table = {row["chance"] for row in rows} - {None}
    if len(in_table) == 1:
        return float(in_table.pop())
    if metric in METRICS and METRICS[metric].constant is not None:
        return METRICS[metric].constant
    return DEV_CHANCE.get((normalized_name(task), metric))


# Our column: its usual names. The first one that the table has is used.
NAMES: Mapping[str, tuple[str, ...]] = {
    "score": ("score", "value", "validation_best", "result"),
    "recipe": ("recipe", "trainable"),
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
    "num_train_epochs": ("num_train_epochs",),
    "outcome": ("outcome",),
    "status": ("status",),
    "train_last": ("train_last", "train_score"),
    "trainable_parameters": ("trainable_parameters",),
    "train_seconds": ("train_seconds", "seconds", "train_runtime"),
    "cache_seconds": ("cache_seconds",),
    "concurrent_runs": ("concurrent_runs",),
    "peak_memory_bytes": ("peak_memory_bytes",),
    "chance": ("chance",),
}
NEEDED = ("score", "seed")
TUNED_LAYERS = {"recipe", "tuned_layers", "frozen_layers", "full"}  # one of them is needed


def find_columns(table: Table, named: Mapping[str, str], constants: Mapping[str, str]) -> dict[str, str]:
    """The columns of the table by our names.

    Args:
        table: The table.
        named: Columns that the user named, by our names.
        constants: Our columns for which the user gave one value for all rows.

    Raises:
        FrostlineError: A named column does not exist, or a needed one is not found.
    """
    _check_names(table, named, constants)
    lower = {name.lower(): name for name in table.columns if name not in named.values()}
    found = {ours: next((lower[name] for name in names if name in lower), None) for ours, names in NAMES.items()}
    chosen = {ours: theirs for ours, theirs in {**found, **named}.items() if theirs and ours not in constants}
    if "score" not in chosen:
        scores = [name for name in table.columns if canonical_name(name.lower()) in METRICS]
        if len(scores) == 1:
            chosen["score"] = scores[0]
        elif scores:
            raise FrostlineError(
                f"{table.name}: the score could be {listed(scores)}; choose one with --columns score={scores[0]}."
            )
    known = chosen.keys() | constants.keys()
    missing = [name for name in NEEDED if name not in known]
    if not TUNED_LAYERS & known:
        missing.append("tuned_layers")
    if missing:
        raise FrostlineError(
            f"{table.name}: none of its columns ({listed(table.columns)}) is known as {', '.join(missing)}; name the column "
            f"with --columns {missing[0]}=COLUMN, or give one value for all rows with --set {missing[0]}=VALUE."
        )
    return chosen


def _check_names(table: Table, named: Mapping[str, str], constants: Mapping[str, str]) -> None:
    for ours in (*named, *constants):
        if ours not in NAMES:
            raise FrostlineError(
                f"There is no column {quoted(ours)}{did_you_mean(ours, NAMES)} to name: choose from {', '.join(NAMES)}."
            )
    for ours, theirs in named.items():
        if theirs not in table.columns:
            raise FrostlineError(
                f"{table.name}: there is no column {quoted(theirs)}{did_you_mean(theirs, table.columns)}, which --columns "
                f"names for {ours}; the table has {listed(table.columns)}."
            )


COSTS = ("trainable_parameters", "train_seconds", "cache_seconds", "concurrent_runs", "peak_memory_bytes")
NUMBERS = ("train_size", "learning_rate", "num_train_epochs", "train_last", "chance", "layers", *COSTS)
STATUSES = {  # and their other names
    "done": ("finished", "completed", "complete", "success", "succeeded", "ok"),
    "failed": ("failure", "error", "crashed", "killed", "cancelled", "canceled"),
    "pending": ("running", "queued", "scheduled"),
}
TRUE = ("1", "1.0", "true", "yes", "full", "all")
LOWER_IS_BETTER = ("loss", "error", "perplexity", "mse", "rmse", "mae")


class RowReader:
    """Reads the rows of a table.

    Args:
        table: The table.
        columns: Its columns by our names.
        constants: Values for columns that the table lacks.
    """

    def __init__(self, table: Table, columns: Mapping[str, str], constants: Mapping[str, str]) -> None:
        self.table, self.columns, self.constants = table, columns, constants
        self.cells = {name: table.cells(column) for name, column in columns.items()}
        score_column = canonical_name(str(columns.get("score", "score")).lower())
        self.defaults = {
            "model": "model",
            "task": Path(table.name).stem,
            "metric": score_column if score_column in METRICS else "score",
            "status": "done",
            **constants,
        }

    def run(self, n: int) -> dict[str, Any]:
        """The run in row ``n``. A value that the table lacks is None.

        ``tuned`` is the number of tuned layers, ``all`` or ``named``. Until the number of layers L is known, n frozen layers are
        ``-n - 1``; so -1 means that L layers are tuned.

        Raises:
            FrostlineError: A value is missing or impossible.
        """
        run: dict[str, Any] = {name: self._text(name, n) for name in ("model", "task", "metric", "outcome")}
        run |= {name: self._number(name, n) for name in NUMBERS}
        run["metric"] = canonical_name(str(run["metric"])) if run["metric"] is not None else None
        run["row"] = int(self.table.rows[n])
        run["seed"] = self._seed(n)
        score = self._number("score", n)
        run["validation_best"] = score if score is not None and isfinite(score) else None
        run["status"] = self._status(n)
        self._check(run, n)
        run["tuned"] = self._tuned(n)
        if (
            isinstance(run["tuned"], Recipe)
            and run["tuned"].is_full
            and run["layers"] is None
            and (self._text("tuned_layers", n) or "").isdigit()
        ):
            run["layers"] = self._number("tuned_layers", n)  # full fine-tuning tunes all layers
        return run

    def _check(self, run: Mapping[str, Any], n: int) -> None:
        """Refuse impossible numbers, and metrics that are better when lower."""
        score, metric = run["validation_best"], str(run["metric"])
        known = METRICS.get(metric)
        if score is not None and known and known.bounded and not known.lowest <= score <= 1:
            raise FrostlineError(
                f"{self._location('score', n)}: {score:g} cannot be {metric}, which goes from {known.lowest:g} to 1; divide "
                "percentages by 100, or name the metric with --set metric=NAME."
            )
        if any(word in metric.lower().replace("_", " ").split() for word in LOWER_IS_BETTER):
            raise FrostlineError(
                f"{self.table.name}: {metric} is better when it is lower, but the analysis takes higher scores as better; "
                "choose another metric with --metric, or give its negative under another name."
            )
        rate = run["learning_rate"]
        if rate is not None and not 0 < rate < inf:
            raise FrostlineError(f"{self._location('learning_rate', n)}: {rate:g} is not a learning rate; correct it.")
        for name in ("train_size", "layers"):
            if run[name] is not None and not (1 <= run[name] < inf and run[name] == int(run[name])):
                raise FrostlineError(
                    f"{self._location(name, n)}: {run[name]:g} is not a whole number of at least 1; correct it."
                )

    def _text(self, name: str, n: int) -> str | None:
        cell = self.cells[name][n] if name in self.cells else self.defaults.get(name)
        return None if cell is None or str(cell).strip() == "" else str(cell).strip()

    def _number(self, name: str, n: int) -> float | None:
        text = self._text(name, n)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            raise FrostlineError(f"{self._location(name, n)}: {quoted(text)} is not a number; correct it.") from None
        return None if isnan(value) else value

    def _seed(self, n: int) -> int | str:
        text = self._text("seed", n)
        if text is None:
            raise FrostlineError(
                f"{self._location('seed', n)}: the seed is missing; it distinguishes the runs with equal settings."
            )
        whole = text.removesuffix(".0")
        return int(whole) if re.fullmatch("-?[0-9]+", whole) else text

    def _status(self, n: int) -> str:
        text = self._text("status", n) or "done"
        status = next((ours for ours, theirs in STATUSES.items() if text.lower() in (ours, *theirs)), None)
        if status is None:
            raise FrostlineError(
                f"{self._location('status', n)}: {quoted(text)} is none of {', '.join(STATUSES)}; write one of these."
            )
        return status

    def _tuned(self, n: int) -> int | Recipe:
        """The recipe, or with frozen layers a negative number: how many are frozen, and 1."""
        known = self.columns.keys() | self.constants.keys()
        if (self._text("full", n) or "").lower() in TRUE and "recipe" not in known:
            return FULL
        name = next((name for name in ("recipe", "tuned_layers") if name in known), "frozen_layers")
        text = (self._text(name, n) or "").lower()
        if name == "frozen_layers" and text == "all":
            return HEAD_ONLY
        with suppress(ValueError):
            recipe = Recipe(text)
            if name == "recipe" or (name == "tuned_layers" and not recipe.is_way):
                return recipe
        try:
            k = float(text)
        except ValueError:
            k = nan
        if not (0 <= k < inf and k == int(k)):
            raise FrostlineError(
                f"{self._location(name, n)}: {quoted(text)} is not a number of layers; give whole numbers from 0, or full."
            )
        return -int(k) - 1 if name == "frozen_layers" else Recipe(int(k))

    def _location(self, name: str, n: int) -> str:
        column = self.columns.get(name)
        return self.table.location(n, column) if column else f"{self.table.name}, {name}"


T = TypeVar("T")


def read_results(
    source: Any,
    *,
    columns: Mapping[str, str] | None = None,
    constants: Mapping[str, str] | None = None,
    metrics: Mapping[str, str] | None = None,
    chances: Mapping[str, float] | None = None,
    encoding: str | None = None,
    paired: bool = True,
) -> list[RunGroup]:
    """Read the runs of a table by model and task, in the order of the table. Their predictions are unknown.

    Args:
        source: The table: a path, or anything that ``read_table`` reads.
        columns: The table's name of a column, by our name.
        constants: One value for all rows, by our name of a column that the table lacks.
        metrics: The metric to use by task (``""`` for all tasks), if a table holds several metrics of a run.
        chances: The score of the best constant prediction, by task.
        encoding: The encoding of a text file that is not UTF-8.
        paired: Whether runs with the same seed are compared with each other.

    Raises:
        FrostlineError: A column, row or value cannot be used.
    """
    try:
        table = read_table(source, encoding=encoding)
    except FrostlineError as error:  # such a table has known columns, so they cannot be named otherwise
        raise FrostlineError(error.args[0].replace(NAME_COLUMNS, "write a header above it")) from None
    reader = RowReader(table, find_columns(table, columns or {}, constants or {}), constants or {})
    rows = [reader.run(n) for n in range(len(table))]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows_of_one_metric(table, rows, _by_task(metrics)):
        groups.setdefault((row["model"], row["task"]), []).append(row)
    if not groups:
        raise FrostlineError(f"{table.name}: no row has a score; give a table with one row per run.")
    for what in ("model", "task"):
        refuse_similar_labels(table.name, [row[what] for row in rows], what=what)
    return [_group(table, group, _by_task(chances), paired=paired) for group in groups.values()]


def _by_task(given: Mapping[str, T] | None) -> dict[str, T]:
    """Values by the normalized names of tasks."""
    return {normalized_name(task): value for task, value in (given or {}).items()}


def _group(table: Table, rows: Sequence[dict[str, Any]], chances: Mapping[str, float], *, paired: bool) -> RunGroup:
    """The runs of one model and task."""
    model, task, metric = rows[0]["model"], rows[0]["task"], rows[0]["metric"]
    layers = _layers(table, rows)
    if len({row["train_size"] is None for row in rows}) > 1:
        first = next(row["row"] for row in rows if row["train_size"] is None)
        raise FrostlineError(f"{table.name}, row {first}: the train size is missing, which other rows of {task} have.")
    runs = [_run(row, layers) for row in rows]
    if len({run.num_train_epochs for run in runs}) > 1:
        runs = [replace(run, recipe=run.recipe.for_epochs(run.recipe.epochs or run.num_train_epochs)) for run in runs]
    _refuse_repeated_runs(table, runs)
    evidence = Scores(metric, baseline_score(task, metric, chances, rows), paired)
    return RunGroup(model=model, task=task, layers=layers, runs=runs, evidence=evidence)


def _layers(table: Table, rows: Sequence[Mapping[str, Any]]) -> int | None:
    """The number of layers of the model, checked against the tuned layers of every row; None: unknown."""
    model, task = rows[0]["model"], rows[0]["task"]
    known = {int(row["layers"]) for row in rows if row["layers"]}
    if len(known) > 1:
        raise FrostlineError(
            f"{table.name}: {model} on {task} has {listed(sorted(known))} layers; correct it, a model has one number."
        )
    layers = known.pop() if known else None
    if layers is None and any(isinstance(row["tuned"], int) for row in rows):
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


def _fits(tuned: int | Recipe, layers: int) -> bool:
    return (tuned.k or 0) <= layers if isinstance(tuned, Recipe) else -1 - layers <= tuned


def _run(row: Mapping[str, Any], layers: int | None) -> RunResult:
    tuned = row["tuned"]
    if isinstance(tuned, int) and tuned < 0:
        assert layers is not None
        tuned = Recipe(tuned + layers + 1)
    return RunResult(
        **{name: row[name] for name in ("model", "task", "seed", "status", "outcome", "metric")},
        **{name: row[name] for name in ("learning_rate", "num_train_epochs")},
        **{name: row[name] for name in ("validation_best", "train_last", *COSTS)},
        train_size=None if row["train_size"] is None else int(row["train_size"]),
        recipe=tuned,
        tuned_layers=layers if tuned.k is None else tuned.k,
        tune_embeddings=tuned.is_full,
        run=f"row {row['row']}",
    )


def _refuse_repeated_runs(table: Table, runs: Sequence[RunResult]) -> None:
    rows: dict[tuple[Any, ...], str] = {}
    for run in runs:
        other = rows.setdefault((run.train_size, run.recipe, run.learning_rate, run.seed), run.run)
        if other != run.run:
            raise FrostlineError(
                f"{table.name}, {run.run}: this run ({run.recipe}, seed {run.seed}) is already in {other}; "
                "give each run once, or name the columns that distinguish them with --columns."
            )
