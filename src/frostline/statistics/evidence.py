"""The evidence from one score per run, as in a table: scores of runs with their uncertainty."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.inference import (
    Pair,
    Summary,
    is_above,
    mean_interval,
    pair,
    summarize,
    unpaired,
)
from frostline.statistics.metrics import METRICS
from frostline.statistics.posterior import Observed
from frostline.statistics.run_result import Scored

Score = TypeVar("Score")


def by_seed(runs: Sequence[Scored], scores: Sequence[Score]) -> dict[str, Score]:
    """Scores by seed; a seed that occurs again counts as a seed of its own."""
    seeds: dict[str, Score] = {}
    for run, score in zip(runs, scores, strict=True):
        name = str(run.seed)
        seeds[name if name not in seeds else f"{name} ({len(seeds)})"] = score
    return seeds


def same_seeds(cell: Sequence[Scored], full: Sequence[Scored]) -> list[tuple[Scored, Scored]]:
    """The pairs of runs with the same seed, in the order of the seeds."""
    ours, theirs = ({run.seed: run for run in runs} for runs in (cell, full))
    both = sorted(ours.keys() & theirs.keys(), key=lambda seed: (isinstance(seed, str), seed))
    return [(ours[seed], theirs[seed]) for seed in both]


def summary_with_interval(scores: NDArray[np.float64], interval: tuple[float, float] | None, metric: str) -> Summary:
    """Descriptive statistics and the interval, clipped to the range of the metric if it is known."""
    low, high = interval if interval and np.isfinite(interval).all() else (None, None)
    if low is not None and high is not None and metric in METRICS:
        low, high = METRICS[metric].clipped(float(scores.mean()), low, high)
    return replace(summarize(scores), low=low, high=high)


IN_COMMON = 0.75  # pairing needs at least this share of the larger cell's runs to have a seed in common with the other


@dataclass(frozen=True)
class Scores:
    """One score per run. :class:`frostline.statistics.predictions.RunPredictions` has every prediction instead.

    Attributes:
        metric: The name of the metric.
        chance: The score of the constant baseline; None: unknown.
        rows: The number of validation rows; None: unknown.
    """

    metric: str
    chance: float | None
    rows: int | None = None

    def pair(self, cell: Sequence[Scored], full: Sequence[Scored]) -> Pair | None:
        """The comparison of the runs of a cell with those of full fine-tuning; None if one side has no runs."""
        if not cell or not full:
            return None
        # with fewer seeds in common, pairing would discard more information than it gains
        both = same_seeds(cell, full)
        if len(both) > 1 and len(both) >= IN_COMMON * max(len(cell), len(full)):
            return pair(np.array([[_score(ours), _score(theirs)] for ours, theirs in both]))
        ours, theirs = (np.array([_score(run) for run in runs]) for runs in (cell, full))
        return unpaired(ours, theirs)

    def learned(self, runs: Sequence[Scored], among: int | None = None) -> bool | None:
        """Whether the mean of these runs is significantly above the baseline; None if that cannot be tested."""
        if self.chance is None or len(runs) < 2:
            return None
        both = self.pair(runs, runs)
        return both is not None and is_above(both, self.chance)

    def summary(self, runs: Sequence[Scored]) -> Summary:
        """Descriptive statistics and the interval of the mean, ``low`` and ``high`` (None for fewer than two runs)."""
        scores = np.array([_score(run) for run in runs])
        return summary_with_interval(scores, mean_interval(scores) if len(runs) > 1 else None, self.metric)

    def observed(self, cells: Sequence[Sequence[Scored]], depth: Sequence[float | None]) -> Observed:
        """What is known about the means of several cells, for their posterior. At least one cell has runs.

        Args:
            cells: The runs of each cell.
            depth: See :class:`frostline.statistics.posterior.Observed`.
        """
        scores = [by_seed(runs, [_score(run) for run in runs]) for runs in cells]
        return Observed(scores, None, depth)

    def rows_of(self, runs: Iterable[str]) -> int | None:
        """The number of validation rows that at least one of these runs (by name) is scored on; None if it is unknown."""
        return self.rows

    def texts_of(self, runs: Iterable[str]) -> int | None:
        """The number of different texts in these rows; None if it is unknown."""
        return self.rows


def _score(run: Scored) -> float:
    assert run.validation_best is not None
    return run.validation_best
