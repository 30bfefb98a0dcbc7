"""Evidence from one score per run, as in tables of results: the predictions behind the scores are unknown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.evidence import Run, same_seeds, summary_with_interval
from frostline.statistics.inference.intervals import mean_interval
from frostline.statistics.inference.pair import Pair, pair, pairing_gain, unpaired
from frostline.statistics.inference.ratio import is_above

IN_COMMON = 0.75  # share of the larger side whose seeds the other side must have for pairing


@dataclass(frozen=True)
class Scores:
    """One score per run; see :class:`frostline.statistics.evidence.Evidence`.

    Attributes:
        paired: Whether runs with the same seed have something in common, so that they are compared with each other.
            Nothing is paired if fewer than two seeds, or less than ``IN_COMMON`` of the larger side, are on both sides.
            Pairing would then discard more information than it gains.
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
        return both is not None and is_above(both, self.chance)

    def pairing(self, cell: Sequence[Run], full: Sequence[Run]) -> float | None:
        return pairing_gain(self._both(cell, full))

    def summary(self, runs: Sequence[Run]) -> dict[str, Any]:
        scores = np.array([_score(run) for run in runs])
        return summary_with_interval(scores, mean_interval(scores) if len(runs) > 1 else None, self.metric)

    def rows_of(self, runs: Iterable[str]) -> int | None:
        return self.rows

    def _both(self, cell: Sequence[Run], full: Sequence[Run]) -> NDArray[np.float64]:
        """The paired scores, ``[seeds, 2]``."""
        both = same_seeds(cell, full) if self.paired else []
        if len(both) < 2 or len(both) < IN_COMMON * max(len(cell), len(full)):
            both = []
        return np.array([[_score(ours), _score(theirs)] for ours, theirs in both]).reshape(-1, 2)


def _score(run: Run) -> float:
    return float(run["validation_best"])
