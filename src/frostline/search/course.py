"""What a search may train, what it trains next, what came of it, and the words for all of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frostline.data.wording import capitalized
from frostline.model.tune import Tune
from frostline.statistics.goal import Goal

NOTHING_LEARNED = "Nothing that was trained is surely above guessing."
FULLS = 4  # trainings of the reference that the default budget is worth, as many side by side as are trained here
CLEARLY = 0.1  # of what is gained over guessing: a rate that does so much worse than a lower one
RUNGS = (2, 3, 5)  # seeds at which it is looked whether more are wanted; with more allowed, each doubling


@dataclass(frozen=True)
class Trial:
    """One training: a run of the sweep."""

    tune: Tune
    rate: float
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What came of it: its score (None: it failed), the seconds from its start to its end, the name of its result, how
    many trainings went side by side, itself included, and what its result says (ok, degenerate)."""

    score: float | None
    seconds: float
    run: str = ""
    abreast: int = 1
    outcome: str = "ok"


@dataclass(frozen=True)
class Step:
    """Trainings that are wanted next, and the reason in words."""

    trials: tuple[Trial, ...]
    why: str


@dataclass(frozen=True)
class Verdict:
    """``tune``: the smallest k that is enough by the means of what was trained; None where there is none, as the flags say.
    ``why``: what ended the race."""

    tune: Tune | None
    why: str
    by_probe: bool = False  # nothing need be trained
    unlearned: bool = False  # nothing is surely above guessing
    alone: bool = False  # of what everything is compared with there is nothing


@dataclass(frozen=True)
class Course:
    """What is raced over."""

    ks: tuple[int, ...]  # ascending, from 0
    reference: Tune  # full, or the deepest that is allowed
    rates: tuple[float, ...]  # ascending
    seeds: tuple[int, ...]  # in the order in which they are used
    chance: float  # what guessing scores
    best: float  # the most that a score can be
    goal: Goal
    head_rates: tuple[float, ...]  # of the head alone
    operations: Mapping[Tune, float]  # of a training
    budget: float | None  # seconds that all trainings may take; None: so many trainings of the reference
    folds: int = 0  # of the rows, one for each seed in turn; 0: every seed is scored on all
    frozen: float = -math.inf  # what a probe on frozen features surely reaches
    first: int = 2  # the k at which the rate is asked: cheap, and near to what is likely to be named
    abreast: int = 1  # trainings that go side by side where there are several

    def below(self, rate: float) -> float | None:
        """The next lower rate."""
        lower = [one for one in self.rates if one < rate]
        return lower[-1] if lower else None

    @property
    def asked(self) -> Tune:
        """What the rate is asked of; the reference, where only the head lies below: that has rates of its own."""
        return min(self.first, self.ks[-1]) or self.reference

    def trials(self, tune: Tune, rate: float, seeds: Sequence[int]) -> list[Trial]:
        """Trainings of a k with these seeds; of the head alone at every rate of a head, since they cost next to nothing."""
        return [Trial(tune, one, seed) for one in (self.head_rates if tune == 0 else (rate,)) for seed in seeds]

    def middle(self) -> float:
        """The rate that is tried first."""
        return self.rates[(len(self.rates) - 1) // 2]


def rungs(seeds: int) -> tuple[int, ...]:
    """Numbers of seeds, the last ``seeds``, at which results are looked at before more are trained."""
    more = list(RUNGS)
    while more[-1] < seeds:
        more.append(2 * more[-1])
    return (*(n for n in more if n < seeds), *([seeds] * (seeds > 1)))


def looks(seeds: int) -> int:
    """How often intervals are looked at, at most."""
    return max(1, len(rungs(seeds)))


def failed_throughout(reference: Tune) -> str:
    """That there is nothing to compare with, in words."""
    return f"{said(reference, begins=True)} failed at every rate that was tried: there is nothing to compare with."


def said(tune: Tune, *, begins: bool = False) -> str:
    """A k in words, within a sentence or at its beginning."""
    words = "full" if tune == "all" else str(tune)
    if isinstance(tune, int):
        words = {0: "the head alone", 1: "the last layer"}.get(tune, f"the last {tune} layers")
    return capitalized(words) if begins else words
