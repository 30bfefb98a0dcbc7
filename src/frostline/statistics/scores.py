"""Evidence from one score per run, as in a table of results without predictions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.evidence import SameRows, by_seed, same_seeds, summary_with_interval
from frostline.statistics.inference import Pair, Summary, is_above, mean_interval, pair, pairing_gain, unpaired
from frostline.statistics.posterior import Observed
from frostline.statistics.run_result import Scored

IN_COMMON = 0.75  # pairing needs at least this share of the larger cell's runs to have a seed in common with the other


@dataclass(frozen=True)
class Scores:
    """One score per run. It implements :class:`frostline.statistics.evidence.Evidence`.

    Attributes:
        metric: The name of the metric.
        chance: The score of the constant baseline; None: unknown.
        paired: Whether runs with the same seed are compared with each other. Even then all runs are compared without pairing
            if fewer than two seeds, or less than ``IN_COMMON`` of the larger cell, are in both cells. Pairing would discard
            more information than it gains.
        rows: The number of validation rows; None: unknown.
    """

    metric: str
    chance: float | None
    paired: bool = True
    rows: int | None = None

    def pair(self, cell: Sequence[Scored], full: Sequence[Scored]) -> Pair | None:
        if not cell or not full:
            return None
        both = self._both(cell, full)
        if len(both):
            return pair(both)
        ours, theirs = (np.array([_score(run) for run in runs]) for runs in (cell, full))
        return unpaired(ours, theirs)

    def on_same_rows(self, cell: Sequence[Scored], full: Sequence[Scored]) -> SameRows | None:
        if not cell or not full:
            return None
        ours, theirs = (float(np.mean([_score(run) for run in runs])) for runs in (cell, full))
        return SameRows(ours, theirs, min(len(cell), len(full)), partial=False)

    def baseline(self, runs: Sequence[Scored]) -> float | None:
        return self.chance

    def learned(self, runs: Sequence[Scored], among: int | None = None) -> bool | None:
        if self.chance is None or len(runs) < 2:
            return None
        both = self.pair(runs, runs)
        return both is not None and is_above(both, self.chance)

    def pairing(self, cell: Sequence[Scored], full: Sequence[Scored]) -> float | None:
        return pairing_gain(self._both(cell, full))

    def summary(self, runs: Sequence[Scored]) -> Summary:
        scores = np.array([_score(run) for run in runs])
        return summary_with_interval(scores, mean_interval(scores) if len(runs) > 1 else None, self.metric)

    def observed(self, cells: Sequence[Sequence[Scored]], depth: Sequence[float | None]) -> Observed:
        scores = [by_seed(runs, [_score(run) for run in runs]) for runs in cells]
        if not self.paired:  # then no two runs share a seed
            scores = [{f"{n}/{seed}": score for seed, score in one.items()} for n, one in enumerate(scores)]
        return Observed(scores, None, depth)

    def rows_of(self, runs: Iterable[str]) -> int | None:
        return self.rows

    def _both(self, cell: Sequence[Scored], full: Sequence[Scored]) -> NDArray[np.float64]:
        """The scores of runs with the same seed, ``[seeds, 2]``; empty if nothing is paired."""
        both = same_seeds(cell, full) if self.paired else []
        if len(both) < 2 or len(both) < IN_COMMON * max(len(cell), len(full)):
            both = []
        return np.array([[_score(ours), _score(theirs)] for ours, theirs in both]).reshape(-1, 2)


def _score(run: Scored) -> float:
    assert run.validation_best is not None
    return run.validation_best
