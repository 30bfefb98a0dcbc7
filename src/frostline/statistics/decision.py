"""The recommendation as a decision: quality is weighed against cost, for everything that was measured.

The recommended choice has the highest value,

    value = expected score - price * cost,

where the cost is the share of layers that it tunes, 0 for a model that trains none. The price is the score that full fine-tuning
is worth: two points by default. Training time grows in proportion to the tuned layers. Unlike measured times, their share is the
same in equal sweeps.

Expected scores are means of the posterior (``posterior.py``), so a choice that looks best by luck is pulled towards its
neighbours. Nothing is recommended if another choice has measured at least its score for less.

With a wanted certainty, the recommended choice is instead the cheapest one that reaches the goal with that probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.choices import POINT, PRICE, TARGETS, Choices
from frostline.statistics.goal import Goal

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Option:
    """Something that can be recommended.

    Attributes:
        name: ``last 2``, ``all``, ``probe``.
        score: The mean of its measured scores.
        cost: The share of layers that it tunes; 1 for full fine-tuning.
        draws: Of its mean score, from the posterior, ``[draws]``.
    """

    name: str
    score: float
    cost: float
    draws: Array

    @property
    def expected(self) -> float:
        """The expected score."""
        return float(self.draws.mean())


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How an option is chosen.

    Attributes:
        goal: What counts as enough.
        price: The score that the training time of full fine-tuning is worth.
        sure: The probability of reaching the goal that is wanted; None: weigh score against cost.
    """

    goal: Goal
    price: float = PRICE
    sure: float | None = None

    @classmethod
    def of(cls, choices: Choices, chance: float | None) -> Self:
        """The rule of an analysis; ``chance`` is the score of the constant baseline, None if it is unknown."""
        return cls(goal=choices.goal(chance), price=choices.price, sure=choices.sure)

    @property
    def exchange(self) -> float:
        """The score that full fine-tuning is worth when a search weighs runs against their time. Certainty has no price."""
        return self.price if self.sure is None else PRICE

    def probability(self, option: Option, full: Option) -> float:
        """The probability that the option reaches the goal; 1 for full fine-tuning itself."""
        if option is full:
            return 1.0
        return float((option.draws - self.goal.share * full.draws >= self.goal.threshold).mean())

    def value(self, option: Option) -> float:
        """The expected score less the price of the cost."""
        return option.expected - self.price * option.cost

    def choose(self, options: Sequence[Option], full: Option) -> Option:
        """The recommended option; of equals the first."""
        if self.sure is None:
            return max((one for one in options if dominating(one, options) is None), key=self.value)
        enough = [one for one in options if self.probability(one, full) >= self.sure]  # full is always among them
        return min(enough, key=lambda one: (one.cost, -one.expected))


def decide(
    options: Sequence[Option], full: Option | None, rule: Rule, *, base: float | None, margin: float
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The decision, and what is known about every option, in plain values as in answer.json.

    Args:
        options: In ascending order of what they train; ``full`` is one of them.
        full: Full fine-tuning, or the largest k. None if no k has a usable score; then the best option is compared with itself.
        rule: How one is chosen.
        base: The score of the constant baseline; None: unknown, so shares are of the score.
        margin: The distance below full fine-tuning that counts as equally good.
    """
    reference = full and full.name
    full = full or max(options, key=lambda one: one.expected)
    chosen = rule.choose(options, full)
    facts = [
        {
            **_beside_full(option, full, rule),
            "expected": option.expected,
            "value": rule.value(option),
            "probabilities": _probabilities(option, full, base or 0.0, margin),
            "better_than_previous": None if previous is None else float((option.draws > previous.draws).mean()),
            "dominated_by": dominating(option, options),
        }
        for previous, option in zip((None, *options), options, strict=False)
    ]
    return {**_beside_full(chosen, full, rule), "reference": reference}, facts


def _beside_full(option: Option, full: Option, rule: Rule) -> dict[str, Any]:
    """An option compared with full fine-tuning: the expected points below it with their 95 % interval, certainty, cost."""
    below = (full.draws - option.draws) / POINT
    low, high = np.quantile(below, (0.025, 0.975)).tolist()
    return {
        "choice": option.name,
        "score": option.score,
        "below_full": float(below.mean()),
        **{"low": low, "high": high},
        "probability": rule.probability(option, full),
        "cost_of_full": option.cost,
    }


def _probabilities(option: Option, full: Option, base: float, margin: float) -> dict[str, float]:
    """The probability of each usual goal: shares of full fine-tuning's gain, and the margin."""
    goals = {f"gain_{100 * share:.0f}": Goal.of_gain(share, base) for share in TARGETS}
    return {
        name: Rule(goal=goal).probability(option, full)
        for name, goal in {**goals, "margin": Goal.within(margin)}.items()
    }


def dominating(option: Option, options: Sequence[Option]) -> str | None:
    """The first option that has measured at least as high a score for at most the cost, one of them better; None: none."""
    for one in options:
        if (
            one.score >= option.score
            and one.cost <= option.cost
            and (one.score, one.cost) != (option.score, option.cost)
        ):
            return one.name
    return None
