"""The recommendation as a decision: quality is weighed against cost, for everything that was measured.

The recommended choice has the highest value,

    value = expected score - price * cost,

where the cost is the share of layers that it tunes, 0 for a model that trains none, times its share of the longest training. The
price is the score that full fine-tuning of this length is worth: two points by default. Training time grows in proportion to the
tuned layers and the epochs. Unlike measured times, their shares are the same in equal sweeps.

Expected scores are means of the posterior (``posterior.py``), so a k that looks best by luck is pulled towards its
neighbours, a way towards the k of its cost, and the best of several learning rates towards the others. So a choice is never
recommended if another one is expected to score more at no higher cost.

With a wanted certainty, the recommended choice is instead the cheapest one that reaches the goal with that probability.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from frostline.statistics.analysis_settings import POINT, PRICE, TARGETS, AnalysisSettings, Goal
from frostline.statistics.answer import BesideK, Choice, Decision
from frostline.statistics.metrics import lowest_score
from frostline.statistics.posterior import HIGHEST, Observed, Posterior, expected_gain, posterior
from frostline.statistics.predictions import Evidence
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import Alternative, RunResult, Scored

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Option:
    """Something that can be recommended.

    Attributes:
        name: ``last 2``, ``full``, ``lora-2``, ``probe``.
        score: The mean of its measured scores.
        comparable: The same without the effects of the folds on which it was measured.
        cost: The share of layers that it tunes, times the share of the longest training; 1 for full fine-tuning of that length.
        draws: Of its mean score, from the posterior, ``[draws]``. None is outside the possible scores.
        is_way: Whether it is a way to tune, which is compared with the k of the same cost.
    """

    name: Recipe
    score: float
    comparable: float
    cost: float
    draws: Array
    is_way: bool = False

    @property
    def expected(self) -> float:
        """The expected score."""
        return float(self.draws.mean())


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How one choice is recommended.

    Attributes:
        goal: What counts as enough.
        price: The score that the training time of full fine-tuning is worth.
        sure: The probability of reaching the goal that is wanted; None: weigh score against cost.
    """

    goal: Goal
    price: float = PRICE
    sure: float | None = None

    @classmethod
    def of(cls, settings: AnalysisSettings, chance: float | None) -> Self:
        """The rule of an analysis; ``chance`` is the score of the constant baseline, None if it is unknown."""
        return cls(goal=settings.goal(chance), price=settings.price, sure=settings.sure)

    @property
    def exchange(self) -> float:
        """The score that full fine-tuning is worth when a search weighs runs against their time. Certainty has no price."""
        return self.price if self.sure is None else PRICE

    def probability(self, choice: Option, full: Option) -> float:
        """The probability that the choice reaches the goal; 1 for full fine-tuning itself."""
        if choice is full:
            return 1.0
        return float((choice.draws - self.goal.share * full.draws >= self.goal.threshold).mean())

    def value(self, choice: Option) -> float:
        """The expected score less the price of the cost."""
        return choice.expected - self.price * choice.cost

    def highest_value(self, cost: float) -> float:
        """What a choice of this cost would be worth if it had the highest possible score."""
        return HIGHEST - self.price * cost

    def may_win(self, cost: float, best: float) -> bool:
        """Whether a choice of this cost would be worth more than ``best`` if it had the highest possible score.

        A wanted certainty is not about worth, so it rules nothing out.
        """
        return self.sure is not None or self.highest_value(cost) > best

    def choose(self, choices: Sequence[Option], full: Option) -> Option:
        """The recommended choice; of equals the first."""
        if self.sure is None:
            return max(choices, key=self.value)
        enough = [one for one in choices if self.probability(one, full) >= self.sure]  # full is always among them
        return min(enough, key=lambda one: (one.cost, -one.expected))


def decide(
    choices: Sequence[Option], full: Option | None, rule: Rule, *, base: float | None, margin: float
) -> tuple[Decision, list[Choice]]:
    """The decision, and what is known about every choice.

    Args:
        choices: In ascending order of what they train; ``full`` is one of them.
        full: Full fine-tuning, or the largest k. None if no k has a usable score; then the best choice is compared with itself.
        rule: How one is chosen.
        base: The score of the constant baseline; None: unknown, so shares are of the score.
        margin: The distance below full fine-tuning that counts as equally good.
    """
    reference = full.name if full else None
    full = full or max(choices, key=lambda one: one.expected)
    chosen = rule.choose(choices, full)
    known = [
        Choice(
            choice=choice.name,
            score=choice.score,
            **_points_below(choice, full),
            probability=rule.probability(choice, full),
            cost_of_full=choice.cost,
            comparable=choice.comparable,
            expected=choice.expected,
            value=rule.value(choice),
            probabilities=_probabilities(choice, full, base or 0.0, margin),
            better_than_previous=None if previous is None else float((choice.draws > previous.draws).mean()),
            dominated_by=dominating(choice, choices),
            beside_k=_beside_k(choice, choices),
        )
        for choice, previous in zip(choices, _smaller_k(choices), strict=True)
    ]
    best = next(one for one, choice in zip(known, choices, strict=True) if choice is chosen)
    return Decision(**vars(best), reference=reference), known


