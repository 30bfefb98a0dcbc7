"""Reads a table of results from any source as runs. It has one row per run and metric; its columns are mapped to ours.

:func:`read_results` is the entry point. It checks what needs several rows, maps the table's columns to ours, reads each row as a
run, chooses the metric of each task, and finds the score of its constant baseline.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan, nan
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from frostline import FrostlineError
from frostline.data.columns import NAME_COLUMNS
from frostline.data.glue import DEV_CHANCE, GLUE
from frostline.data.labels import refuse_similar_labels
from frostline.data.reader import read_table
from frostline.data.table import Table
from frostline.data.wording import did_you_mean, listed, normalized_name, quoted
from frostline.statistics.cells import ANSWERS, FAILURES, done
from frostline.statistics.evidence import Scores
from frostline.statistics.metrics import METRICS, canonical_name
from frostline.statistics.recipe import FULL, HEAD_ONLY, Recipe
from frostline.statistics.run_group import RunGroup
from frostline.statistics.run_result import RunResult


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row as it stands in the table.

    Attributes:
        run: Its run. If the row has frozen layers, what it tunes is known only with the number of all layers.
        frozen: How many layers are frozen, if the table counts these.
        layers: The number of layers of the model, if the row has it.
        chance: The score of the best constant prediction, if the row has it.
    """

    run: RunResult
    frozen: int | None
    layers: int | None
    chance: float | None


def rows_of_one_metric(table: Table, rows: Sequence[Row], wanted: Mapping[str, str]) -> Iterable[Row]:
    """The rows of one metric per task: the one in ``wanted`` (``""`` for all tasks), GLUE's own, or the only one.

    A run without a score may have a row of another metric only. It counts all the same.

    Raises:
        FrostlineError: A task has several metrics, or not the one that is wanted. Or a run has a score in another one only.
    """
    present: dict[str, dict[str, None]] = {}
    for run in (row.run for row in rows):
        if run.metric is not None:
            present.setdefault(run.task, {})[run.metric] = None
        elif run.validation_best is not None:
            raise FrostlineError(f"{table.name}, {run.run}: the score has no metric, which other rows have; write it.")
    chosen = {}
    for task, metrics in present.items():
        of_glue = GLUE.get(normalized_name(task).removesuffix("mm")) or GLUE.get(normalized_name(task))
        metric = canonical_name(wanted.get(normalized_name(task), wanted.get("", ""))) or None
        if metric is None:
            metric = next(iter(metrics)) if len(metrics) == 1 else of_glue.metric if of_glue else None
        if metric not in metrics:
            raise FrostlineError(
                f"{table.name}: {task} has scores in {listed(metrics)}{' but not in ' + quoted(metric) if metric else ''}; "
                f"choose one with --metric {task}=NAME."
            )
        chosen[task] = metric

    def metric_of(row: Row) -> str | None:
        return chosen.get(row.run.task, row.run.metric)

    known = {_which(row) for row in rows if row.run.metric in (None, metric_of(row))}
    for row in rows:
        if (metric := metric_of(row)) is None:
            continue
        if row.run.metric not in (None, metric):
            if _which(row) in known:
                continue
            if row.run.validation_best is not None:
                raise FrostlineError(
                    f"{table.name}, {row.run.run}: this run has a score in {row.run.metric}, but none in {metric}, which other "
                    f"rows of {row.run.task} have; write it, or choose another metric with --metric."
                )
            known.add(_which(row))
        yield replace(row, run=replace(row.run, metric=metric))


def _which(row: Row) -> tuple[Any, ...]:
    """What the rows of one run have in common, whatever their metrics."""
    run = row.run
    return (
        run.model,
        run.task,
        run.train_size,
        run.recipe,
        row.frozen,
        run.learning_rate,
        run.num_train_epochs,
        run.seed,
    )


