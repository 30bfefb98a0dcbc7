"""The data types of a search: trials, their outcomes, the steps, verdict and settings of a race. Touches no model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frostline.data.wording import capitalized
from frostline.statistics.goal import Goal
from frostline.statistics.tune import FULL, Tune

NOTHING_LEARNED = "No run scores above the baseline with 95 % confidence."
CLEAR_DROP = 0.1  # a learning rate is clearly worse if it loses more than this share of the gain over the baseline
FIRST_INTERIM_SEEDS = (2, 3, 5)  # numbers of seeds at which results are analyzed; after the last one, each doubling


@dataclass(frozen=True)
class Trial:
    """A run that a search may train: a k with a learning rate and a seed."""

    tune: Tune
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
        tune: The smallest k whose mean score reaches the goal. If it is None, no k is recommended, and one of the flags is set.
        why: Why the race ended, as a sentence.
        by_probe: A linear probe reaches the target even if the reference had the highest possible score.
        nothing_learned: No run scores above the baseline with 95 % confidence.
        no_reference: The reference has no result, so no k can be compared with it.
    """

    tune: Tune | None
    why: str
    by_probe: bool = False
    nothing_learned: bool = False
    no_reference: bool = False


@dataclass(frozen=True)
class RaceSettings:
    """The settings of a race.

    Attributes:
        ks: All k below the reference, ascending, from 0.
        reference: What every k is compared with: full fine-tuning, or the largest k that the user allows.
        learning_rates: The learning rates to try for k > 0, ascending.
        seeds: In the order in which they are used.
        chance: The score of the majority-class or mean baseline.
        highest_score: The highest possible score.
        goal: What a k must reach.
        head_learning_rates: The learning rates to try for k = 0.
        operations: Floating-point operations of one run, by k.
        budget: Wall-clock seconds for all runs; None: the time of ``DEFAULT_BUDGET`` runs of the reference.
        folds: The number of cross-validation folds; each seed is scored on one of them. 0: each is scored on all validation rows.
        probe_score: The lower end of the 95 % confidence interval of the best linear probe.
        start_k: The k at which learning rates are compared first. It is cheap, and close to the k that probes suggest.
        workers: The number of runs that are trained at the same time.
    """

    ks: tuple[int, ...]
    reference: Tune
    learning_rates: tuple[float, ...]
    seeds: tuple[int, ...]
    chance: float
    highest_score: float
    goal: Goal
    head_learning_rates: tuple[float, ...]
    operations: Mapping[Tune, float]
    budget: float | None
    folds: int = 0
    probe_score: float = -math.inf
    start_k: int = 2
    workers: int = 1

    def next_lower(self, learning_rate: float) -> float | None:
        """The next lower learning rate; None if this is the lowest."""
        lower = [one for one in self.learning_rates if one < learning_rate]
        return lower[-1] if lower else None

    @property
    def learning_rate_k(self) -> Tune:
        """The k at which learning rates are compared first: ``start_k``, limited to the k of the race.

        It is the reference if only k = 0 is smaller, because k = 0 has learning rates of its own.
        """
        return min(self.start_k, self.ks[-1]) or self.reference

    def trials(self, tune: Tune, learning_rate: float, seeds: Sequence[int]) -> list[Trial]:
        """Trials of a k with these seeds. k = 0 is cheap, so it is trained at all of its own learning rates."""
        rates = self.head_learning_rates if tune == 0 else (learning_rate,)
        return [Trial(tune, one, seed) for one in rates for seed in seeds]

    def middle_rate(self) -> float:
        """The middle one of the learning rates, which is tried first."""
        return self.learning_rates[(len(self.learning_rates) - 1) // 2]


def interim_seeds(seeds: int) -> tuple[int, ...]:
    """The numbers of seeds per k at which results are analyzed before more are trained. The last number is ``seeds``."""
    numbers = list(FIRST_INTERIM_SEEDS)
    while numbers[-1] < seeds:
        numbers.append(2 * numbers[-1])
    return (*(n for n in numbers if n < seeds), *([seeds] * (seeds > 1)))


def interim_analyses(seeds: int) -> int:
    """The largest number of times that a search reads the confidence intervals."""
    return max(1, len(interim_seeds(seeds)))


def reference_failed(reference: Tune) -> str:
    """The sentence for a reference of which every run failed."""
    return f"Every run of {name_of(reference)} failed, at every learning rate that was tried. There is nothing to compare with."


def name_of(tune: Tune, *, capital: bool = False) -> str:
    """The name of a k in messages; ``capital`` is for the beginning of a sentence."""
    name = f"k = {tune}" if isinstance(tune, int) else "full fine-tuning"
    return capitalized(name) if capital and tune == FULL else name
