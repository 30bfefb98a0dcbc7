"""What a search has observed, and what follows from it for each recipe. Touches no model.

A candidate is a run that the search may train. Its observation is a score and a time.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from frostline.data.wording import capitalized
from frostline.search import default_budget
from frostline.statistics.cells import ANSWERS, clear_distance, succeeded, with_outcomes
from frostline.statistics.decision import ONE_LENGTH, JointEstimate, Lengths, Rule
from frostline.statistics.inference import FULL_MEAN
from frostline.statistics.next_step import Surrogate
from frostline.statistics.posterior import HIGHEST
from frostline.statistics.predictions import Evidence
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult
from frostline.sweeps.results.forecast_record import makespan
from frostline.sweeps.results.search_record import Expected


@dataclass(frozen=True)
class Candidate:
    """A run that a search may train. The learning rate is that of the grid, without the factor of a way to tune."""

    recipe: Recipe
    learning_rate: float
    seed: int


@dataclass(frozen=True)
class Observation:
    """What a candidate turned out to be.

    Attributes:
        score: The best validation score; None if the run failed.
        seconds: Wall-clock seconds from start to end.
        run: The digest of the run; empty if it failed.
        workers: The number of runs that were trained at the same time, including this one.
        outcome: ``ok`` or ``degenerate``, as in the result of the run.
        train_last, validation_last: The scores after the last epoch; None if they are unknown.
    """

    score: float | None
    seconds: float
    run: str = ""
    workers: int = 1
    outcome: str = "ok"
    train_last: float | None = None
    validation_last: float | None = None


@dataclass(frozen=True)
class SearchSpace:
    """The candidates of a search.

    Attributes:
        recipes: The cheapest first: k = 0, then every other k. The last one is the reference: full fine-tuning, or the largest k
            that the user names. Then ways to tune, if there are any. Then the same for each longer training.
        layers: How many the reference tunes.
        lengths: Of training.
        learning_rates: To try for every recipe that trains a layer, ascending.
        head_learning_rates: To try for k = 0 and for ways that train a head only.
        seeds: In the order in which they are used.
        operations: Floating-point operations of one run, by recipe.
        shares: The share of the layers that run in training, of each way to tune.
        head_ways: The ways that train a head only.
        start_k: The k at which learning rates are compared first. It is cheap, and close to the k that probes suggest.
    """

    recipes: tuple[Recipe, ...]
    learning_rates: tuple[float, ...]
    head_learning_rates: tuple[float, ...]
    seeds: tuple[int, ...]
    operations: Mapping[Recipe, float]
    layers: int
    lengths: Lengths = ONE_LENGTH
    shares: Mapping[Recipe, float] = field(default_factory=dict)
    head_ways: Set[Recipe] = frozenset()
    start_k: int = 2

    @cached_property
    def curve(self) -> tuple[Recipe, ...]:
        """Every k of the shortest training, with which a search begins."""
        return tuple(one for one in self.recipes if one.is_k and self.lengths.is_shortest(one))

    @property
    def ways(self) -> list[Recipe]:
        """The ways to tune, with the shortest training."""
        return [one for one in self.recipes if one.is_way and self.lengths.is_shortest(one)]

    @property
    def head_only(self) -> Recipe:
        """k = 0 with the shortest training."""
        return self.curve[0]

    @property
    def reference(self) -> Recipe:
        """The dearest k of the shortest training."""
        return self.curve[-1]

    def longer(self, recipe: Recipe) -> list[Recipe]:
        """The longer trainings of what a recipe trains."""
        alike = [one for one in self.recipes if one.trained == recipe.trained]
        return [one for one in alike if (one.epochs or 0.0) > (recipe.epochs or 0.0)]

    def next_shorter(self, recipe: Recipe) -> Recipe | None:
        """The same with the next shorter training; None for the shortest."""
        return next((one for one in reversed(self.recipes) if recipe in self.longer(one)), None)

    @property
    def first(self) -> Recipe:
        """The recipe at which learning rates are compared first: ``start_k``, or the next k that is there, below the reference.

        It is the reference if only k = 0 is smaller, because k = 0 has learning rates of its own.
        """
        smaller = [one for one in self.curve[1:-1] if one.k is not None]
        return next((one for one in smaller if (one.k or 0) >= self.start_k), (smaller or [self.reference])[-1])

    def share(self, recipe: Recipe) -> float:
        """The share of the layers that a recipe tunes."""
        if recipe.is_way:
            return self.shares[recipe]
        return 1.0 if recipe.k is None else recipe.k / self.layers

    def cost(self, recipe: Recipe) -> float:
        """The share of the layers that a recipe tunes, times its share of the longest training."""
        return self.share(recipe) * self.lengths.share(recipe)

    def trains_head_only(self, recipe: Recipe) -> bool:
        """Whether a recipe trains a head only, by the learning rates of the head."""
        return recipe.k == 0 or recipe.trained in self.head_ways

    @property
    def middle_rate(self) -> float:
        """The middle one of the learning rates, which is tried first."""
        return self.learning_rates[(len(self.learning_rates) - 1) // 2]

    def next_lower(self, learning_rate: float) -> float | None:
        """The next lower learning rate; None if this is the lowest."""
        lower = [one for one in self.learning_rates if one < learning_rate]
        return lower[-1] if lower else None

    def neighbours(self, learning_rate: float) -> list[float]:
        """The next lower and the next higher learning rate, as far as they exist."""
        place = self.learning_rates.index(learning_rate)
        return [self.learning_rates[n] for n in (place - 1, place + 1) if 0 <= n < len(self.learning_rates)]

    def candidates(self, recipe: Recipe, learning_rate: float, seeds: Sequence[int]) -> list[Candidate]:
        """A recipe with these seeds. What trains a head only is trained at all learning rates of the head."""
        rates = self.head_learning_rates if self.trains_head_only(recipe) else (learning_rate,)
        return [Candidate(recipe, one, seed) for one in rates for seed in seeds]


@dataclass
class Observations:
    """All scores and times so far, with the rule by which the search decides.

    Attributes:
        space: The candidates.
        rule: How one of the choices is recommended.
        evidence: Compares finished runs.
        budget_given: Wall-clock seconds for all runs; None: the default, :func:`frostline.search.default_budget`.
        own_rows: Whether each seed is scored on validation rows of its own, as with cross-validation.
        alternatives: The names of choices without training, such as a linear probe, whose predictions the evidence knows.
        alternative_score: The lower end of the 95 % confidence interval of the best alternative.
        workers: The number of runs that are trained at the same time.
        stacked: How many runs of one recipe a GPU trains as one stack in about the time of one; 1 elsewhere. A batch then has
            further seeds until its stacks are full.
        known: The observation of every finished candidate.
        batches: The candidates that were trained together.
        best_elsewhere: The value of the best choice of other models that are searched with this one.
        spent_elsewhere: The seconds of the budget that other models have taken.
        budget_of_leader: The default budget of the best of several models, which is that of all; None: its own.
        price_of_budget: The score that the whole budget is worth with several models; None: what the rule says.
    """

    space: SearchSpace
    rule: Rule
    evidence: Evidence
    budget_given: float | None = None
    own_rows: bool = False
    alternatives: tuple[Recipe, ...] = ()
    alternative_score: float = -math.inf
    workers: int = 1
    stacked: int = 1
    known: dict[Candidate, Observation] = field(default_factory=dict)
    batches: list[tuple[Candidate, ...]] = field(default_factory=list)
    best_elsewhere: float = -math.inf
    spent_elsewhere: float = 0.0
    budget_of_leader: float | None = None
    price_of_budget: float | None = None
    _surrogate: tuple[int, Surrogate | None] | None = field(default=None, init=False, repr=False, compare=False)
    _runs: tuple[int, dict[tuple[Recipe, float], list[RunResult]]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def chance(self) -> float:
        """The score of the majority-class or mean baseline."""
        assert self.evidence.chance is not None
        return self.evidence.chance

    @property
    def sufficient_score(self) -> float:
        """The score above which no layer needs to be tuned.

        The target is reached even if the reference has the highest possible score; or even that score is worth less than the
        reference costs.
        """
        if self.rule.sure is None:
            return self.rule.highest_value(cost=1.0)
        return self.rule.goal.required_score(HIGHEST)

    @property
    def spent(self) -> float:
        """Wall-clock seconds of all batches so far."""
        return sum(map(self.batch_seconds, self.batches))

    def batch_seconds(self, batch: Sequence[Candidate]) -> float:
        """Wall-clock seconds of a batch, whose runs share the workers."""
        ended = [self.known[one] for one in batch if one in self.known]
        return makespan([one.seconds for one in ended], max((one.workers for one in ended), default=1))

    @property
    def budget(self) -> float:
        """Wall-clock seconds that all batches may take."""
        if self.budget_given is not None:
            return self.budget_given
        if self.budget_of_leader is not None:
            return self.budget_of_leader
        shares = self._reference_seconds or [self.run_seconds(self.space.reference) / self.workers]
        times = self.space.lengths.longest / self.space.lengths.shortest
        return default_budget(float(np.median(shares)) * times)

    @property
    def seconds_left(self) -> float:
        """What is left of the budget."""
        return self.budget - self.spent - self.spent_elsewhere

    @property
    def budget_is_final(self) -> bool:
        """Whether the budget was given, or a run of the reference was timed. Until then it is an estimate from other runs."""
        return self.budget_given is not None or bool(self._reference_seconds)

    @property
    def _reference_seconds(self) -> list[float]:
        """Seconds of each finished run of the reference, divided by the number of runs trained at the same time.

        Of a run in a stack, a result has its share of the seconds.
        """
        finished = (one for candidate, one in self.known.items() if candidate.recipe == self.space.reference)
        return [self.stacked * one.seconds / one.workers for one in finished if one.score is not None]

    def run_seconds(self, recipe: Recipe) -> float:
        """Predicted seconds of one run of this recipe: the median of its finished runs.

        If there are none, it is the median of the recipe with the closest number of operations, scaled by the operations.
        """
        taken: dict[Recipe, list[float]] = {}
        for candidate, one in self.known.items():
            if one.score is not None:
                taken.setdefault(candidate.recipe, []).append(one.seconds)
        if not taken:
            return 0.0
        cost = self.space.operations
        nearest = min(taken, key=lambda other: abs(math.log(max(cost[other], 1.0) / max(cost[recipe], 1.0))))
        return float(np.median(taken[nearest])) * cost[recipe] / max(cost[nearest], 1.0)

    def predicted_seconds(self, candidates: Sequence[Candidate]) -> float:
        """Predicted wall-clock seconds of those candidates that are not known, trained as one batch."""
        counts = Counter(one.recipe for one in self.in_full_stacks(candidates))
        stacked = self.stacked
        stacks = [stacked * self.run_seconds(k) for k, count in counts.items() for _ in range(0, count, stacked)]
        return makespan(stacks, self.workers)

    def budget_for(self, candidates: Sequence[Candidate]) -> float:
        """The seconds of a budget that allows these candidates, too."""
        return self.spent + self.spent_elsewhere + self.predicted_seconds(candidates)

    def fits_budget(self, candidates: Sequence[Candidate]) -> bool:
        """Whether these candidates fit into the rest of the budget."""
        return self.budget_for(candidates) <= self.budget

    def tried(self, recipe: Recipe) -> list[Candidate]:
        """The candidates of a recipe that were trained, including failed runs."""
        return [one for one in self.known if one.recipe == recipe]

    def missing(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Those candidates that are not known yet."""
        return tuple(one for one in dict.fromkeys(candidates) if one not in self.known)

    def in_full_stacks(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Those that are not known yet, and further seeds of the same recipe and learning rates until all stacks are full."""
        found = list(self.missing(candidates))
        for recipe in dict.fromkeys(one.recipe for one in found):
            own = [one for one in found if one.recipe == recipe]
            rates = dict.fromkeys(one.learning_rate for one in own)
            further = [Candidate(recipe, rate, seed) for seed in self.space.seeds for rate in rates]
            further = [one for one in self.missing(further) if one not in own]
            found += further[: -len(own) % self.stacked]
        return tuple(found)

    def scores(self, recipe: Recipe, learning_rate: float) -> dict[int, float]:
        """Scores of the runs that count for the mean, by seed."""
        return {int(run.seed): run.score for run in self._counted(recipe, learning_rate)}

    def _counted(self, recipe: Recipe, rate: float) -> list[RunResult]:
        """The runs at a learning rate that count for its mean (:func:`frostline.statistics.cells.succeeded`).

        There are none if each of them predicts the same for every row: the answer knows no score of such a recipe either. The
        reference keeps its runs, because all others are compared with it.
        """
        if self._runs is None or self._runs[0] != len(self.known):  # an observation never changes
            self._runs = len(self.known), self._by_recipe_and_rate()
        good = succeeded(self._runs[1].get((recipe, rate), []))
        usable = recipe == self.space.reference or any(run.outcome in ANSWERS for run in good)
        return good if usable else []

    def _by_recipe_and_rate(self) -> dict[tuple[Recipe, float], list[RunResult]]:
        """All finished runs, with the columns of results.csv that the statistics need."""
        finished = [
            RunResult(
                recipe=one.recipe,
                learning_rate=one.learning_rate,
                seed=one.seed,
                run=seen.run,
                validation_best=seen.score,
                validation_last=seen.validation_last,
                train_last=seen.train_last,
                outcome=seen.outcome,
            )
            for one, seen in self.known.items()
        ]
        found: dict[tuple[Recipe, float], list[RunResult]] = {}
        clear = clear_distance(finished, self.evidence)
        for one, run in zip(self.known, with_outcomes(finished, self.chance, clear), strict=True):
            found.setdefault((one.recipe, one.learning_rate), []).append(run)
        return found

    def best_learning_rate(self, recipe: Recipe) -> float | None:
        """The learning rate with the best mean score over the seeds that all learning rates share; None without a score."""
        rates = {one.learning_rate for one in self.tried(recipe)}
        known = {rate: scores for rate in sorted(rates) if (scores := self.scores(recipe, rate))}
        if not known:
            return None
        shared = set.intersection(*(set(scores) for scores in known.values()))
        means = {
            rate: float(np.mean([score for seed, score in scores.items() if seed in shared or not shared]))
            for rate, scores in known.items()
        }
        return max(means, key=lambda rate: means[rate])

    def runs(self, recipe: Recipe) -> list[RunResult]:
        """The runs at the best learning rate that count for the mean, as rows for ``evidence``."""
        rate = self.best_learning_rate(recipe)
        return [] if rate is None else self._counted(recipe, rate)

    def _at_other_rates(self) -> list[RunResult]:
        """The runs that count for the mean of a learning rate that is not the best one of its recipe."""
        found = []
        for recipe in dict.fromkeys(one.recipe for one in self.known):
            best = self.best_learning_rate(recipe)
            for rate in dict.fromkeys(one.learning_rate for one in self.tried(recipe)):
                found += [] if rate == best else self._counted(recipe, rate)
        return found

    def surrogate(self) -> Surrogate | None:
        """What is expected of every recipe; None before the reference has a score."""
        if self._surrogate is None or self._surrogate[0] != len(self.known):
            self._surrogate = len(self.known), self._new_surrogate()
        return self._surrogate[1]

    def _new_surrogate(self) -> Surrogate | None:
        space = self.space
        assert space.recipes[: len(space.curve)] == space.curve
        if self.best_learning_rate(space.reference) is None:
            return None
        cells = {recipe: self.runs(recipe) for recipe in space.recipes}
        depth = [space.share(one) + (one.k is None) / space.layers for one in space.curve]
        others = [space.share(one) for one in space.recipes[len(depth) :]]
        at_other_rates = self._at_other_rates()
        estimate = JointEstimate.of(
            cells, depth, self.alternatives, self.evidence, others, space.lengths, at_other_rates
        )
        with_score = [one for one in space.longer(space.reference) if self.best_learning_rate(one) is not None]
        reference = (with_score or [space.reference])[-1]
        full = next(one for one in estimate.choices if one.name == reference)
        return Surrogate(estimate, self.rule, full, self.own_rows)

    def may_win(self, recipe: Recipe) -> bool:
        """Whether a recipe would be worth more than the best choice so far if it had the highest possible score."""
        return self.rule.may_win(self.space.cost(recipe), max(self.best_elsewhere, self.best_value))

    @property
    def best_value(self) -> float:
        """The value of the best choice so far, among those of this model."""
        surrogate = self.surrogate()
        return -math.inf if surrogate is None else self.rule.value(surrogate.best)

    def is_unfitted(self, recipe: Recipe) -> bool:
        """Whether a run at the best learning rate of a recipe has not fitted the examples that it was trained on."""
        return any(run.unfitted for run in self.runs(recipe))

    def above_baseline(self, recipe: Recipe) -> bool:
        """Whether the mean of this recipe, or one of its runs, is above the baseline with 95 % confidence.

        One such run is enough to show that something can be learned.
        """
        return bool(self.evidence.learned(self.runs(recipe), len(self.tried(recipe))))

    def is_sufficient(self, recipe: Recipe) -> bool:
        """Whether this recipe surely scores so high that no larger one needs to be trained."""
        runs = self.runs(recipe)
        both = self.evidence.pair(runs, runs) if len(runs) > 1 else None
        return both is not None and both.interval(FULL_MEAN)[0] > self.sufficient_score

    def results_so_far(self) -> list[Expected]:
        """For every recipe with a score: its runs and its mean, and what the surrogate expects of it."""
        surrogate, found = self.surrogate(), []
        for recipe in self.space.recipes:
            if (rate := self.best_learning_rate(recipe)) is None:
                continue
            scores = list(self.scores(recipe, rate).values())
            expected = sure = None
            if surrogate is not None and (choice := surrogate.choice(recipe)) is not None:
                expected, sure = choice.expected, surrogate.probability(choice)
            mean = float(np.mean(scores))
            found.append(Expected(recipe=recipe, runs=len(scores), mean=mean, expected=expected, probability=sure))
        return found


def interim_analyses(seeds: int) -> int:
    """The largest number of times that a search reads the confidence intervals of a k: after every seed from the second on."""
    return max(1, seeds - 1)


def in_words(recipe: Recipe, *, capital: bool = False) -> str:
    """The name of a recipe in messages; ``capital`` is for the beginning of a sentence."""
    name = "full fine-tuning" if recipe.is_full else str(recipe.trained) if recipe.is_way else f"k = {recipe.k}"
    length = f" for {recipe.length}" if recipe.length else ""
    return f"{capitalized(name) if capital and recipe.is_full else name}{length}"
