"""All scores and costs seen so far, and what they say about each k."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frostline.model.tune import Tune
from frostline.search.course import FULLS, Course, Outcome, Trial
from frostline.statistics.evidence import Evidence, Run
from frostline.statistics.goal import seeds_to_decide
from frostline.statistics.inference.pair import FULL, Pair
from frostline.statistics.outcomes import clear_distance, succeeded, with_outcomes


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
