"""What is enough, in one form: a share of what full gains, or a distance below it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.intervals import Pair


@dataclass(frozen=True)
class Goal:
    """A cell is enough when ``cell - share * full`` is ``least`` or more."""

    share: float
    least: float

    @classmethod
    def of_gain(cls, share: float, base: float) -> "Goal":
        """So much of what full gains over ``base``."""
        return cls(share, base * (1 - share))

    @classmethod
    def within(cls, margin: float) -> "Goal":
        """At most so far below full."""
        return cls(1.0, -margin)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Of the means of a cell and of full."""
        return np.array([1.0, -self.share])

    def distance(self, both: Pair) -> float:
        """How far the cell's mean lies above what is enough; below 0, how far under it."""
        return float(self.weights @ both.means) - self.least

    def beside(self, full: float) -> float:
        """The score that is enough where full has this one."""
        return self.share * full + self.least
