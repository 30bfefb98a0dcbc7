"""Searches that are replayed on recorded runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.search.observations import Candidate, Observation, Observations, SearchSpace, interim_analyses
from frostline.search.policy import policy
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.cells import clear_distance, succeeded, with_outcomes
from frostline.statistics.decision import Rule
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.recipe import FULL, HEAD_ONLY, Recipe
from frostline.statistics.run_result import RunResult
from frostline.sweeps.results.folder import Folder, read_alternatives

WORKERS, SEEDS = 2, 5


@dataclass
class RecordedRuns:
    """The runs of one task.

    Attributes:
        folder: Of a sweep over k, learning rates and seeds.
        choosing: The seeds that were run at every learning rate.
        search: The folder of a real search, for the models that train no layer; None: there are none.
    """

    folder: Folder
    choosing: Sequence[int]
    search: Path | None = None
    logits: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    @cached_property
    def rows(self) -> dict[Candidate, RunResult]:
        """The row of results.csv of each run."""
        return {
            Candidate(
                Recipe("full" if row.tune_embeddings else row.tuned_layers or 0),
                row.learning_rate or 0.0,
                int(row.seed),
            ): row
            for row in self.folder.rows
            if row.status == "done"
        }

    @cached_property
    def tunes(self) -> tuple[Recipe, ...]:
        return tuple(dict.fromkeys(trial.recipe for trial in self.rows))

    @cached_property
    def labelled(self) -> Labelled:
        identity, examples = self.folder.identity, self.folder.split("validation")
        assert examples is not None
        return Labelled(examples.targets, identity.task_type, identity.labels, identity.metric)

    @cached_property
    def alternatives(self) -> dict[str, NDArray[np.float32]]:
        return read_alternatives(self.search) if self.search else {}

    @cached_property
    def evidence(self) -> RunPredictions:
        return RunPredictions(self.labelled, self._logits, interim_analyses(SEEDS))

    def _logits(self, run: str) -> NDArray[np.float32]:
        if run in self.alternatives:
            return self.alternatives[run]
        if run not in self.logits:
            self.logits[run] = self.folder.predictions(run)
        return self.logits[run]

    def score(self, row: RunResult) -> float:
        """The validation score; the baseline if the run diverged."""
        score = row.validation_best
        return self.labelled.chance if score is None or row.outcome == "diverged" else score

    @cached_property
    def best_rates(self) -> dict[Recipe, float]:
        """The learning rate of every k with most runs; before the fresh seeds are run, the one with the best mean."""
        scores: dict[Recipe, dict[float, list[float]]] = {}
        for trial, row in self.rows.items():
            scores.setdefault(trial.recipe, {}).setdefault(trial.learning_rate, []).append(self.score(row))
        return {
            tune: max(rates, key=lambda rate: (len(rates[rate]), float(np.mean(rates[rate]))))
            for tune, rates in scores.items()
        }

    @cached_property
    def fresh(self) -> list[int]:
        """The seeds that were run at the best learning rates only."""
        return sorted({trial.seed for trial in self.rows} - set(self.choosing))

    def scores(self, tune: Recipe, seeds: Sequence[int]) -> list[float]:
        """The scores of a k at its best learning rate, without failed runs, as in an answer."""
        cell = [
            row
            for trial, row in self.rows.items()
            if (trial.recipe, trial.learning_rate) == (tune, self.best_rates[tune])
        ]
        return [
            self.score(row) for row in succeeded([self._with_outcome[row.run] for row in cell]) if row.seed in seeds
        ]

    @cached_property
    def _with_outcome(self) -> dict[str, RunResult]:
        rows = list(self.rows.values())
        known = with_outcomes(rows, self.labelled.chance, clear_distance(rows, self.evidence))
        return {row.run: row for row in known}

    def truth(self, seeds: Sequence[int]) -> dict[str, float]:
        """The mean score of every choice by its name, over these seeds."""
        known = {tune: float(np.mean(self.scores(tune, seeds))) for tune in self.tunes}
        return known | {name: self.evidence.alone(name)["score"] for name in self.alternatives}

    @cached_property
    def costs(self) -> dict[str, float]:
        """The training time of every choice relative to full fine-tuning."""
        known = {tune: seconds / self.seconds[FULL] for tune, seconds in self.seconds.items()}
        return known | dict.fromkeys(self.alternatives, 0.0)

    @cached_property
    def seconds(self) -> dict[Recipe, float]:
        """The shortest training time of every k; the load of the machine prolongs others."""
        return {
            tune: min(row.train_seconds or 0.0 for trial, row in self.rows.items() if trial.recipe == tune)
            for tune in self.tunes
        }

    def required(self, full: float) -> float:
        """The score that reaches 95 % of the gain of a full fine-tuning with this score."""
        return AnalysisSettings().goal(self.labelled.chance).required_score(full)

    def smallest_mean(self, seeds: Sequence[int], share: float) -> str:
        """The smallest k whose mean reaches a share of full's gain."""
        means = {tune: float(np.mean(self.scores(tune, seeds))) for tune in self.tunes}
        chance = self.labelled.chance
        enough = [tune for tune in self.tunes if means[tune] - chance >= share * (means[FULL] - chance)]
        return enough[0] if enough else FULL  # full itself, if it is below the baseline

    def one_standard_error(self, seeds: Sequence[int]) -> str:
        """The smallest k whose mean is within one standard error of the best mean."""
        scores = {tune: self.scores(tune, seeds) for tune in self.tunes}
        best = max(self.tunes, key=lambda tune: float(np.mean(scores[tune])))
        error = float(np.std(scores[best], ddof=1)) / len(scores[best]) ** 0.5
        least = float(np.mean(scores[best])) - error
        return str(next(tune for tune in self.tunes if float(np.mean(scores[tune])) >= least))

    def facts(self) -> dict[str, Any]:
        """The scores of the fresh seeds and the cost of every k."""
        return {
            tune: {
                "learning_rate": self.best_rates[tune],
                "scores": self.scores(tune, self.fresh),
                "cost": self.costs[tune],
            }
            for tune in self.tunes
        }


