"""All scores and times seen so far, and what follows from them for each k."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frostline.search.defaults import default_budget
from frostline.search.outlook import Outlook
from frostline.search.trials import Outcome, RaceSettings, Trial
from frostline.statistics.evidence import Evidence
from frostline.statistics.inference import FULL_MEAN
from frostline.statistics.outcomes import clear_distance, succeeded, with_outcomes
from frostline.statistics.run_result import RunResult
from frostline.statistics.tune import Tune, name_of
from frostline.sweep.work.makespan import makespan


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
    _outlook: tuple[int, Outlook | None] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def spent(self) -> float:
        """Wall-clock seconds of all steps so far."""
        return sum(map(self.step_seconds, self.steps))

    def step_seconds(self, step: Sequence[Trial]) -> float:
        """Wall-clock seconds of a step, whose runs share the workers."""
        ended = [self.outcomes[trial] for trial in step if trial in self.outcomes]
        return makespan([one.seconds for one in ended], max((one.workers for one in ended), default=1))

    @property
    def budget(self) -> float:
        """Wall-clock seconds that all steps may take."""
        if self.settings.budget is not None:
            return self.settings.budget
        shares = self._reference_seconds or [self.run_seconds(self.settings.reference) / self.settings.workers]
        return default_budget(float(np.median(shares)))

    @property
    def budget_is_final(self) -> bool:
        """Whether the budget was given, or a run of the reference was timed. Until then it is an estimate from other runs."""
        return self.settings.budget is not None or bool(self._reference_seconds)

    @property
    def _reference_seconds(self) -> list[float]:
        """Seconds of each finished run of the reference, divided by the number of runs trained at the same time.

        Of a run in a stack, a result has its share of the seconds.
        """
        finished = (one for trial, one in self.outcomes.items() if trial.tune == self.settings.reference)
        return [self.settings.stacked * one.seconds / one.workers for one in finished if one.score is not None]

    def run_seconds(self, tune: Tune) -> float:
        """Predicted seconds of one run of this k: the median of its finished runs.

        If there are none, it is the median of the k with the closest number of operations, scaled by the operations.
        """
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
        counts = Counter(trial.tune for trial in self.in_full_stacks(trials))
        stacked = self.settings.stacked
        stacks = [stacked * self.run_seconds(k) for k, count in counts.items() for _ in range(0, count, stacked)]
        return makespan(stacks, self.settings.workers)

    def fits_budget(self, *steps: Sequence[Trial]) -> bool:
        """Whether these steps, trained one after the other, fit into the rest of the budget."""
        return self.spent + sum(map(self.predicted_seconds, steps)) <= self.budget

    def missing(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        """Those trials that have no outcome yet."""
        return tuple(trial for trial in dict.fromkeys(trials) if trial not in self.outcomes)

    def in_full_stacks(self, trials: Sequence[Trial]) -> tuple[Trial, ...]:
        """Those trials that have no outcome yet, and further seeds of the same k and learning rates until all stacks are full."""
        found = list(self.missing(trials))
        for tune in dict.fromkeys(trial.tune for trial in found):
            own = [trial for trial in found if trial.tune == tune]
            rates = dict.fromkeys(trial.learning_rate for trial in own)
            further = [Trial(tune, rate, seed) for seed in self.settings.seeds for rate in rates]
            further = [trial for trial in self.missing(further) if trial not in own]
            found += further[: -len(own) % self.settings.stacked]
        return tuple(found)

    def scores(self, tune: Tune, learning_rate: float) -> dict[int, float]:
        """Scores of the runs that count for the mean, by seed (:func:`frostline.statistics.outcomes.succeeded`)."""
        finished = self._finished()
        known = with_outcomes(finished, self.settings.chance, clear_distance(finished, self.evidence))
        good = succeeded([run for run in known if (run.recipe, run.learning_rate) == (name_of(tune), learning_rate)])
        return {int(run.seed): run.score for run in good}

    def _finished(self) -> list[RunResult]:
        """All finished runs, with the columns of results.csv that the statistics need."""
        return [
            RunResult(
                recipe=name_of(trial.tune),
                learning_rate=trial.learning_rate,
                seed=trial.seed,
                run=outcome.run,
                validation_best=outcome.score,
                outcome=outcome.outcome,
            )
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

    def first_seed(self, tune: Tune) -> int:
        """The first seed for which a k has a score at its best learning rate; the first of all seeds if it has none."""
        rate = self.best_learning_rate(tune)
        has = {} if rate is None else self.scores(tune, rate)
        return next((seed for seed in self.settings.seeds if seed in has), self.settings.seeds[0])

    def mean(self, tune: Tune) -> float | None:
        """The mean score at the best learning rate; None if k has no score."""
        rate = self.best_learning_rate(tune)
        return None if rate is None else float(np.mean(list(self.scores(tune, rate).values())))

    def runs(self, tune: Tune) -> list[RunResult]:
        """The runs at the best learning rate that count for the mean, as rows for ``evidence``."""
        rate = self.best_learning_rate(tune)
        good = {} if rate is None else self.scores(tune, rate)
        return [
            run
            for run in self._finished()
            if (run.recipe, run.learning_rate) == (name_of(tune), rate) and run.seed in good
        ]

    def outlook(self) -> Outlook | None:
        """What is known about every choice; None before the reference has a score."""
        if self._outlook is None or self._outlook[0] != len(self.outcomes):  # a trial never gets another outcome
            self._outlook = len(self.outcomes), self._new_outlook()
        return self._outlook[1]

    def _new_outlook(self) -> Outlook | None:
        if self.best_learning_rate(self.settings.reference) is None:
            return None
        runs = {tune: self.runs(tune) for tune in self.settings.choices}
        return Outlook.of(runs, self.evidence, self.settings)

    def above_baseline(self, tune: Tune) -> bool:
        """Whether the mean of this k, or one of its runs, is above the baseline with 95 % confidence.

        One such run is enough to show that something can be learned.
        """
        return bool(self.evidence.learned(self.runs(tune), sum(trial.tune == tune for trial in self.outcomes)))

    def is_sufficient(self, tune: Tune) -> bool:
        """Whether this k surely scores so high that no larger k needs to be trained."""
        runs = self.runs(tune)
        both = self.evidence.pair(runs, runs) if len(runs) > 1 else None
        return both is not None and both.interval(FULL_MEAN)[0] > self.settings.sufficient_score

    def results_so_far(self) -> list[dict[str, Any]]:
        """For every k with a score: its runs and its mean, and what the posterior says about it.

        ``expected`` is the expected score, ``probability`` that of reaching the target. Both are None before the reference has a
        score.
        """
        outlook, found = self.outlook(), []
        for tune in self.settings.choices:
            if (mean := self.mean(tune)) is None:
                continue
            expected = sure = None
            if outlook is not None and (choice := outlook.choice(tune)) is not None:
                expected, sure = choice.expected, outlook.probability(choice)
            runs = len(self.runs(tune))
            found.append({"tune": tune, "runs": runs, "mean": mean, "expected": expected, "probability": sure})
        return found