def baseline_score(task: str, metric: str, given: Mapping[str, float], rows: Sequence[Row]) -> float | None:
    """The score of the best constant prediction.

    It is the first known of: the user's value, the table's value, the value that the metric defines, and the value of GLUE's
    development set. None: unknown.

    Raises:
        FrostlineError: The table has several values.
    """
    if normalized_name(task) in given:
        return given[normalized_name(task)]
    in_table = sorted({row.chance for row in rows if row.chance is not None})
    if len(in_table) > 1:
        raise FrostlineError(
            f"The table has {len(in_table)} scores of the best constant prediction for {task}, such as {in_table[0]:g} and "
            f"{in_table[-1]:g}; give one with --chance {task}=SCORE."
        )
    if in_table:
        return in_table[0]
    if metric in METRICS and METRICS[metric].constant is not None:
        return METRICS[metric].constant
    return DEV_CHANCE.get((normalized_name(task), metric))


# Our column: its usual names. The first one that the table has is used.
NAMES: Mapping[str, tuple[str, ...]] = {
    "score": ("score", "value", "validation_best", "result"),
    "recipe": ("recipe",),
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
    "num_train_epochs": ("num_train_epochs", "epochs", "num_epochs"),
    "outcome": ("outcome",),
    "status": ("status", "state"),
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
    free = [name for name in table.columns if name not in named.values()]
    lower = {name.lower(): name for name in sorted(free, key=str.islower)}  # of "Score" and "score" the latter
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
    "failed": ("fail", "failure", "error", "crashed", "killed", "cancelled", "canceled", "pruned", "preempted"),
    "pending": ("running", "queued", "scheduled", "waiting", "preempting"),
}
OUTCOMES = tuple(dict.fromkeys((*ANSWERS, *FAILURES)))
TRUE, FALSE = ("1", "1.0", "true", "yes", "y", "full", "all"), ("", "0", "0.0", "false", "no", "n")
LOWER_IS_BETTER = re.compile(
    "((loss|errors?|perplexity|entropy|deviance)|(?<![a-z])(err|ppl|n?r?msl?e|mae|s?mape|nll|brier|[wcte]er|ece|bp[bc]|f[dnp]r|kld?))(?![a-z])"
)


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
        score_column = columns.get("score", "score")
        known = canonical_name(score_column.lower())
        self.defaults = {
            "model": "model",
            "task": Path(table.name).stem,
            "metric": known if known in METRICS else "score" if known in NAMES["score"] else score_column,
            "status": "done",
            **constants,
        }

    def row(self, n: int) -> Row:
        """Row ``n``. A value that the table lacks is None.

        Raises:
            FrostlineError: A value is missing or impossible.
        """
        number = {name: self._number(name, n) for name in NUMBERS}
        metric, score = self._text("metric", n), self._number("score", n)
        run = RunResult(
            model=self._name("model", n),
            task=self._name("task", n),
            metric=None if metric is None else canonical_name(metric),
            outcome=self._outcome(n),
            seed=self._seed(n),
            validation_best=score if score is not None and isfinite(score) else None,
            status=self._status(n),
            recipe=HEAD_ONLY,
            **{name: number[name] for name in ("learning_rate", "num_train_epochs", "train_last", *COSTS)},  # type: ignore[arg-type]
            run=f"row {self.table.rows[n]}",
        )
        self._check(run, number, n)
        recipe, frozen = self._tuned(n)
        layers = number["layers"]
        if recipe.is_full and layers is None and (self._text("tuned_layers", n) or "").isdigit():
            layers = self._number("tuned_layers", n)  # full fine-tuning tunes all layers
        size = number["train_size"]
        return Row(
            run=replace(run, recipe=recipe, train_size=None if size is None else int(size)),
            frozen=frozen,
            layers=None if layers is None else int(layers),
            chance=number["chance"],
        )

    def _check(self, run: RunResult, number: Mapping[str, float | None], n: int) -> None:
        """Refuse impossible numbers."""
        rate = run.learning_rate
        if rate is not None and not 0 < rate < inf:
            raise FrostlineError(f"{self._location('learning_rate', n)}: {rate:g} is not a learning rate; correct it.")
        for name in ("num_train_epochs", *COSTS):
            if (value := number[name]) is not None and not 0 <= value < inf:
                raise FrostlineError(
                    f"{self._location(name, n)}: {value:g} is impossible; correct it, or leave the cell empty if it is unknown."
                )
        for name in ("train_size", "layers"):
            if (value := number[name]) is not None and not (1 <= value < inf and value == int(value)):
                raise FrostlineError(
                    f"{self._location(name, n)}: {value:g} is not a whole number of at least 1; correct it."
                )

    def check_score(self, run: RunResult) -> None:
        """Refuse an impossible score of a run in the chosen metric, and metrics that are better when lower."""
        score, metric = run.validation_best, str(run.metric)
        known, column = METRICS.get(metric), self.columns.get("score")
        place = f"{self.table.name}, {run.run}, column {quoted(column)}" if column else f"{self.table.name}, score"
        if score is not None and known and known.bounded and not known.lowest <= score <= 1:
            raise FrostlineError(
                f"{place}: {score:g} cannot be {metric}, which goes from {known.lowest:g} to 1; divide "
                "percentages by 100, or name the metric with --set metric=NAME."
            )
        if score is not None and score > 1:
            raise FrostlineError(
                f"{place}: {score:g} is more than 1, the highest score, of which a point is a hundredth; "
                "divide all scores by the highest possible one, such as percentages by 100."
            )
        if LOWER_IS_BETTER.search(metric.lower()) and "neg" not in metric.lower():
            raise FrostlineError(
                f"{self.table.name}: {metric} is better when it is lower, but the analysis takes higher scores as better; "
                "choose another metric with --metric, or give its negative under another name."
            )

    def _name(self, name: str, n: int) -> str:
        """The model or the task."""
        if (text := self._text(name, n)) is None:
            raise FrostlineError(f"{self._location(name, n)}: the {name} is missing, which other rows have; write it.")
        return text

    def _text(self, name: str, n: int) -> str | None:
        cell = self.cells[name][n] if name in self.cells else self.defaults.get(name)
        text = "" if cell is None else str(cell).strip()
        return None if text.lower() in ("", "nan") else text

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
        text = (self._text("status", n) or "done").lower()
        known = {theirs: ours for ours, others in STATUSES.items() for theirs in (ours, *others)}
        return known.get(text) or self._refuse("status", n, STATUSES)

    def _outcome(self, n: int) -> str | None:
        text = (self._text("outcome", n) or "").lower()
        if text and text not in OUTCOMES:
            self._refuse("outcome", n, OUTCOMES)
        return text or None

    def _refuse(self, name: str, n: int, known: Iterable[str]) -> NoReturn:
        raise FrostlineError(
            f"{self._location(name, n)}: {quoted(self._text(name, n))} is none of {', '.join(known)}; write one of these."
        )

    def _tuned(self, n: int) -> tuple[Recipe, int | None]:
        """What was tuned; of a row with frozen layers their number, which stands for another recipe than the one returned."""
        known = self.columns.keys() | self.constants.keys()
        if (full := (self._text("full", n) or "").lower()) not in (*TRUE, *FALSE):
            raise FrostlineError(
                f"{self._location('full', n)}: {quoted(full)} is neither yes nor no; write one of these."
            )
        if full in TRUE and "recipe" not in known:
            return FULL, None
        name = next((name for name in ("recipe", "tuned_layers") if name in known), "frozen_layers")
        text = (self._text(name, n) or "").lower()
        if name == "frozen_layers" and text == "all":
            return HEAD_ONLY, None
        with suppress(ValueError):
            recipe = Recipe(text)
            if name == "recipe" or (name == "tuned_layers" and not recipe.is_way):
                return recipe, None
        try:
            k = float(text)
        except ValueError:
            k = nan
        if not (0 <= k < inf and k == int(k)):
            raise FrostlineError(
                f"{self._location(name, n)}: {quoted(text)} is not a number of layers; give whole numbers from 0, or full."
            )
        return (HEAD_ONLY, int(k)) if name == "frozen_layers" else (Recipe(int(k)), None)

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
) -> list[RunGroup]:
    """Read the runs of a table by model and task, in the order of the table. Their predictions are unknown.

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
        raise FrostlineError(error.args[0].replace(NAME_COLUMNS, "write a header above it")) from None
    reader = RowReader(table, find_columns(table, columns or {}, constants or {}), constants or {})
    rows = [reader.row(n) for n in range(len(table))]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows_of_one_metric(table, rows, _by_task(metrics)):
        reader.check_score(row.run)
        groups.setdefault((row.run.model, row.run.task), []).append(row)
    if not groups:
        raise FrostlineError(f"{table.name}: no row has a score; give a table with one row per run.")
    for what in ("model", "task"):
        refuse_similar_labels(table.name, [getattr(row.run, what) for row in rows], what=what)
    return [_group(table, group, _by_task(chances)) for group in groups.values()]


def _by_task(given: Mapping[str, T] | None) -> dict[str, T]:
    """Values by the normalized names of tasks."""
    return {normalized_name(task): value for task, value in (given or {}).items()}


def _group(table: Table, rows: Sequence[Row], chances: Mapping[str, float]) -> RunGroup:
    """The runs of one model and task."""
    model, task, metric = rows[0].run.model, rows[0].run.task, str(rows[0].run.metric)
    layers = _layers(table, rows)
    for name, words in (("train_size", "train size"), ("num_train_epochs", "number of epochs")):
        without = [row.run.run for row in rows if getattr(row.run, name) is None]
        if 0 < len(without) < len(rows):
            raise FrostlineError(
                f"{table.name}, {without[0]}: the {words} is missing, which other rows of {task} have."
            )
    runs = [_of_layers(row, layers) for row in rows]
    _refuse_some_learning_rates(table, runs)
    if len({run.num_train_epochs for run in runs}) > 1:
        runs = [replace(run, recipe=run.recipe.for_epochs(run.recipe.epochs or run.num_train_epochs)) for run in runs]
    _refuse_repeated_runs(table, runs)
    chance, known = baseline_score(task, metric, chances, rows), METRICS.get(metric)
    lowest = known.lowest if known and known.bounded else -inf
    if chance is not None and not (lowest <= chance < 1 and isfinite(chance)):
        raise FrostlineError(
            f"{table.name}: {chance:g} cannot be the {metric} of a constant prediction for {task}; give a share such as 0.5 with "
            f"--chance {task}=SCORE."
        )
    if chance is None and any((run.validation_best or 0.0) < 0 for run in runs):
        raise FrostlineError(
            f"{table.name}: {task} has scores below 0, of which a share means nothing; give the score of the best constant "
            f"prediction with --chance {task}=SCORE."
        )
    evidence = Scores(metric, chance)
    return RunGroup(model=model, task=task, layers=layers, runs=runs, evidence=evidence)


def _layers(table: Table, rows: Sequence[Row]) -> int | None:
    """The number of layers of the model, checked against the layers of every row; None: unknown."""
    model, task = rows[0].run.model, rows[0].run.task
    known = {row.layers for row in rows if row.layers is not None}
    if len(known) > 1:
        raise FrostlineError(
            f"{table.name}: {model} on {task} has {listed(sorted(known))} layers; correct it, a model has one number."
        )
    layers = known.pop() if known else None
    if layers is None and any(row.frozen is not None for row in rows):
        raise FrostlineError(
            f"{table.name}: frozen layers count from the bottom; give the number of layers with --set layers=L."
        )
    too_deep = [row for row in rows if layers is not None and max(row.frozen or 0, row.run.recipe.k or 0) > layers]
    if too_deep:
        raise FrostlineError(
            f"{table.name}, {too_deep[0].run.run}: that is more layers than the {layers} of {model}; correct it, or give the "
            "number of layers with --set layers=L."
        )
    return layers


def _of_layers(row: Row, layers: int | None) -> RunResult:
    """The run of a row of a model with this many layers."""
    recipe = row.run.recipe
    if row.frozen is not None:
        assert layers is not None
        recipe = Recipe(layers - row.frozen)
    tuned = layers if recipe.k is None else recipe.k
    return replace(row.run, recipe=recipe, tuned_layers=tuned, tune_embeddings=recipe.is_full)


def _refuse_some_learning_rates(table: Table, runs: Sequence[RunResult]) -> None:
    """Refuse runs without a learning rate where others with the same recipe have one: it would be one more to choose from."""
    with_rate, ended = {run.recipe for run in runs if run.learning_rate is not None}, done(runs)
    if without := next((run for run in ended if run.learning_rate is None and run.recipe in with_rate), None):
        raise FrostlineError(
            f"{table.name}, {without.run}: the learning rate is missing, which other rows of {without.recipe} have; write it."
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
