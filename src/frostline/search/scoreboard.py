"""All scores and times seen so far, and what they say about each k."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frostline.model.tune import Tune
from frostline.search.trials import DEFAULT_BUDGET, Outcome, RaceSettings, Trial
from frostline.statistics.evidence import Evidence, Run
from frostline.statistics.goal import seeds_to_decide
from frostline.statistics.inference.pair import FULL, Pair
from frostline.statistics.outcomes import clear_distance, succeeded, with_outcomes


@dataclass
class Scoreboard:
    """The results of a race so far.

    Attributes:
        settings: The settings of the race.
        evidence: Compares finished runs.
        outcomes: The outcome of every finished trial.
        steps: The trials that were trained together, step by step.
    """

    settings: RaceSettings
    evidence: Evidence
    outcomes: dict[Trial, Outcome] = field(default_factory=dict)
    steps: list[tuple[Trial, ...]] = field(default_factory=list)

    @property
    def spent(self) -> float:
        """Wall-clock seconds of all steps so far."""
        return sum(map(self.step_seconds, self.steps))

    def step_seconds(self, step: Sequence[Trial]) -> float:
        """Wall-clock seconds of a step."""
        ended = [self.outcomes[trial] for trial in step if trial in self.outcomes]
        return makespan([one.seconds for one in ended], max((one.workers for one in ended), default=1))

    @property
    def budget(self) -> float:
        """Wall-clock seconds that all steps may take."""
        if self.settings.budget is not None:
            return self.settings.budget
        shares = self._reference_seconds or [self.run_seconds(self.settings.reference) / self.settings.workers]
        return DEFAULT_BUDGET * float(np.median(shares))

    @property
    def budget_is_final(self) -> bool:
        """Whether the budget was given or the reference was timed. Until then it is an estimate from other runs."""
        return self.settings.budget is not None or bool(self._reference_seconds)

    @property
    def _reference_seconds(self) -> list[float]:
        """Seconds of each finished run of the reference, divided by the runs trained at the same time."""
        finished = (one for trial, one in self.outcomes.items() if trial.tune == self.settings.reference)
        return [one.seconds / one.workers for one in finished if one.score is not None]

    def run_seconds(self, tune: Tune) -> float:
        """Predicted seconds of one run of this k: the median of its finished runs. If there are none, the median of the k with
        the nearest number of operations, in proportion to the operations."""
        taken: dict[Tune, list[float]] = {}
        for trial, outcome in self.outcomes.items():
            if outcome.score is not None:
                taken.setdefault(trial.tune, []).append(outcome.seconds)
        if not taken:
            return 0.0
        work = self.settings.operations
        nearest = min(taken, key=lambda k: abs(math.log(max(work[k], 1.0) / max(work[tune], 1.0))))
        return float(np.median(taken[nearest])) * work[tune] / max(work[nearest], 1.0)

    def predicted_seconds(self, trials: Sequence[Trial]) -> float:
        """Predicted wall-clock seconds of those trials that have no outcome, trained as one step."""
        return makespan([self.run_seconds(trial.tune) for trial in self.missing(trials)], self.settings.workers)

    def fits_budget(self, *steps: Sequence[Trial]) -> bool:
        """Whether these steps, one after the other, fit into the rest of the budget."""
        return self.spent + sum(map(self.predicted_seconds, steps)) <= self.budget

    def missing(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        """Those trials that have no outcome yet."""
        return tuple(trial for trial in dict.fromkeys(trials) if trial not in self.outcomes)

    def scores(self, tune: Tune, learning_rate: float) -> dict[int, float]:
        """Scores of the runs that count for the mean, by seed (:func:`frostline.statistics.outcomes.succeeded`)."""
        cell = {"trainable": tune, "learning_rate": learning_rate}
        finished = self._finished()
        known = with_outcomes(finished, self.settings.chance, clear_distance(finished, self.evidence))
        good = succeeded([run for run in known if run.items() >= cell.items()])
        return {run["seed"]: run["validation_best"] for run in good}

    def _finished(self) -> list[Run]:
        """All finished runs, with the columns of runs.csv that the statistics need."""
        return [
            {
                **{"trainable": trial.tune, "learning_rate": trial.learning_rate, "seed": trial.seed, "status": "done"},
                **{"run": outcome.run, "validation_best": outcome.score, "outcome": outcome.outcome},
            }
            for trial, outcome in self.outcomes.items()
        ]

    def seeds_tried(self, tune: Tune, learning_rate: float) -> set[int]:
        """The seeds that were trained, including failed runs."""
        return {trial.seed for trial in self.outcomes if (trial.tune, trial.learning_rate) == (tune, learning_rate)}

    def best_learning_rate(self, tune: Tune) -> float | None:
        """The learning rate with the best mean score over the seeds that all learning rates share; None: k has no score."""
        rates = {trial.learning_rate for trial in self.outcomes if trial.tune == tune}
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
    def pairing_seed(self) -> int:
        """The first seed that the reference has at its best learning rate, so that other k can be paired with it; the first of
        all seeds if the reference has no score."""
        rate = self.best_learning_rate(self.settings.reference)
        has = {} if rate is None else self.scores(self.settings.reference, rate)
        return next((seed for seed in self.settings.seeds if seed in has), self.settings.seeds[0])

    def mean(self, tune: Tune) -> float | None:
        """The mean score at the best learning rate; None if k has no score."""
        rate = self.best_learning_rate(tune)
        return None if rate is None else float(np.mean(list(self.scores(tune, rate).values())))

    def runs(self, tune: Tune) -> list[Run]:
        """The runs at the best learning rate that count for the mean, as ``evidence`` takes them."""
        rate = self.best_learning_rate(tune)
        good = {} if rate is None else self.scores(tune, rate)
        return [
            run
            for run in self._finished()
            if (run["trainable"], run["learning_rate"]) == (tune, rate) and run["seed"] in good
        ]

    def pair(self, tune: Tune) -> Pair | None:
        """This k and the reference; None if one of them has no run."""
        return self.evidence.pair(self.runs(tune), self.runs(self.settings.reference))

    def reaches_goal(self, tune: Tune) -> bool | None:
        """Whether the mean of this k reaches the goal; None if k or the reference has no score."""
        if tune == self.settings.reference or self.needs_no_reference(tune):
            return True
        both = self.pair(tune)
        return None if both is None else self.settings.goal.distance(both) >= 0

    def standing(self) -> list[dict[str, Any]]:
        """For every k with a score: its runs, its mean, and the distance of the mean from the goal with its 95 % interval."""
        found = []
        for k in (*self.settings.ks, self.settings.reference):
            both, mean = self.pair(k), self.mean(k)
            if mean is None:
                continue
            beyond = None if both is None else self.settings.goal.distance(both)
            ends = self._interval(both)
            low, high = (None, None) if ends is None else (end - self.settings.goal.threshold for end in ends)
            runs = len(self.runs(k))
            found.append({"tune": k, "runs": runs, "mean": mean, "beyond": beyond, "low": low, "high": high})
        return found

    def _interval(self, both: Pair | None) -> tuple[float, float] | None:
        """The 95 % confidence interval of what the goal compares; None with fewer than two seeds."""
        return None if both is None or both.runs < 2 else both.interval(self.settings.goal.weights)

    def certain(self, tune: Tune) -> bool | None:
        """Whether this k reaches the goal, with 95 % confidence; None if that is uncertain, as it always is with one seed."""
        if tune == self.settings.reference or self.needs_no_reference(tune):
            return True
        ends = self._interval(self.pair(tune))
        if ends is None:
            return None
        low, high = ends
        return True if low >= self.settings.goal.threshold else False if high < self.settings.goal.threshold else None

    def limited_by_validation_rows(self, tune: Tune) -> bool:
        """Whether more seeds would hardly help: all rows are scored, most of the uncertainty comes from the validation rows,
        and the allowed seeds are probably too few for a decision."""
        both, folds = self.pair(tune), self.settings.folds
        if both is None or both.runs < 2 or (folds and len({run["seed"] % folds for run in self.runs(tune)}) < folds):
            return False
        wanted = seeds_to_decide(both, self.settings.goal)
        weights = self.settings.goal.weights
        by = {"seeds": 0.0, "rows": 0.0}
        for error in both.errors:
            by[error.source] += float(weights @ error.covariance @ weights)
        return (wanted is None or wanted > len(self.settings.seeds)) and by["seeds"] < by["rows"]

    def above_baseline(self, tune: Tune) -> bool:
        """Whether the mean of this k, or one of its runs, is above the baseline with 95 % confidence. One such run is enough to
        show that there is something to learn."""
        return bool(self.evidence.learned(self.runs(tune), sum(trial.tune == tune for trial in self.outcomes)))

    def needs_no_reference(self, tune: Tune) -> bool:
        """Whether this k reaches the goal, with 95 % confidence, even if the reference had the highest possible score."""
        runs = self.runs(tune)
        both = self.evidence.pair(runs, runs) if len(runs) > 1 else None
        return both is not None and both.interval(FULL)[0] > self.settings.goal.required_score(
            self.settings.highest_score
        )

    def smallest_reaching_goal(self) -> Tune:
        """The smallest k whose mean reaches the goal; the reference if there is none."""
        return next((k for k in self.settings.ks if self.reaches_goal(k)), self.settings.reference)

    def smaller_ks(self) -> list[int]:
        """All k below :meth:`smallest_reaching_goal`."""
        smallest = self.smallest_reaching_goal()
        return [k for k in self.settings.ks if not isinstance(smallest, int) or k < smallest]

    def untried_ks(self) -> list[int]:
        """Those of the smaller k that have no trial yet."""
        return [k for k in self.smaller_ks() if all(trial.tune != k for trial in self.outcomes)]

    def failed_ks(self) -> list[int]:
        """Those of the smaller k whose every trial failed, so that nothing is known about them."""
        tried = {trial.tune for trial in self.outcomes}
        return [k for k in self.smaller_ks() if k in tried and self.best_learning_rate(k) is None]

    def candidates(self) -> list[Tune]:
        """Every k that may still be the answer: the smallest one that reaches the goal so far, and smaller uncertain ones."""
        return [*(k for k in self.smaller_ks() if self.certain(k) is None), self.smallest_reaching_goal()]


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Seconds until the last run ends, if the longest runs start first and every free worker takes the next run."""
    busy_until = [0.0] * workers
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + one)
    return max(busy_until)
