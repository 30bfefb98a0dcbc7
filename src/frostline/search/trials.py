"""The vocabulary of a search: trials, their outcomes, the steps and verdict of a race, and its settings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frostline.data.wording import capitalized
from frostline.model.tune import Tune
from frostline.statistics.goal import Goal

NOTHING_LEARNED = "No run scores above the baseline with 95 % confidence."
DEFAULT_BUDGET = 4  # in runs of the reference; with several workers, in such runs by each worker
CLEAR_DROP = 0.1  # a learning rate is clearly worse if it loses this share of the gain over the baseline
FIRST_INTERIM_SEEDS = (2, 3, 5)  # numbers of seeds at which results are analyzed; after the last one, each doubling


@dataclass(frozen=True)
class Trial:
    """One run that a search may train."""

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
        workers: The number of runs that were trained at the same time, this one included.
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
        tune: The smallest k whose mean score reaches the goal; None if no k is recommended, for the reason that a flag gives.
        why: Why the race ended, as a sentence.
        by_probe: A linear probe on frozen features is already good enough.
        unlearned: No run scores above the baseline with 95 % confidence.
        alone: The reference has no result, so there is nothing to compare with.
    """

    tune: Tune | None
    why: str
    by_probe: bool = False
    unlearned: bool = False
    alone: bool = False


@dataclass(frozen=True)
class RaceSettings:
    """The settings of a race.

    Attributes:
        ks: All k below the reference, ascending, from 0.
        reference: Full fine-tuning, or the largest k that the user allows.
        learning_rates: Ascending; of every k but 0.
        seeds: In the order in which they are used.
        chance: The score of the majority-class or mean baseline.
        highest_score: The highest possible score.
        goal: What a k must reach.
        head_learning_rates: Those of k = 0.
        operations: Floating-point operations of one run, by k.
        budget: Wall-clock seconds for all runs; None: the time of ``DEFAULT_BUDGET`` runs of the reference.
        folds: Folds of the rows, one for each seed in turn; 0: every seed is scored on all validation rows.
        probe_score: The lower end of the 95 % confidence interval of the best linear probe.
        start_k: The k at which learning rates are compared first: cheap, and close to the k that probes suggest.
        workers: Runs that are trained at the same time.
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
        """The k at which learning rates are compared first. It is the reference if only k = 0, which has learning rates of
        its own, lies below the reference."""
        return min(self.start_k, self.ks[-1]) or self.reference

    def trials(self, tune: Tune, learning_rate: float, seeds: Sequence[int]) -> list[Trial]:
        """Trials of a k with these seeds. k = 0 is so cheap that it is trained at each of its own learning rates."""
        rates = self.head_learning_rates if tune == 0 else (learning_rate,)
        return [Trial(tune, one, seed) for one in rates for seed in seeds]

    def middle_rate(self) -> float:
        """The learning rate in the middle, which is tried first."""
        return self.learning_rates[(len(self.learning_rates) - 1) // 2]


def interim_seeds(seeds: int) -> tuple[int, ...]:
    """The numbers of seeds at which results are analyzed before more are trained; the last one is ``seeds``."""
    numbers = list(FIRST_INTERIM_SEEDS)
    while numbers[-1] < seeds:
        numbers.append(2 * numbers[-1])
    return (*(n for n in numbers if n < seeds), *([seeds] * (seeds > 1)))


def interim_analyses(seeds: int) -> int:
    """The largest number of times that confidence intervals are read during a search."""
    return max(1, len(interim_seeds(seeds)))


def reference_failed(reference: Tune) -> str:
    """A sentence that says that every run of the reference failed."""
    return f"Every run of {name_of(reference)} failed, at every learning rate that was tried. There is nothing to compare with."


def name_of(tune: Tune, *, capital: bool = False) -> str:
    """A k as messages name it, with a capital letter at the beginning of a sentence."""
    name = f"k = {tune}" if isinstance(tune, int) else "full fine-tuning"
    return capitalized(name) if capital and tune == "all" else name
