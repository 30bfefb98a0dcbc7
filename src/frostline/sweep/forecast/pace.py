"""Timed points, and the seconds of batches that are interpolated from them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from frostline.statistics.tune import Tune


@dataclass(frozen=True)
class Point:
    """A training step and a scored batch that were timed at one k, for one run of a stack."""

    step: tuple[float, float]  # operations and seconds
    scored: tuple[float, float]  # operations and seconds
    overhead_seconds: float  # of a run besides steps and scoring, including the extra time of the first step and batch
    step_bytes: float  # peak memory of a step per token, without what depends on the number of parameters
    scored_bytes: float  # the same for a scored batch
    stack: int = 1  # runs in the timed stack


@dataclass(frozen=True)
class Pace:
    """Seconds as a function of operations: measured for a k that was timed, interpolated for any other k."""

    points: Mapping[Tune, tuple[float, float]]  # operations and seconds of one batch, by k

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
        """Seconds on the line through ``point`` that starts at the fixed time of a batch, which is its time at k = 0."""
        fixed = min(self.points[0][1], point[1]) if 0 in self.points else 0.0
        return fixed + (point[1] - fixed) * operations / point[0]


class TimedPoints(dict[Tune, Point]):
    """The timed points by k."""

    @property
    def steps(self) -> Pace:
        return Pace({k: point.step for k, point in self.items()})

    @property
    def scored(self) -> Pace:
        return Pace({k: point.scored for k, point in self.items()})

    def nearest(self, tune: Tune) -> Point:
        """The point of this k, or else of the nearest timed k; ``all`` and ``named`` count as the largest k."""
        if tune in self:
            return self[tune]
        layers = {k: point for k, point in self.items() if isinstance(k, int)}
        if not layers:
            return next(iter(self.values()))
        wanted = tune if isinstance(tune, int) else max(layers)
        return layers[min(layers, key=lambda k: abs(k - wanted))]
