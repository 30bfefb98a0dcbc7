"""The settings of an analysis, and the goal that a k must reach. Reports list every setting that changes a result."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.answer import OperatingPoint
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
    by_row, degrees_of_freedom = 0.0, 1.0
    if pair.rows is not None:
        by_row, degrees_of_freedom = pair.rows.variance(goal.weights) * pair.covered, pair.rows.degrees_of_freedom
    return seeds_needed(goal.distance(pair), by_seed, by_row, degrees_of_freedom, quantile=pair.quantile)


TARGETS = (0.90, 0.95, 0.99)
POINT = 0.01  # of a score
PRICE = 2 * POINT  # what full fine-tuning is worth, unless another price is given
LIKELY = 0.5  # the probability of reaching a target that is wanted unless another is given


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """The settings that turn runs into an answer. A study's TOML file has the settings of its publication.

    Attributes:
        target: The share of full fine-tuning that k must reach.
        price: The score that the training time of full fine-tuning is worth; see ``decision.py``.
        sure: The probability of reaching the goal that the recommended k must have; None: weigh score against cost.
        margin: The distance below full fine-tuning that counts as equally good, in units of the metric.
        by_margin: Whether the recommended k must be within the margin instead of reaching the target.
        one_learning_rate: Whether the best learning rate of full fine-tuning represents every k, instead of its own best.
        failed_below: Exclude runs that score 0 or at most this share of the best run of their cell. None: the criteria of
            ``cells.py``.
        leave_out: Tasks to exclude from the operating points over several tasks.
        by_mean: Whether an operating point is the smallest k whose mean reaches the target, whatever its interval.
        corrected: Whether shares are of the gain over the constant baseline instead of the score.
    """

    target: float = 0.95
    price: float = PRICE
    sure: float | None = None
    margin: float = 0.01
    by_margin: bool = False
    one_learning_rate: bool = False
    failed_below: float | None = None
    leave_out: tuple[str, ...] = ()
    by_mean: bool = False
    corrected: bool = True

    @property
    def targets(self) -> list[float]:
        """The shares that get an operating point, in ascending order."""
        return sorted({*TARGETS, self.target})

    def decides(self, point: OperatingPoint) -> bool:
        """Whether the recommendation is based on this operating point."""
        if self.by_margin:
            return point.margin is not None
        return point.target == self.target and point.corrected == self.corrected

    def goal(self, chance: float | None) -> Goal:
        """The goal of every k. ``chance`` is the score of the constant baseline; None: unknown."""
        if self.by_margin:
            return Goal.within(self.margin)
        return Goal.of_gain(self.target, (chance or 0.0) if self.corrected else 0.0)