def _smaller_k(choices: Sequence[Option]) -> list[Option | None]:
    """For each choice the k before it with the same training length; None for the first k, and for what is no k."""
    found: list[Option | None] = []
    before: dict[float | None, Option] = {}
    for choice in choices:
        found.append(before.get(choice.name.epochs) if choice.name.is_k else None)
        if choice.name.is_k:
            before[choice.name.epochs] = choice
    return found


def _points_below(choice: Option, full: Option) -> dict[str, float]:
    """The points that a choice is expected to be below full fine-tuning, with their 95 % interval."""
    below = (full.draws - choice.draws) / POINT
    low, high = np.quantile(below, (0.025, 0.975)).tolist()
    return {"below_full": float(below.mean()), "low": low, "high": high}


def _beside_k(choice: Option, choices: Sequence[Option]) -> BesideK | None:
    """A way to tune compared with the largest k that costs at most as much; None for others, or if there is no such k.

    The points that the way is expected to score above it, with their 95 % interval, and the probability that it does.
    """
    ks = [one for one in choices if one.name.is_k and one.cost <= choice.cost]
    if not choice.is_way or not ks:
        return None
    k = max(reversed(ks), key=lambda one: one.cost)
    above = (choice.draws - k.draws) / POINT
    low, high = np.quantile(above, (0.025, 0.975)).tolist()
    return BesideK(choice=k.name, above=float(above.mean()), low=low, high=high, probability=float((above > 0).mean()))


def _probabilities(choice: Option, full: Option, base: float, margin: float) -> dict[str, float]:
    """The probability of each usual goal: shares of full fine-tuning's gain, and the margin."""
    goals = {f"gain_{100 * share:.0f}": Goal.of_gain(share, base) for share in TARGETS}
    return {
        name: Rule(goal=goal).probability(choice, full)
        for name, goal in {**goals, "margin": Goal.within(margin)}.items()
    }


def dominating(choice: Option, choices: Sequence[Option]) -> Recipe | None:
    """The first choice that is expected to score at least as high for at most the cost, one of them better; None: none."""
    for one in choices:
        theirs, ours = (one.expected, one.cost), (choice.expected, choice.cost)
        if theirs[0] >= ours[0] and theirs[1] <= ours[1] and theirs != ours:
            return one.name
    return None


@dataclass(frozen=True)
class Lengths:
    """The training lengths of the choices.

    Attributes:
        shortest: The fewest epochs, which a recipe that names none is trained for.
        longest: The most epochs; full fine-tuning of this length costs 1.
        examples: The train size; None: unknown.
    """

    shortest: float = 1.0
    longest: float = 1.0
    examples: int | None = None

    @classmethod
    def of(cls, runs: Iterable[RunResult], longest: float | None = None) -> Self:
        """Those of some runs of one train size, and of a search that may train up to ``longest`` epochs."""
        known = [(run.num_train_epochs, run.train_size) for run in runs if run.num_train_epochs is not None]
        if not known:
            return cls()
        epochs = [one for one, _ in known]
        return cls(min(epochs), max([*epochs, longest or 0.0]), known[0][1])

    def is_shortest(self, recipe: Recipe) -> bool:
        """Whether a recipe is trained for the fewest epochs."""
        return recipe.epochs in (None, self.shortest)

    def share(self, recipe: Recipe) -> float:
        """The share of the longest training that a recipe takes."""
        return (recipe.epochs or self.shortest) / self.longest

    def longer(self, recipes: Sequence[Recipe], shares: Sequence[float], ks: int) -> dict[int, tuple[int, float]]:
        """What :class:`frostline.statistics.posterior.Observed` has as ``longer``.

        Args:
            recipes: All choices that have a recipe; the first ``ks`` are those of the curve.
            shares: The share of layers that each tunes.
            ks: At least 1.
        """
        found = {}
        for n, recipe in enumerate(recipes):
            if recipe.epochs is None or self.is_shortest(recipe):
                continue
            alike = [
                m
                for m, one in enumerate(recipes)
                if one.trained == recipe.trained and self.share(one) < self.share(recipe)
            ]
            shorter = max(alike, key=lambda m: self.share(recipes[m]), default=None)
            if shorter is None:  # then the k of the curve whose share is closest
                shorter = min(range(ks), key=lambda m: abs(shares[m] - shares[n]))
            before = recipes[shorter].epochs or self.shortest
            found[n] = shorter, expected_gain(before, recipe.epochs, self.examples)
        return found


ONE_LENGTH = Lengths()


