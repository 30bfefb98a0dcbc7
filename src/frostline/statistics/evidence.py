"""What is known of the scores of runs: the scores alone, or every prediction behind them.

Both kinds give the same two things: the summary of some runs, and the comparison of a cell with full. Predictions add
what the rows of the validation set contribute to the uncertainty.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.intervals import (
    QUANTILE,
    Pair,
    mean_interval,
    pair,
    pairing_gain,
    quantile_of,
    row_groups,
    score_interval,
    summarize,
    surely_above,
    unpaired,
)
from frostline.statistics.metrics import chance, is_known, lowest, metrics_for, predict

Run = Mapping[str, Any]  # a row of results.csv
Logits = Callable[[str], NDArray[Any]]  # run -> [rows, C]; NaN in rows that the run was not scored on

IN_COMMON = 0.75  # so much of the larger side must have its seed on the other, where scores alone are paired


class Evidence(Protocol):
    """Scores of runs on validation, with as much as is known of their errors."""

    @property
    def metric(self) -> str: ...

    @property
    def chance(self) -> float | None:
        """What the best constant prediction scores; None where nobody says."""

    @property
    def rows(self) -> int | None:
        """Of the validation set; None where predictions are not known."""

    def pair(self, cell: Sequence[Run], full: Sequence[Run]) -> Pair | None:
        """The comparison of the runs of a cell with those of full; None where it has no runs to rest on."""

    def learned(self, runs: Sequence[Run], among: int | None = None) -> bool | None:
        """Whether it is sure that something was learned: their mean lies surely above guessing, or, where predictions are
        known, a single one of them does, chosen ``among`` so many; None where that cannot be told."""

    def pairing(self, cell: Sequence[Run], full: Sequence[Run]) -> float | None:
        """What pairing by seed gains, as in :func:`frostline.statistics.intervals.pairing_gain`; None where nothing is paired."""

    def summary(self, runs: Sequence[Run]) -> dict[str, Any]:
        """The scores of these runs, with the interval of their mean (None for fewer than two runs)."""

    def rows_of(self, runs: Iterable[str]) -> int | None:
        """How many validation rows any of these runs, by name, is scored on; None where predictions are not known."""


@dataclass(frozen=True)
class Scores:
    """A score for each run, and nothing behind it.

    ``paired``: runs of the same seed have something in common, so that they are compared with each other. Where fewer
    than two seeds stand on both sides, or less than ``IN_COMMON`` of the larger side, nothing is paired: the seeds that
    would be left out tell more than pairing gives (docs/statistics.md).
    """

    metric: str
    chance: float | None
    paired: bool = True
    rows: int | None = None

    def pair(self, cell: Sequence[Run], full: Sequence[Run]) -> Pair | None:
        if not cell or not full:
            return None
        both = self._both(cell, full)
        if len(both):
            return pair(both)
        ours, theirs = (np.array([_score(run) for run in runs]) for runs in (cell, full))
        return unpaired(ours, theirs)

    def learned(self, runs: Sequence[Run], among: int | None = None) -> bool | None:
        if self.chance is None or len(runs) < 2:
            return None
        both = self.pair(runs, runs)
        return both is not None and surely_above(both, self.chance)

    def pairing(self, cell: Sequence[Run], full: Sequence[Run]) -> float | None:
        return pairing_gain(self._both(cell, full))

    def summary(self, runs: Sequence[Run]) -> dict[str, Any]:
        scores = np.array([_score(run) for run in runs])
        return _described(scores, mean_interval(scores) if len(runs) > 1 else None, self.metric)

    def rows_of(self, runs: Iterable[str]) -> int | None:
        return self.rows

    def _both(self, cell: Sequence[Run], full: Sequence[Run]) -> NDArray[np.float64]:
        """The scores that are paired, ``[seeds, 2]``."""
        both = _by_seed(cell, full) if self.paired else []
        if len(both) < 2 or len(both) < IN_COMMON * max(len(cell), len(full)):
            both = []
        return np.array([[_score(ours), _score(theirs)] for ours, theirs in both]).reshape(-1, 2)


@dataclass(frozen=True)
class Labelled:
    """A split that was predicted: its targets, and what the metric is."""

    targets: NDArray[Any]
    problem_type: str
    labels: tuple[str, ...]
    metric: str

    def score(self, logits: NDArray[Any], rows: NDArray[np.int64]) -> float:
        """The metric on these rows; NaN where there are none."""
        if not len(rows):
            return float("nan")
        metric = metrics_for(self.problem_type, logits.shape[1])[self.metric]
        return metric(self.targets[rows], predict(logits[rows], self.problem_type))

    @property
    def chance(self) -> float:
        """What the best constant prediction scores."""
        return chance(self.targets, self.metric, len(self.labels))


class Predictions:
    """Scores of runs, and the same with a group of rows left out, each computed once; runs are paired by seed and row,
    where they have a seed in common; else all runs of both are compared, without pairing.

    ``looks``: so many times, at most, results were looked at before it was decided whether to train more.
    """

    def __init__(self, split: Labelled, logits: Logits, looks: int = 1) -> None:
        self.split, self.logits, self.quantile = split, logits, quantile_of(looks)
        self.metric, self.chance, self.rows = split.metric, split.chance, len(split.targets)
        self.groups = row_groups(len(split.targets))
        self.known: dict[str, NDArray[np.float64]] = {}
        self.scored: dict[str, NDArray[np.bool_]] = {}

    def __getitem__(self, run: str) -> NDArray[np.float64]:  # [1 + groups], the score on all rows first
        if run not in self.known:
            logits = self.logits(run)
            scored = self.scored[run] = _scored_rows(logits)
            rows = [np.arange(len(scored)), *self.groups]
            self.known[run] = np.array([self.split.score(logits, some[scored[some]]) for some in rows])
        return self.known[run]

    def pair(self, cell: Sequence[Run], full: Sequence[Run]) -> Pair | None:
        if not cell or not full:
            return None
        both = self._both(cell, full)  # [seeds, 2, 1 + groups]
        if len(both):
            rows = self.rows_of(ours["run"] for ours, _ in _by_seed(cell, full))
            found = pair(both[:, :, 0], both[:, :, 1:].transpose(2, 0, 1), self._one_row(rows), self.quantile)
        else:
            rows = min(self.rows_of(run["run"] for run in runs) for runs in (cell, full))
            ours, theirs = (np.array([self[run["run"]] for run in some]) for some in (cell, full))  # [n, 1 + groups]
            means = np.stack([ours[:, 1:].mean(0), theirs[:, 1:].mean(0)], 1)
            found = unpaired(ours[:, 0], theirs[:, 0], means, self._one_row(rows), self.quantile)
        return replace(found, covered=rows / self.rows)

    def learned(self, runs: Sequence[Run], among: int | None = None) -> bool | None:
        if not runs:
            return None
        both = self.pair(runs, runs)
        looks = 2 * (1 - QUANTILE) / (1 - self.quantile)  # half of the error for the mean, half for the runs
        if both is not None and surely_above(replace(both, quantile=quantile_of(looks)), self.chance):
            return True
        quantile = quantile_of(looks * (among or len(runs)))
        return any(self.alone(run["run"], quantile)["low"] > self.chance for run in runs)

    def pairing(self, cell: Sequence[Run], full: Sequence[Run]) -> float | None:
        return pairing_gain(self._both(cell, full)[:, :, 0])

    def summary(self, runs: Sequence[Run]) -> dict[str, Any]:
        scores = np.array([self[run["run"]] for run in runs]).reshape(len(runs), 1 + len(self.groups))
        if len(runs) < 2:
            return _described(scores[:, 0], None, self.metric)
        one_row = self._one_row(self.rows_of([run["run"] for run in runs]))
        interval = mean_interval(scores[:, 0], scores[:, 1:].T, one_row, self.quantile)
        return _described(scores[:, 0], interval, self.metric)

    def alone(self, run: str, quantile: float = QUANTILE) -> dict[str, float]:
        """The score of one run, and its interval from the rows."""
        score, *left_out = self[run]
        low, high = score_interval(score, np.array(left_out), self._one_row(self.rows_of([run])), quantile)
        return {"score": float(score), "low": max(low, lowest(self.metric)), "high": min(high, 1.0)}

    def rows_of(self, runs: Iterable[str]) -> int:
        scored = [self._scored(run) for run in runs]
        return int(np.any(scored, axis=0).sum()) if scored else 0

    def _scored(self, run: str) -> NDArray[np.bool_]:
        """Which rows it is scored on."""
        if run not in self.scored:
            self.scored[run] = _scored_rows(self.logits(run))
        return self.scored[run]

    def _one_row(self, rows: int) -> float:
        """How far one row moves a score of so many."""
        return (1 - lowest(self.metric)) / rows

    def _both(self, cell: Sequence[Run], full: Sequence[Run]) -> NDArray[np.float64]:
        both = [[self[ours["run"]], self[theirs["run"]]] for ours, theirs in _by_seed(cell, full)]
        return np.array(both).reshape(len(both), 2, 1 + len(self.groups))


def _scored_rows(logits: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(~np.isnan(logits).any(axis=1))


def among_all(logits: NDArray[Any], scored: NDArray[np.bool_]) -> NDArray[Any]:
    """Logits ``[rows that were scored, C]`` among NaN for all others: ``[rows, C]``."""
    every = np.full((len(scored), logits.shape[1]), np.nan, logits.dtype)
    every[scored] = logits
    return every


def _score(run: Run) -> float:
    return float(run["validation_best"])


def _by_seed(cell: Sequence[Run], full: Sequence[Run]) -> list[tuple[Run, Run]]:
    """The runs of both sides that have the same seed."""
    ours, theirs = ({run["seed"]: run for run in runs} for runs in (cell, full))
    both = sorted(ours.keys() & theirs.keys(), key=lambda seed: (isinstance(seed, str), seed))
    return [(ours[seed], theirs[seed]) for seed in both]


def _described(
    scores: NDArray[np.float64], interval: tuple[float, float] | None, metric: str
) -> dict[str, float | int | None]:
    low, high = interval if interval and np.isfinite(interval).all() else (None, None)
    if low is not None and high is not None and is_known(metric):  # of any other metric nobody knows the ends
        low, high = max(low, lowest(metric)), min(high, 1.0)
    return {**asdict(summarize(scores)), "low": low, "high": high}
