"""The order in which an answer is looked for: what to train next, on the numbers seen so far, and when to stop. No torch here.

A race is a generator: it hands out steps (some trainings, and why), finds their outcomes on its board when it goes on, and
ends with a verdict. It knows nothing of models or files, and the same outcomes give the same steps: a search that was
stopped goes on by being told again what is known. What is cheap comes first; full is trained as often as the comparison
needs; k is climbed from the shallow end, so nothing deeper than the answer is trained but full.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from frostline.specification import Tune

FULLS = 6.0  # trainings of the reference that the default budget is worth


@dataclass(frozen=True)
class Trial:
    """One training: a run of the sweep."""

    tune: Tune
    rate: float
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What came of it: its score (None: it failed), and the seconds it took."""

    score: float | None
    seconds: float


@dataclass(frozen=True)
class Step:
    """Trainings that are wanted next, and the reason in words."""

    trials: tuple[Trial, ...]
    why: str


@dataclass(frozen=True)
class Verdict:
    """``tune``: the smallest k that meets the target by the means of what was trained; None where nothing is learned.
    ``why``: what ended the race."""

    tune: Tune | None
    why: str


@dataclass(frozen=True)
class Course:
    """What is raced over."""

    ks: tuple[int, ...]  # ascending, from 0
    reference: Tune  # full, or the deepest that is allowed
    rates: tuple[float, ...]  # ascending
    seeds: tuple[int, ...]  # in the order in which they are used
    chance: float  # what guessing scores
    best: float  # the most that a score can be
    noise: Callable[[float], float]  # standard error of a score, from the validation rows alone
    target: float  # share of the reference's gain over guessing
    operations: Mapping[Tune, float]  # of a training
    budget: float | None  # seconds that all trainings may take; None: so many trainings of the reference

    def below(self, rate: float) -> float | None:
        """The next lower rate."""
        lower = [one for one in self.rates if one < rate]
        return lower[-1] if lower else None

    def middle(self) -> float:
        """The rate that is tried first."""
        return self.rates[(len(self.rates) - 1) // 2]


@dataclass
class Board:
    """What is known so far."""

    course: Course
    outcomes: dict[Trial, Outcome] = field(default_factory=dict)

    @property
    def spent(self) -> float:
        """Seconds of all trainings."""
        return sum(outcome.seconds for outcome in self.outcomes.values())

    @property
    def budget(self) -> float:
        """Seconds that all trainings may take."""
        return FULLS * self.price(self.course.reference) if self.course.budget is None else self.course.budget

    def price(self, tune: Tune) -> float:
        """Seconds of a training: what those of this k took, or else that of the nearest in operations, in proportion."""
        taken: dict[Tune, list[float]] = {}
        for trial, outcome in self.outcomes.items():
            taken.setdefault(trial.tune, []).append(outcome.seconds)
        if not taken:
            return 0.0
        work = self.course.operations
        nearest = min(taken, key=lambda k: abs(math.log(max(work[k], 1.0) / max(work[tune], 1.0))))
        return float(np.median(taken[nearest])) * work[tune] / max(work[nearest], 1.0)

    def affords(self, trials: Sequence[Trial]) -> bool:
        """Whether what is left of the budget will do for those of these that are not done."""
        return self.spent + sum(self.price(trial.tune) for trial in self.missing(trials)) <= self.budget

    def missing(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        return tuple(trial for trial in dict.fromkeys(trials) if trial not in self.outcomes)

    def scores(self, tune: Tune, rate: float) -> dict[int, float]:
        """Of the runs that did not fail, by seed."""
        return {
            trial.seed: outcome.score
            for trial, outcome in self.outcomes.items()
            if (trial.tune, trial.rate) == (tune, rate) and outcome.score is not None
        }

    def rate(self, tune: Tune) -> float | None:
        """The best of those tried, by the mean of the seeds that most of them have; None: nothing is known of this k."""
        tried = {trial.rate for trial in self.outcomes if trial.tune == tune}
        known = {rate: scores for rate in sorted(tried) if (scores := self.scores(tune, rate))}
        if not known:
            return None
        shared = set.intersection(*(set(scores) for scores in known.values()))
        means = {
            rate: float(np.mean([score for seed, score in scores.items() if seed in shared or not shared]))
            for rate, scores in known.items()
        }
        return max(means, key=lambda rate: means[rate])

    def mean(self, tune: Tune) -> float | None:
        """At its best rate."""
        rate = self.rate(tune)
        return None if rate is None else float(np.mean(list(self.scores(tune, rate).values())))

    def share(self, tune: Tune) -> float | None:
        """Of the reference's gain over guessing, on the seeds that both have; None where there are none, or no gain."""
        mine, its = self.rate(tune), self.rate(self.course.reference)
        if mine is None or its is None:
            return None
        one, other = self.scores(tune, mine), self.scores(self.course.reference, its)
        both = one.keys() & other.keys()
        if not both:
            return None
        gain = float(np.mean([other[seed] for seed in both])) - self.course.chance
        return (float(np.mean([one[seed] for seed in both])) - self.course.chance) / gain if gain > 0 else None

    def error(self, tune: Tune) -> float:
        """Standard error of a mean: from the rows, and the seeds where there are several."""
        rate = self.rate(tune)
        scores = [] if rate is None else list(self.scores(tune, rate).values())
        rows = self.course.noise(float(np.mean(scores))) if scores else math.inf
        seeds = float(np.var(scores, ddof=1)) / len(scores) if len(scores) > 1 else rows**2
        return math.sqrt(rows**2 + seeds)

    def learned(self, tune: Tune) -> bool:
        """Whether its mean lies two standard errors above guessing."""
        mean = self.mean(tune)
        return mean is not None and mean - 2 * self.error(tune) > self.course.chance

    def enough_by_itself(self, tune: Tune) -> bool:
        """Whether no reference, however good, could put it below the target."""
        mean = self.mean(tune)
        wanted = self.course.chance + self.course.target * (self.course.best - self.course.chance)
        return mean is not None and mean - 2 * self.error(tune) >= wanted

    @property
    def candidates(self) -> list[Tune]:
        """What may still be the answer: from the smallest k that is not known to miss the target to the one that meets it."""
        found = self.meets()
        ks: list[Tune] = [k for k in self.course.ks if not isinstance(found, int) or k < found]
        return [*(k for k in ks if self.share(k) is None), found]

    def meets(self) -> Tune:
        """The smallest k whose share reaches the target, or the reference."""
        for k in self.course.ks:
            share = self.share(k)
            if self.enough_by_itself(k) or (share is not None and share >= self.course.target):
                return k
        return self.course.reference


Steps = Generator[Step, None, Verdict]


def race(board: Board) -> Steps:
    """Look for the smallest k that meets the target; whoever carries a step out writes its outcomes on the ``board``."""
    course = board.course

    def run(trials: Sequence[Trial], why: str) -> Generator[Step, None, None]:
        wanted = board.missing(trials)
        if wanted:
            yield Step(wanted, why)

    rate, reference, first = course.middle(), course.reference, course.seeds[0]
    yield from run([Trial(0, rate, seed) for seed in course.seeds], "The head alone costs next to nothing.")
    if board.enough_by_itself(0):
        return Verdict(0, "The head alone is so good that no other k can be much better.")

    shallow = course.ks[min(2, len(course.ks) - 1)]
    if shallow:
        yield from run(
            [Trial(shallow, one, first) for one in course.rates],
            f"Which learning rate: asked of {said(shallow)}, where it is cheap.",
        )
        rate = board.rate(shallow) or rate
    yield from run([Trial(reference, rate, first)], f"What {said(reference)} reaches, at that rate.")
    if not any(board.learned(k) for k in (reference, shallow, 0)):
        others = [Trial(reference, one, first) for one in course.rates]
        if board.affords(others):
            yield from run(others, "Nothing is surely above guessing yet: every learning rate.")
        if not any(board.learned(k) for k in (reference, shallow, 0)):
            return Verdict(None, "Nothing that was trained is surely above guessing.")

    lower = course.below(rate)
    while True:
        found = board.meets()
        below = _unknown_below(board, found)
        if below is not None:
            nearby = board.rate(below - 1) if below > 1 else None
            trials, why = [Trial(below, nearby or rate, first)], f"Climbing: does {said(below)} meet the target?"
        elif lower is not None:
            trials, why = [Trial(reference, lower, first)], f"Does a lower rate do {said(reference)} good?"
            lower = None
        else:
            trials = _confirming(board, found)
            why = f"More seeds of what decides for {said(found)}: it, the k below it, and {said(reference)}."
        if not trials:
            return Verdict(found, f"All {len(course.seeds)} seeds of what decides are trained.")
        if not board.affords(trials):
            return Verdict(found, "What is left of the budget does not allow the next step.")
        yield from run(trials, why)


def _unknown_below(board: Board, found: Tune) -> int | None:
    """The smallest k of which nothing is known, below the one that meets the target."""
    ks = [k for k in board.course.ks if not isinstance(found, int) or k < found]
    return next((k for k in ks if all(trial.tune != k for trial in board.outcomes)), None)


def _confirming(board: Board, found: Tune) -> list[Trial]:
    """One more seed each of the k that is named, the one below it, and the reference."""
    course = board.course
    at = course.ks.index(found) if isinstance(found, int) and found in course.ks else len(course.ks)
    rivals: list[Tune] = [course.reference, *course.ks[max(0, at - 1) : at + 1]]
    trials = []
    for tune in dict.fromkeys(rivals):
        rate = board.rate(tune)
        if rate is not None:
            seeds = {trial.seed for trial in board.outcomes if (trial.tune, trial.rate) == (tune, rate)}
            more = next((seed for seed in course.seeds if seed not in seeds), None)
            trials += [Trial(tune, rate, more)] if more is not None else []
    return trials


def said(tune: Tune) -> str:
    """A k in words, within a sentence."""
    if not isinstance(tune, int):
        return "full" if tune == "all" else tune
    return {0: "the head alone", 1: "the last layer"}.get(tune, f"the last {tune} layers")
