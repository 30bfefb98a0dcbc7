"""The order in which an answer is looked for: what to train next, on the numbers seen so far, and when to stop. No torch here.

A race is a generator: it hands out steps (some trainings, and why), finds their outcomes on its board when it goes on, and
ends with a verdict. It knows nothing of models or files, and the same outcomes give the same steps: a search that was
stopped goes on by being told again what is known. What is cheap comes first; full is trained as often as the comparison
needs; k is climbed from the shallow end, so not much that is deeper than the answer is trained but full.

What decides is what the answer's intervals rest on (frostline.statistics.intervals): runs paired by seed and row. Whoever looks
at results several times and stops when he likes them is wrong more often than his intervals say, so each look gets its part of
the 5 % (:data:`RUNGS`). Numbers that cost little may say where to begin, never which k is named; only
a probe that no k could beat by much ends the race before it has begun.
"""

import heapq
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frostline.data.wording import capitalized, duration
from frostline.model.tune import Tune
from frostline.statistics.evidence import Evidence, Run
from frostline.statistics.goal import Goal, seeds_to_decide
from frostline.statistics.inference.pair import FULL, Pair
from frostline.statistics.outcomes import clear_distance, succeeded, with_outcomes

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


@dataclass
class Board:
    """What is known so far. ``evidence`` compares runs that have ended."""

    course: Course
    evidence: Evidence
    outcomes: dict[Trial, Outcome] = field(default_factory=dict)
    steps: list[tuple[Trial, ...]] = field(default_factory=list)  # what was trained together

    @property
    def spent(self) -> float:
        """Seconds of all trainings, by the clock."""
        return sum(map(self.took, self.steps))

    def took(self, step: Sequence[Trial]) -> float:
        """Seconds of a step, by the clock."""
        ended = [self.outcomes[trial] for trial in step if trial in self.outcomes]
        return _clock([one.seconds for one in ended], max((one.abreast for one in ended), default=1))

    @property
    def budget(self) -> float:
        """Seconds that all trainings may take."""
        if self.course.budget is not None:
            return self.course.budget
        shares = self._of_reference or [self.price(self.course.reference) / self.course.abreast]
        return FULLS * float(np.median(shares))

    @property
    def budget_stands(self) -> bool:
        """Whether it was given, or the reference was timed; before that it is an estimate from the operations of others."""
        return self.course.budget is not None or bool(self._of_reference)

    @property
    def _of_reference(self) -> list[float]:
        """Seconds that each training of the reference took of the clock, as its share."""
        of_it = (one for trial, one in self.outcomes.items() if trial.tune == self.course.reference)
        return [one.seconds / one.abreast for one in of_it if one.score is not None]

    def price(self, tune: Tune) -> float:
        """Seconds of a training from its start to its end: what those of this k took that did not fail, or else those of the
        nearest in operations, in proportion."""
        taken: dict[Tune, list[float]] = {}
        for trial, outcome in self.outcomes.items():
            if outcome.score is not None:
                taken.setdefault(trial.tune, []).append(outcome.seconds)
        if not taken:
            return 0.0
        work = self.course.operations
        nearest = min(taken, key=lambda k: abs(math.log(max(work[k], 1.0) / max(work[tune], 1.0))))
        return float(np.median(taken[nearest])) * work[tune] / max(work[nearest], 1.0)

    def takes(self, trials: Sequence[Trial]) -> float:
        """Seconds by the clock of those of these that are not done, trained as one step."""
        return _clock([self.price(trial.tune) for trial in self.missing(trials)], self.course.abreast)

    def affords(self, *steps: Sequence[Trial]) -> bool:
        """Whether what is left of the budget will do for these steps, one after the other."""
        return self.spent + sum(map(self.takes, steps)) <= self.budget

    def missing(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        return tuple(trial for trial in dict.fromkeys(trials) if trial not in self.outcomes)

    def scores(self, tune: Tune, rate: float) -> dict[int, float]:
        """Of the runs that the answer's mean is of, by seed (:func:`frostline.statistics.outcomes.succeeded`)."""
        cell = {"trainable": tune, "learning_rate": rate}
        ended = self._ended()
        known = with_outcomes(ended, self.course.chance, clear_distance(ended, self.evidence))
        good = succeeded([run for run in known if run.items() >= cell.items()])
        return {run["seed"]: run["validation_best"] for run in good}

    def _ended(self) -> list[Run]:
        """What has ended, as the table of runs has it."""
        return [
            {
                **{"trainable": trial.tune, "learning_rate": trial.rate, "seed": trial.seed, "status": "done"},
                **{"run": outcome.run, "validation_best": outcome.score, "outcome": outcome.outcome},
            }
            for trial, outcome in self.outcomes.items()
        ]

    def tried(self, tune: Tune, rate: float) -> set[int]:
        """The seeds that were trained, failed or not."""
        return {trial.seed for trial in self.outcomes if (trial.tune, trial.rate) == (tune, rate)}

    def rate(self, tune: Tune) -> float | None:
        """The best of those tried, by the mean of the seeds that all of them have; None: nothing is known of this k."""
        rates = {trial.rate for trial in self.outcomes if trial.tune == tune}
        known = {rate: scores for rate in sorted(rates) if (scores := self.scores(tune, rate))}
        if not known:
            return None
        shared = set.intersection(*(set(scores) for scores in known.values()))
        means = {
            rate: float(np.mean([score for seed, score in scores.items() if seed in shared or not shared]))
            for rate, scores in known.items()
        }
        return max(means, key=lambda rate: means[rate])

    @property
    def seed(self) -> int:
        """The first that the reference has at its best rate, so that others can be paired with it; the first of all, where
        nothing is known of the reference."""
        rate = self.rate(self.course.reference)
        has = {} if rate is None else self.scores(self.course.reference, rate)
        return next((seed for seed in self.course.seeds if seed in has), self.course.seeds[0])

    def mean(self, tune: Tune) -> float | None:
        """At its best rate."""
        rate = self.rate(tune)
        return None if rate is None else float(np.mean(list(self.scores(tune, rate).values())))

    def runs(self, tune: Tune) -> list[Run]:
        """Those at its best rate that its mean is of, as the evidence takes them."""
        rate = self.rate(tune)
        good = {} if rate is None else self.scores(tune, rate)
        return [
            run
            for run in self._ended()
            if (run["trainable"], run["learning_rate"]) == (tune, rate) and run["seed"] in good
        ]

    def pair(self, tune: Tune) -> Pair | None:
        """This k beside the reference; None where one of them has no run."""
        return self.evidence.pair(self.runs(tune), self.runs(self.course.reference))

    def enough(self, tune: Tune) -> bool | None:
        """Whether it is by its mean; None where nothing is known of it, or nothing of the reference."""
        if tune == self.course.reference or self.enough_by_itself(tune):
            return True
        both = self.pair(tune)
        return None if both is None else self.course.goal.distance(both) >= 0

    def standing(self) -> list[dict[str, Any]]:
        """What every k that was trained stands at: its mean, and how far that is beyond what is enough, with an interval where
        there is one."""
        found = []
        for k in (*self.course.ks, self.course.reference):
            both, mean = self.pair(k), self.mean(k)
            if mean is None:
                continue
            beyond = None if both is None else self.course.goal.distance(both)
            ends = self._interval(both)
            low, high = (None, None) if ends is None else (end - self.course.goal.threshold for end in ends)
            runs = len(self.runs(k))
            found.append({"tune": k, "runs": runs, "mean": mean, "beyond": beyond, "low": low, "high": high})
        return found

    def _interval(self, both: Pair | None) -> tuple[float, float] | None:
        """Of what a goal compares, which one seed has not."""
        return None if both is None or both.runs < 2 else both.interval(self.course.goal.weights)

    def surely(self, tune: Tune) -> bool | None:
        """What :meth:`enough` says, where its interval is sure, which one seed never is; None where it is not."""
        if tune == self.course.reference or self.enough_by_itself(tune):
            return True
        ends = self._interval(self.pair(tune))
        if ends is None:
            return None
        low, high = ends
        return True if low >= self.course.goal.threshold else False if high < self.course.goal.threshold else None

    def rows_decide(self, tune: Tune) -> bool:
        """Whether more seeds would hardly make it surer: those that are allowed would likely not tell, most of the doubt is
        from the rows, and all rows are scored."""
        both, folds = self.pair(tune), self.course.folds
        if both is None or both.runs < 2 or (folds and len({run["seed"] % folds for run in self.runs(tune)}) < folds):
            return False
        wanted = seeds_to_decide(both, self.course.goal)
        weights = self.course.goal.weights
        by = {"seeds": 0.0, "rows": 0.0}
        for error in both.errors:
            by[error.source] += float(weights @ error.covariance @ weights)
        return (wanted is None or wanted > len(self.course.seeds)) and by["seeds"] < by["rows"]

    def learned(self, tune: Tune) -> bool:
        """Whether its mean lies surely above guessing, or one of its runs does, as far as the rows go: then there is something
        to learn, whatever other seeds reach."""
        return bool(self.evidence.learned(self.runs(tune), sum(trial.tune == tune for trial in self.outcomes)))

    def enough_by_itself(self, tune: Tune) -> bool:
        """Whether no reference, however good, could be so much better that it is not enough; one seed cannot tell."""
        runs = self.runs(tune)
        both = self.evidence.pair(runs, runs) if len(runs) > 1 else None
        return both is not None and both.interval(FULL)[0] > self.course.goal.required_score(self.course.best)

    def found(self) -> Tune:
        """The smallest k that is enough by its mean, or the reference."""
        return next((k for k in self.course.ks if self.enough(k)), self.course.reference)

    def smaller(self) -> list[int]:
        """The k below that one."""
        found = self.found()
        return [k for k in self.course.ks if not isinstance(found, int) or k < found]

    def untried(self) -> list[int]:
        """Of those, the k that nothing was trained of."""
        return [k for k in self.smaller() if all(trial.tune != k for trial in self.outcomes)]

    def failed(self) -> list[int]:
        """Of those, the k of which all that was trained has failed: nothing is known of them."""
        tried = {trial.tune for trial in self.outcomes}
        return [k for k in self.smaller() if k in tried and self.rate(k) is None]

    def candidates(self) -> list[Tune]:
        """What may still be the answer: the one that is enough so far, and what is smaller and not surely too little."""
        return [*(k for k in self.smaller() if self.surely(k) is None), self.found()]


def _clock(seconds: Sequence[float], abreast: int) -> float:
    """When the last of these trainings ends, if the longest begins first and each begins as soon as one of so many places is
    free."""
    places = [0.0] * abreast
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(places, places[0] + one)
    return max(places)


Steps = Generator[Step, None, Verdict]


def race(board: Board) -> Steps:
    """Look for the smallest k that is enough; whoever carries a step out writes its outcomes on the ``board``."""
    course = board.course
    rate, reference, seed = course.middle(), course.reference, course.seeds[0]

    def run(trials: Sequence[Trial], why: str) -> Generator[Step, None, None]:
        if wanted := board.missing(trials):
            company = _company(board, wanted)
            board.steps.append((*wanted, *company))
            yield Step(board.steps[-1], f"{why} No core rests meanwhile: {_listed(company)}." if company else why)

    def lower_rates(tune: Tune) -> Generator[Step, None, None]:
        while (lower := _lower(board, tune)) is not None and _falls(board, tune):
            if not board.affords(trials := [Trial(tune, lower, seed)]):
                return
            yield from run(trials, f"Does a lower rate do {said(tune)} good?")

    yield from run(course.trials(0, rate, course.seeds[:2]), "The head alone costs next to nothing.")
    if board.enough_by_itself(0):
        return Verdict(0, "The head alone is so good that no other k can be much better.")
    if course.frozen > (line := course.goal.required_score(course.best)):
        if (reached := board.mean(0)) is not None and reached > line:
            yield from run(
                course.trials(0, rate, course.seeds), "A head that is as good as a probe is more use: more seeds."
            )
            if board.enough_by_itself(0):
                return Verdict(0, "The head alone is so good that no other k can be much better.")
        return Verdict(None, "A probe on frozen features is so good that no k can be much better.", by_probe=True)

    asked = course.asked
    highest = [Trial(asked, one, seed) for one in course.rates[-2:]]
    yield from run(highest, f"Which learning rate: asked of {said(asked)}, where it is cheap.")
    yield from lower_rates(asked)
    rate = board.rate(asked) or rate
    often = rate if asked == reference else min(rate, course.middle())
    two = [Trial(reference, often, one) for one in course.seeds[:2]]
    if course.budget is not None and board.rate(reference) is None and not board.affords(two[:1]):
        return Verdict(None, _too_dear(board, two[0]), alone=True)
    why = f"What {said(reference)} reaches" + ("." if often == rate else ", at a lower rate: it often wants less.")
    yield from run(two if board.affords(two) else two[:1], why)
    if board.rate(reference) is None:
        yield from lower_rates(reference)
    if board.rate(reference) is None:
        return Verdict(None, failed_throughout(reference), alone=True)
    first_of_all: list[Tune] = [reference, asked, 0]
    likely = board.rate(asked)
    for one in sorted(course.rates, key=lambda one: (one != likely, -one)):
        if any(map(board.learned, first_of_all)):
            break
        both = [Trial(reference, one, other) for other in course.seeds[:2]]
        if trials := next((some for some in (both, both[:1]) if board.affords(some)), None):
            yield from run(trials, "Nothing is surely above guessing yet: another learning rate.")
    if not any(map(board.learned, first_of_all)):
        tried = {trial.rate for trial in board.outcomes if trial.tune == reference}
        left = ", ".join(f"{one:g}" for one in course.rates if one not in tried)
        untried = f" {said(reference, begins=True)} at {left} could not be tried." if left else ""
        return Verdict(None, f"{NOTHING_LEARNED}{untried}", unlearned=True)

    while not isinstance(following := _next(board, rate), Verdict):
        yield from run(following.trials, following.why)
    return following


def _next(board: Board, rate: float) -> Step | Verdict:
    """What is trained next, once the reference is known; the others at this ``rate``."""
    course, reference = board.course, board.course.reference
    found = board.found()
    other = _other_rate(board)
    if unknown := board.untried():
        trials = [Trial(k, rate, board.seed) for k in unknown[:2]]
        if not (board.affords(trials) and (_hardly(board, unknown[0]) or _is_cheap(course, trials[-1].tune))):
            trials = trials[:1]
        why = f"Climbing: is {' enough, or '.join(said(trial.tune) for trial in trials)} enough?"
    elif again := [Trial(k, lower, board.seed) for k in board.failed() if (lower := _lower(board, k)) is not None]:
        trials, why = again[:1], f"{said(again[0].tune, begins=True)} failed: does it with a lower rate?"
    elif other is not None and board.affords(asking := [Trial(reference, other, one) for one in course.seeds[:2]]):
        trials, why = asking, f"Does another rate do {said(reference)} good?"
    else:
        doubtful = [k for k in board.candidates() if board.surely(k) is None and board.rate(k) is not None]
        if not doubtful:
            failed = board.failed()
            but = f", but for {' and '.join(map(said, failed))}, of which every run failed" if failed else ""
            return Verdict(found, f"{said(found, begins=True)} is surely enough, and what is smaller surely not{but}.")
        if all(map(board.rows_decide, doubtful)):
            return Verdict(
                found, "The doubt that is left is that of the validation rows: more seeds would hardly help."
            )
        trials = _more_seeds(board, doubtful)
        if not trials:
            count = len(course.seeds)
            of_them = (
                f"All {count} seeds of what is not sure are" if count > 1 else "The one seed of what is not sure is"
            )
            return Verdict(found, f"{of_them} trained.")
        if not board.affords(trials) and (fewer := _more_seeds(board, doubtful[-1:])):
            doubtful, trials = doubtful[-1:], fewer
        why = f"It is not sure of {' and '.join(map(said, doubtful))}: more seeds, and of {said(reference)}."
    second = _second_seed(board, found)
    left = [trial for trial in second if trial not in (*trials, *_company(board, board.missing(trials)))]
    if left and board.affords(second) and not board.affords(trials, left):
        of = " and ".join(said(k) for k in dict.fromkeys(trial.tune for trial in second))
        trials, why = second, f"Before the budget ends, a second seed of {of}: of one nothing is known for sure."
    if not board.affords(trials):
        return Verdict(found, f"What is left of the budget does not allow the next step.{_untried(board)}")
    return Step(tuple(trials), why)


def _company(board: Board, trials: Sequence[Trial]) -> list[Trial]:
    """What is trained beside these while cores would rest: of the next k, and second seeds of those that are known, whatever
    makes it take no longer."""
    course, company = board.course, list[Trial]()
    if not board.takes(trials):  # nobody knows how long
        return []
    rate = board.rate(course.asked) or course.middle()
    next_ones = [Trial(k, rate, board.seed) for k in board.untried()]
    for one in [*next_ones, *_second_seed(board, board.found())]:
        more = [*trials, *company, one]
        if one not in trials and board.takes(more) <= board.takes(more[:-1]):
            company.append(one)
    return company


def _listed(trials: Sequence[Trial]) -> str:
    """In words, each k once."""
    *names, last = dict.fromkeys(said(trial.tune) for trial in trials)
    return f"{', '.join(names)} and {last}" if names else last


def _too_dear(board: Board, trial: Trial) -> str:
    """That the reference cannot be trained within the budget, in words."""
    needed, left = (duration(one) for one in (board.price(trial.tune), max(0.0, board.budget - board.spent)))
    return (
        f"One training of {said(trial.tune)} takes about {needed}, and {left} of the budget are left: without it "
        "there is nothing to compare with. Give more (--budget), or let fewer layers stand for full (--max-k)."
    )


def _untried(board: Board) -> str:
    """What the budget left out, in words."""
    untried = board.untried()
    if not untried:
        return ""
    between = f" to {said(untried[-1])}" if len(untried) > 1 else ""
    return f" {said(untried[0], begins=True)}{between} could not be tried."


def _second_seed(board: Board, found: Tune) -> list[Trial]:
    """Of the k that would be named and of the reference, where they have but one."""
    rates = {k: board.rate(k) for k in (found, board.course.reference)}
    seeds = board.course.seeds[:2]
    return [
        trial
        for k, rate in rates.items()
        if rate is not None
        for trial in board.missing(board.course.trials(k, rate, seeds))
    ]


def _lower(board: Board, tune: Tune) -> float | None:
    """A lower rate for a k, as long as the lowest that was tried is its best; for the head alone all were tried."""
    if tune == 0:
        return None
    lowest = min((trial.rate for trial in board.outcomes if trial.tune == tune), default=None)
    if lowest is None or board.rate(tune) not in (lowest, None):
        return None
    return board.course.below(lowest)


def _falls(board: Board, tune: Tune) -> bool:
    """Whether a k does clearly worse at the second of the rates that were tried than at the lowest, or one of them failed."""
    lowest, *higher = sorted({trial.rate for trial in board.outcomes if trial.tune == tune})
    known = [list(board.scores(tune, rate).values()) for rate in (lowest, *higher[:1])]
    if len(known) < 2 or not all(known):
        return True
    low, high = map(float, map(np.mean, known))
    return low - high > CLEARLY * abs(low - board.course.chance)


def _other_rate(board: Board) -> float | None:
    """A rate that the reference may want more than its best: that of the k that was asked, where none so low has failed, and
    lower ones than were tried, as long as the lowest is its best."""
    course = board.course
    tried = {trial.rate for trial in board.outcomes if trial.tune == course.reference}
    failed = [rate for rate in tried if not board.scores(course.reference, rate)]
    asked = board.rate(course.asked)
    if asked is not None and asked not in tried and asked < min(failed, default=math.inf):
        return asked
    return _lower(board, course.reference)


def _hardly(board: Board, k: int) -> bool:
    """Whether a deeper k is not enough, so that the next one may be trained beside this one."""
    return any(board.enough(deeper) is False for deeper in board.course.ks if deeper > k)


def _is_cheap(course: Course, tune: Tune) -> bool:
    """Whether it is shallower than what the rate is asked of."""
    return isinstance(tune, int) and isinstance(course.asked, int) and tune < course.asked


def _more_seeds(board: Board, doubtful: Sequence[Tune]) -> list[Trial]:
    """So many seeds of these and of the reference as the next look is at."""
    course = board.course
    rates = {k: board.rate(k) for k in (*doubtful, course.reference)}
    known = {k: (rate, len(board.tried(k, rate))) for k, rate in rates.items() if rate is not None}
    fewest = min(count for _, count in known.values())
    rung = next((n for n in rungs(len(course.seeds)) if n > fewest), 0)
    return [
        trial for k, (rate, _) in known.items() for trial in board.missing(course.trials(k, rate, course.seeds[:rung]))
    ]


def failed_throughout(reference: Tune) -> str:
    """That there is nothing to compare with, in words."""
    return f"{said(reference, begins=True)} failed at every rate that was tried: there is nothing to compare with."


def said(tune: Tune, *, begins: bool = False) -> str:
    """A k in words, within a sentence or at its beginning."""
    words = "full" if tune == "all" else str(tune)
    if isinstance(tune, int):
        words = {0: "the head alone", 1: "the last layer"}.get(tune, f"the last {tune} layers")
    return capitalized(words) if begins else words
