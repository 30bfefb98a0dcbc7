"""What was timed, and the seconds of batches that follow from it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from frostline.model.tune import Tune


@dataclass(frozen=True)
class Point:
    """What was timed at one value of k, for one run of a stack: one training step and one scored batch."""

    step: tuple[float, float]  # operations, seconds
    scored: tuple[float, float]
    around: float  # seconds of a run besides steps and scoring, including the extra time of the first of each
    step_bytes: float  # per token at the peak of a step, without what belongs to parameters
    scored_bytes: float  # the same of a scored batch
    stack: int = 1  # runs in the stack


@dataclass(frozen=True)
class Pace:
    """Seconds as a function of operations: as timed for a k that was timed, interpolated for others."""

    points: Mapping[Tune, tuple[float, float]]  # operations and seconds of one batch

    def seconds(self, tune: Tune, count: float, operations: float) -> float:
        """Seconds of ``count`` batches with ``operations`` in total."""
        if not count:
            return 0.0
        each = operations / count
        if tune in self.points:
            return count * self._along(self.points[tune], each)
        layers = sorted(point for k, point in self.points.items() if isinstance(k, int))
        known = layers if len(layers) > 1 else sorted(self.points.values())
        if known[0][0] < each < known[-1][0]:
            operations_of, seconds_of = np.array(known).T
            return count * float(np.interp(each, operations_of, seconds_of))
        return count * self._along(known[0] if each <= known[0][0] else known[-1], each)

    def _along(self, point: tuple[float, float], operations: float) -> float:
        """A line through the point, from the fixed time of a batch (that of k = 0)."""
        fixed = min(self.points[0][1], point[1]) if 0 in self.points else 0.0
        return fixed + (point[1] - fixed) * operations / point[0]


class Timed(dict[Tune, Point]):
    """What was timed, by the value of ``tune``."""

    @property
    def steps(self) -> Pace:
        return Pace({k: point.step for k, point in self.items()})

    @property
    def scored(self) -> Pace:
        return Pace({k: point.scored for k, point in self.items()})

    def nearest(self, tune: Tune) -> Point:
        """What was timed at this k or at the nearest; ``all`` and ``named`` count as the largest k."""
        if tune in self:
            return self[tune]
        layers = {k: point for k, point in self.items() if isinstance(k, int)}
        if not layers:
            return next(iter(self.values()))
        wanted = tune if isinstance(tune, int) else max(layers)
        return layers[min(layers, key=lambda k: abs(k - wanted))]