@dataclass(frozen=True)
class JointEstimate:
    """What is known about J choices together.

    Attributes:
        names: ``last 2``, ``full``, ``lora-2``, ``probe``; every k comes first, ascending.
        costs: Of each, as those of :class:`Option`. Measured times would make the decisions of equal sweeps differ.
        observed: Their scores.
        posterior: Of their mean scores.
        ways: The positions of what is no k of the shortest training.
    """

    names: tuple[Recipe, ...]
    costs: tuple[float, ...]
    observed: Observed
    posterior: Posterior
    ways: range = range(0)

    @classmethod
    def of(
        cls,
        cells: Mapping[Recipe, Sequence[RunResult]],
        depth: Sequence[float],
        alternatives: Sequence[Recipe],
        evidence: Evidence,
        ways: Sequence[float] = (),
        lengths: Lengths = ONE_LENGTH,
        at_other_rates: Iterable[RunResult] = (),
    ) -> Self:
        """The estimate from the runs that count for the mean of each choice.

        Args:
            cells: The runs of each k with the shortest training, ascending, then those of all others. At least one of them has
                runs.
            depth: The place of each k on the curve: its share of the layers, and more than 1 with the embeddings.
            alternatives: The models that train no layer; ``evidence`` knows their predictions by name.
            evidence: The scores and their uncertainty.
            ways: The share of layers that each of the others tunes.
            lengths: Of training.
            at_other_rates: The runs that count for the mean of another learning rate of one of the cells. They tell how much
                the best of several learning rates owes to luck.
        """
        runs: list[Sequence[Scored]] = [*cells.values(), *([Alternative(name)] for name in alternatives)]
        names, shares = [*cells], [*(min(1.0, place) for place in depth), *ways]
        costs = (
            *(share * lengths.share(name) for share, name in zip(shares, names, strict=True)),
            *(0.0 for _ in alternatives),
        )
        count, chains = len(runs), _chains_of_rates([*cells.values()], at_other_rates)
        runs += [some for chain in chains.values() for part in chain for some in part]
        observed = evidence.observed(runs, [*depth, *(None for _ in runs[len(depth) :])])
        longer = lengths.longer(names, shares, len(depth))
        largest: Sequence[RunResult] = next((some for some in [*cells.values()][: len(depth)][::-1] if some), ())
        shortest = {n: one for n, one in enumerate(shares) if n >= len(depth) and n not in longer}
        observed = replace(
            observed,
            beside=_largest_affordable_k(shares[: len(depth)], shortest),
            untrained=dict.fromkeys(range(len(cells), count), 0) if depth else {},
            heads={n: 0 for n, share in shortest.items() if depth and not share},
            longer=longer,
            unfitted=any(run.unfitted for run in largest),
            other_rates=_beside(chains, count),
            lowest=lowest_score(evidence.metric),
        )
        others, found = range(len(depth), len(cells)), posterior(observed)
        return cls((*cells, *alternatives), costs, observed.first(count), found.first(count), others)

    @cached_property
    def draws(self) -> Array:
        """Of the mean scores of all choices, ``[draws, J]``. None is outside the possible scores."""
        return np.clip(self.posterior.draws, self.observed.lowest, HIGHEST)

    @cached_property
    def choices(self) -> tuple[Option, ...]:
        """The choices that have a score, the cheapest first."""
        observed = self.observed
        measured = observed.means if observed.measured is None else observed.measured
        means = zip(observed.seen.tolist(), observed.means, measured, strict=True)
        choices = [
            Option(
                name=self.names[n],
                score=float(score),
                comparable=float(mean),
                cost=self.costs[n],
                draws=self.draws[:, n],
                is_way=n in self.ways and self.names[n].is_way,
            )
            for n, mean, score in means
        ]
        return tuple(sorted(choices, key=lambda choice: choice.cost))  # stable: k = 0 before the models without layers


Chains = Mapping[int, tuple[Sequence[Sequence[Scored]], Sequence[Sequence[Scored]]]]


def _chains_of_rates(cells: Sequence[Sequence[RunResult]], others: Iterable[RunResult]) -> Chains:
    """For each cell by its position, its runs at lower and at higher learning rates, those of the nearest one first."""
    place = {one.recipe: (n, one.learning_rate or 0.0) for n, runs in enumerate(cells) for one in runs[:1]}
    found: dict[int, dict[float, list[Scored]]] = {}
    for run in others:
        if run.recipe in place:
            found.setdefault(place[run.recipe][0], {}).setdefault(run.learning_rate or 0.0, []).append(run)
    rates = dict(place.values())
    return {
        n: (
            [some[rate] for rate in sorted(some, reverse=True) if rate < rates[n]],
            [some[rate] for rate in sorted(some) if rate > rates[n]],
        )
        for n, some in found.items()
    }


def _beside(chains: Chains, count: int) -> dict[int, int]:
    """The neighbour of the runs at each other learning rate. Their positions begin at ``count``, in the order of the chains."""
    found: dict[int, int] = {}
    for n, chain in chains.items():
        for part in chain:
            for nearest in range(len(part)):
                position = count + len(found)
                found[position] = position - 1 if nearest else n
    return found


def _largest_affordable_k(ks: Sequence[float], ways: Mapping[int, float]) -> dict[int, int]:
    """For each way that runs layers in training, the position of the largest k that costs at most as much.

    A way that trains a head only reads other features than k = 0 does, so it is not expected to score as that.
    """
    beside = {}
    for way, cost in ways.items():
        affordable = [k for k, price in enumerate(ks) if price <= cost]  # rising, as the costs of k are
        if cost > 0 and affordable:
            beside[way] = affordable[-1]
    return beside
