"""One row of a table of results as a run."""

import re
from collections.abc import Mapping
from math import inf, isfinite, isnan, nan
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.data.table import Table
from frostline.data.wording import quoted
from frostline.statistics.metrics import METRICS, canonical_name
from frostline.statistics.tune import FULL, LAST, NAMED

NUMBERS = (
    *("train_size", "learning_rate", "train_last", "trainable_parameters", "train_seconds", "cache_seconds"),
    *("concurrent_runs", "peak_memory_bytes", "chance", "layers"),
)
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
        if run["tuned"] == FULL and run["layers"] is None and (self._text("tuned_layers", n) or "").isdigit():
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

    def _tuned(self, n: int) -> int | str:
        known = self.columns.keys() | self.constants.keys()
        if (self._text("full", n) or "").lower() in TRUE and "trainable" not in known:
            return FULL
        name = next((name for name in ("trainable", "tuned_layers") if name in known), "frozen_layers")
        text = (self._text(name, n) or "").lower().removeprefix(LAST)
        if name == "frozen_layers" and text == "all":
            return 0
        if name != "frozen_layers" and text in (FULL, "full"):
            return FULL
        if text == NAMED or (name == "trainable" and re.fullmatch("[a-z][a-z0-9-]*", text)):
            return text  # a way to tune, by its name
        try:
            k = float(text)
        except ValueError:
            k = nan
        if not (0 <= k < inf and k == int(k)):
            raise FrostlineError(
                f"{self._location(name, n)}: {quoted(text)} is not a number of layers; give whole numbers from 0, or all."
            )
        return -int(k) - 1 if name == "frozen_layers" else int(k)

    def _location(self, name: str, n: int) -> str:
        column = self.columns.get(name)
        return self.table.location(n, column) if column else f"{self.table.name}, {name}"
