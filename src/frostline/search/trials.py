"""The data types of a search: trials, their outcomes, the steps, verdict and settings of a race. Touches no model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frostline.data.wording import capitalized
from frostline.statistics.decision import Rule
from frostline.statistics.recipe import FULL, HEAD_ONLY, Recipe

HIGHEST_SCORE = 1.0  # of every metric
NOTHING_LEARNED = "No run scores above the baseline with 95 % confidence."


@dataclass(frozen=True)
class Trial:
    """A run that a search may train: a k with a learning rate and a seed."""

    recipe: Recipe
    learning_rate: float
    seed: int


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial.

    Attributes:
        score: The best validation score; None if the run failed.
        seconds: Wall-clock seconds from start to end.
        run: The digest of the run; empty if it failed.
        workers: The number of runs that were trained at the same time, including this one.
        outcome: ``ok`` or ``degenerate``, as in the result of the run.
    """

    score: float | None
    seconds: float
    run: str = ""
    workers: int = 1
    outcome: str = "ok"


@dataclass(frozen=True)
class Step:
    """Trials to train next, and the reason as a sentence."""

    trials: tuple[Trial, ...]
    why: str


@dataclass(frozen=True)
class Verdict:
    """The end of a race.

    Attributes:
        why: Why the race ended, as a sentence.
        nothing_learned: No run scores above the baseline with 95 % confidence.
        no_reference: The reference has no result, so no k can be compared with it.
        untried: The k that would be tried next, if the budget allowed it; None if there is none.
    """

    why: str
    nothing_learned: bool = False
    no_reference: bool = False
    untried: Recipe | None = None


@dataclass(frozen=True)
class RaceSettings:
    """The settings of a race.

    Attributes:
        ks: All k below the reference, ascending, from 0.
        reference: What every k is compared with: full fine-tuning, or the largest k that the user allows.
        learning_rates: The learning rates to try for k > 0, ascending.
        seeds: In the order in which they are used.
        chance: The score of the majority-class or mean baseline.
        rule: How one of the choices is recommended.
        head_learning_rates: The learning rates to try for k = 0.
        operations: Floating-point operations of one run, by k.
        budget: Wall-clock seconds for all runs; None: the larger of ``FULL_RUNS`` runs of the reference and ``SECONDS`` seconds.
        folds: The number of cross-validation folds; each seed is scored on one of them. 0: each is scored on all validation rows.
        alternatives: The names of choices without training, such as a linear probe, whose predictions the evidence knows.
        alternative_score: The lower end of the 95 % confidence interval of the best alternative.
        start_k: The k at which learning rates are compared first. It is cheap, and close to the k that probes suggest.
        workers: The number of runs that are trained at the same time.
        stacked: How many runs of one k a GPU trains as one stack in about the time of one; 1 elsewhere. A step then trains
            further seeds until its stacks are full.
    """

    ks: tuple[Recipe, ...]
    reference: Recipe
    learning_rates: tuple[float, ...]
    seeds: tuple[int, ...]
    chance: float
    rule: Rule
    head_learning_rates: tuple[float, ...]
    operations: Mapping[Recipe, float]
    budget: float | None
    folds: int = 0
    alternatives: tuple[str, ...] = ()
    alternative_score: float = -math.inf
    start_k: int = 2
    workers: int = 1
    stacked: int = 1

    @property
    def choices(self) -> tuple[Recipe, ...]:
        """Every k, the reference last."""
        return (*self.ks, self.reference)

    @property
    def layers(self) -> int:
        """The number of layers of the largest k."""
        return self.reference.k or max(1, self.ks[-1].k or 0)

    @property
    def sufficient_score(self) -> float:
        """The score above which no layer needs to be tuned.

        The target is reached even if the reference has the highest possible score; or even that score is worth less than the
        reference costs.
        """
        if self.rule.sure is None:
            return HIGHEST_SCORE - self.rule.price
        return self.rule.goal.required_score(HIGHEST_SCORE)

    def next_lower(self, learning_rate: float) -> float | None:
        """The next lower learning rate; None if this is the lowest."""
        lower = [one for one in self.learning_rates if one < learning_rate]
        return lower[-1] if lower else None

    def neighbours(self, learning_rate: float) -> list[float]:
        """The next lower and the next higher learning rate, as far as they exist."""
        place = self.learning_rates.index(learning_rate)
        return [self.learning_rates[n] for n in (place - 1, place + 1) if 0 <= n < len(self.learning_rates)]

    @property
    def learning_rate_k(self) -> Recipe:
        """The k at which learning rates are compared first: ``start_k``, limited to the k of the race.

        It is the reference if only k = 0 is smaller, because k = 0 has learning rates of its own.
        """
        start = min(self.start_k, self.ks[-1].k or 0)
        return Recipe(start) if start else self.reference

    def trials(self, tune: Recipe, learning_rate: float, seeds: Sequence[int]) -> list[Trial]:
        """Trials of a k with these seeds. k = 0 is cheap, so it is trained at all of its own learning rates."""
        rates = self.head_learning_rates if tune == HEAD_ONLY else (learning_rate,)
        return [Trial(tune, one, seed) for one in rates for seed in seeds]

    def middle_rate(self) -> float:
        """The middle one of the learning rates, which is tried first."""
        return self.learning_rates[(len(self.learning_rates) - 1) // 2]


def interim_analyses(seeds: int) -> int:
    """The largest number of times that a search reads the confidence intervals of a k: after every seed from the second on."""
    return max(1, seeds - 1)


def reference_failed(reference: Recipe) -> str:
    """The sentence for a reference of which every run failed."""
    return f"Every run of {in_words(reference)} failed, at every learning rate that was tried. There is nothing to compare with."


def in_words(tune: Recipe, *, capital: bool = False) -> str:
    """The name of a k in messages; ``capital`` is for the beginning of a sentence."""
    name = "full fine-tuning" if tune.k is None else f"k = {tune.k}"
    return capitalized(name) if capital and tune == FULL else name
