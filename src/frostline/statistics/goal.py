"""The goal that a k must reach: a share of full fine-tuning's gain, or a margin below it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.inference.pair import Pair
from frostline.statistics.inference.power import seeds_needed


@dataclass(frozen=True)
class Goal:
    """A cell reaches the goal if ``cell - share * full >= threshold``."""

    share: float
    threshold: float

    @classmethod
    def of_gain(cls, share: float, base: float) -> "Goal":
        """A share of full fine-tuning's gain over ``base``."""
        return cls(share, base * (1 - share))

    @classmethod
    def within(cls, margin: float) -> "Goal":
        """At most ``margin`` below full fine-tuning, in units of the metric."""
        return cls(1.0, -margin)

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weights of the two means that the threshold is compared with."""
        return np.array([1.0, -self.share])

    def distance(self, pair: Pair) -> float:
        """How far the cell's mean lies above the goal; negative below it."""
        return float(self.weights @ pair.means) - self.threshold

    def required_score(self, full: float) -> float:
        """The score that reaches the goal if full fine-tuning scores ``full``."""
        return self.share * full + self.threshold


def seeds_to_decide(pair: Pair | None, goal: Goal) -> int | None:
    """How many seeds in all would probably show whether a cell reaches the goal, once every row is scored.

    None: more than 1,000, or unknown because there is only one seed.
    """
    if pair is None or pair.runs < 2:
        return None
    weights = goal.weights
    by = {
        source: sum(
            float(weights @ error.covariance @ weights) * n(error) for error in pair.errors if error.source == source
        )
        for source, n in (("seeds", lambda error: error.freedom + 1), ("rows", lambda error: 1))
    }
    freedom = next((error.freedom for error in pair.errors if error.source == "rows"), 1.0)
    by_row = by["rows"] * pair.covered
    return seeds_needed(goal.distance(pair), by["seeds"], by_row, freedom, quantile=pair.quantile)
