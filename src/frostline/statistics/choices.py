"""What a comparison decides by. Every choice that makes a headline is said on the page."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from frostline.statistics.goal import Goal

TARGETS = (0.90, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How runs become an answer. The defaults are ours; a paper's are in its study."""

    target: float = 0.95  # share of full that is enough
    margin: float = 0.01  # so far below full, in the metric's own units, is as good as full
    by_margin: bool = False  # what is recommended is within the margin; else it reaches the target
    one_rate: bool = False  # the learning rate that is best for full, for every k; else each k has its best
    rates: Mapping[str, float] = field(default_factory=dict)  # at which a search compared a k, and it is shown
    failed_below: float | None = None  # leave out runs at most this share of the best of their cell, and scores of 0
    leave_out: tuple[str, ...] = ()  # tasks that the operating point over several tasks does not look at
    by_mean: bool = False  # an operating point is where the mean reaches the target, whatever its interval
    corrected: bool = True  # shares of the gain over guessing, not of the score

    @property
    def targets(self) -> list[float]:
        """Every share that gets an operating point."""
        return sorted({*TARGETS, self.target})

    @property
    def decides(self) -> dict[str, Any]:
        """What sets the operating point that is recommended apart from the others."""
        if self.by_margin:
            return {"target": None, "corrected": False, "margin": self.margin}
        return {"target": self.target, "corrected": self.corrected, "margin": None}

    def goal(self, chance: float | None) -> Goal:
        """What is enough, where guessing scores ``chance``."""
        if self.by_margin:
            return Goal.within(self.margin)
        return Goal.of_gain(self.target, (chance or 0.0) if self.corrected else 0.0)
