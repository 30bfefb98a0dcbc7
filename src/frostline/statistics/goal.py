"""The goal that a k must reach: a share of full fine-tuning's gain, or a margin below it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.inference import Pair, seeds_needed


@dataclass(frozen=True)
class Goal:
    """A cell reaches the goal if ``cell - share * full >= threshold``, where both are mean scores."""

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
        """The weights of both means in the contrast that must reach the threshold."""
        return np.array([1.0, -self.share])

    def distance(self, pair: Pair) -> float:
        """The distance of the cell's mean above the goal; negative if the mean is below it."""
        return float(self.weights @ pair.means) - self.threshold

    def required_score(self, full: float) -> float:
        """The lowest score that reaches the goal if full fine-tuning scores ``full``."""
        return self.share * full + self.threshold


def seeds_to_decide(pair: Pair | None, goal: Goal) -> int | None:
    """The total number of seeds that would probably show whether a cell reaches the goal, with every validation row scored.

    None: more than 1,000, or unknown because there is only one seed.
    """
    if pair is None or pair.runs < 2:
        return None
    by_seed = pair.variance_of_one_seed(goal.weights)
    by_row = pair.variance(goal.weights, "rows") * pair.covered
    degrees_of_freedom = next((error.degrees_of_freedom for error in pair.errors if error.source == "rows"), 1.0)
    return seeds_needed(goal.distance(pair), by_seed, by_row, degrees_of_freedom, quantile=pair.quantile)