@dataclass(frozen=True)
class Replay:
    """A search that was replayed.

    Attributes:
        named: What it would recommend.
        learned: Whether something was learned.
        seeds: In the order in which the search used them.
        held_out: The fresh seeds that are not among its first two.
        runs: The number of runs that train a layer.
        probabilities: Of reaching the target, for every k with a score.
    """

    named: str
    learned: bool
    seeds: list[int]
    held_out: list[int]
    runs: int
    probabilities: dict[str, float]


def replayed(runs: RecordedRuns, random: np.random.Generator) -> Replay:
    """Replay a search with the seeds in a random order."""
    seeds = [int(seed) for seed in random.permutation([*runs.choosing, *runs.fresh])]
    seen = _nothing_seen(runs, seeds)
    batches = policy(seen)
    try:
        while True:
            batch = next(batches)
            for one in batch.candidates:
                workers = WORKERS if len(batch.candidates) > 1 and one.recipe != HEAD_ONLY else 1
                seen.known[one] = _observation(runs, one, workers)
    except StopIteration as end:
        stop = end.value
    surrogate, held_out = seen.surrogate(), [seed for seed in runs.fresh if seed not in seeds[:2]]
    trained = sum(one.recipe != HEAD_ONLY for one in seen.known)
    if surrogate is None:
        return Replay(HEAD_ONLY, not stop.nothing_learned, seeds, held_out, trained, {})
    choices = [choice for choice in surrogate.estimate.choices if choice.name not in runs.alternatives]
    probabilities = {choice.name: surrogate.probability(choice) for choice in choices}
    return Replay(surrogate.best.name, not stop.nothing_learned, seeds, held_out, trained, probabilities)


def _nothing_seen(runs: RecordedRuns, seeds: Sequence[int]) -> Observations:
    """No observations, with the settings that a search has by default."""
    rates = {one.learning_rate for one in runs.rows if one.recipe != HEAD_ONLY}
    head = {one.learning_rate for one in runs.rows if one.recipe == HEAD_ONLY}
    space = SearchSpace(
        recipes=(*(tune for tune in runs.tunes if tune.k is not None), FULL),
        learning_rates=tuple(sorted(rates)),
        head_learning_rates=tuple(sorted(head)),
        seeds=tuple(seeds[:SEEDS]),
        operations={tune: 1e9 * runs.costs[tune] for tune in runs.tunes},
    )
    return Observations(
        space,
        Rule.of(AnalysisSettings(), runs.labelled.chance),
        runs.evidence,
        alternatives=tuple(runs.alternatives),
        alternative_score=max((runs.evidence.alone(name)["low"] for name in runs.alternatives), default=-np.inf),
        workers=WORKERS,
    )


def _observation(runs: RecordedRuns, trial: Candidate, workers: int) -> Observation:
    """What became of a recorded run, or of the one with another seed at this learning rate."""
    same = [one for one in runs.rows if (one.recipe, one.learning_rate) == (trial.recipe, trial.learning_rate)]
    row = runs.rows[trial if trial in runs.rows else same[trial.seed % len(same)]]
    score = None if row.outcome == "diverged" else row.validation_best
    return Observation(score, runs.seconds[trial.recipe], row.run, workers, row.outcome or "ok")
