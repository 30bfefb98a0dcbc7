"""The options of an analysis. The report shows every option that changes a result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frostline.statistics.goal import Goal

TARGETS = (0.90, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How runs become an answer. The defaults are ours; those of a published protocol are in its study.

    Attributes:
        target: The share of full fine-tuning that k must reach.
        margin: The distance below full fine-tuning that counts as equally good, in units of the metric.
        by_margin: Whether the recommended k must be within the margin instead of reaching the target.
        one_rate: Whether every k is shown at the learning rate that is best for full fine-tuning instead of its own best.
        rates: The learning rates at which a search compared some k; those are shown.
        failed_below: Excludes runs that score 0 or at most this share of the best run of their cell; None: our criteria.
        leave_out: Tasks that do not count for the operating point over several tasks.
        by_mean: Whether an operating point is the smallest k whose mean reaches the target, whatever its interval.
        corrected: Whether shares are of the gain over the constant baseline instead of the score.
    """

    target: float = 0.95
    margin: float = 0.01
    by_margin: bool = False
    one_rate: bool = False
    rates: Mapping[str, float] = field(default_factory=dict)
    failed_below: float | None = None
    leave_out: tuple[str, ...] = ()
    by_mean: bool = False
    corrected: bool = True

    @property
    def targets(self) -> list[float]:
        """Every share that gets an operating point, in rising order."""
        return sorted({*TARGETS, self.target})

    @property
    def decides(self) -> dict[str, Any]:
        """The fields that identify the operating point of the recommendation."""
        if self.by_margin:
            return {"target": None, "corrected": False, "margin": self.margin}
        return {"target": self.target, "corrected": self.corrected, "margin": None}

    def goal(self, chance: float | None) -> Goal:
        """The goal, given the score of the constant baseline (None: unknown)."""
        if self.by_margin:
            return Goal.within(self.margin)
        return Goal.of_gain(self.target, (chance or 0.0) if self.corrected else 0.0)
