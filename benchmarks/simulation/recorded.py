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
from frostline.statistics.decision import Lengths, Rule
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult
from frostline.sweeps.results.folder import Folder, read_alternatives

WORKERS, SEEDS = 2, 5


@dataclass
class RecordedRuns:
    """The runs of one task.

    Attributes:
        folder: Of a sweep over recipes, training lengths, learning rates and seeds.
        choosing: The seeds that were run at every learning rate.
        search: The folder of a real search, for the models that train no layer; None: there are none.
    """

    folder: Folder
    choosing: Sequence[int]
    search: Path | None = None
    logits: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    @cached_property
    def rows(self) -> dict[Candidate, RunResult]:
        """The row of results.csv of each run. No recorded way multiplies the learning rates."""
        return {
            Candidate(row.recipe, row.learning_rate or 0.0, int(row.seed)): row
            for row in self.folder.rows
            if row.status == "done"
        }

    @cached_property
    def recipes(self) -> tuple[Recipe, ...]:
        """All recipes, those of the shortest training first."""
        found = {trial.recipe for trial in self.rows}
        return tuple(sorted(found, key=lambda one: (one.epochs or 0.0, one.order)))

    @cached_property
    def full(self) -> Recipe:
        """Full fine-tuning of the shortest training."""
        return next(one for one in self.recipes if one.is_full)

    def searched(self, *, lengths: bool, ways: bool) -> list[Recipe]:
        """The recipes of a search, over all training lengths or the shortest one, and over ways to tune or every k only."""
        shortest = self.recipes[0].epochs
        return [one for one in self.recipes if (lengths or one.epochs == shortest) and (ways or one.is_k)]

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
        """The learning rate of every recipe with most runs; before the fresh seeds are run, the one with the best mean."""
        scores: dict[Recipe, dict[float, list[float]]] = {}
        for trial, row in self.rows.items():
            scores.setdefault(trial.recipe, {}).setdefault(trial.learning_rate, []).append(self.score(row))
        return {
            recipe: max(rates, key=lambda rate: (len(rates[rate]), float(np.mean(rates[rate]))))
            for recipe, rates in scores.items()
        }

    @cached_property
    def fresh(self) -> list[int]:
        """The seeds that were run at the best learning rates only."""
        return sorted({trial.seed for trial in self.rows} - set(self.choosing))

    def scores(self, recipe: Recipe, seeds: Sequence[int]) -> list[float]:
        """The scores of a recipe at its best learning rate, without failed runs, as in an answer."""
        cell = [
            row
            for trial, row in self.rows.items()
            if (trial.recipe, trial.learning_rate) == (recipe, self.best_rates[recipe])
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
        """The mean score of every choice by its name, over these seeds; none if all of its runs failed."""
        known = {one: float(np.mean(scores)) for one in self.recipes if (scores := self.scores(one, seeds))}
        return known | {name: float(self.evidence[name][0]) for name in self.alternatives}

    @cached_property
    def costs(self) -> dict[str, float]:
        """The training time of every choice relative to full fine-tuning of the shortest training."""
        known = {one: seconds / self.seconds[self.full] for one, seconds in self.seconds.items()}
        return known | dict.fromkeys(self.alternatives, 0.0)

    @cached_property
    def seconds(self) -> dict[Recipe, float]:
        """The shortest training time of every recipe; the load of the machine prolongs others."""
        return {
            one: min(row.train_seconds or 0.0 for trial, row in self.rows.items() if trial.recipe == one)
            for one in self.recipes
        }

    def required(self, full: float) -> float:
        """The score that reaches 95 % of the gain of a full fine-tuning with this score."""
        return AnalysisSettings().goal(self.labelled.chance).required_score(full)

    def smallest_mean(self, seeds: Sequence[int], share: float) -> str:
        """The smallest k of the shortest training whose mean reaches a share of full's gain."""
        ks = self.searched(lengths=False, ways=False)
        means = {k: float(np.mean(self.scores(k, seeds))) for k in ks}
        chance = self.labelled.chance
        enough = [k for k in ks if means[k] - chance >= share * (means[ks[-1]] - chance)]
        return enough[0] if enough else ks[-1]  # full itself, if it is below the baseline

    def one_standard_error(self, seeds: Sequence[int]) -> str:
        """The smallest k of the shortest training whose mean is within one standard error of the best mean."""
        scores = {k: self.scores(k, seeds) for k in self.searched(lengths=False, ways=False)}
        best = max(scores, key=lambda k: float(np.mean(scores[k])))
        error = float(np.std(scores[best], ddof=1)) / len(scores[best]) ** 0.5
        least = float(np.mean(scores[best])) - error
        return str(next(k for k in scores if float(np.mean(scores[k])) >= least))

    def facts(self) -> dict[str, Any]:
        """The scores of the fresh seeds and the cost of every recipe."""
        return {
            one: {
                "learning_rate": self.best_rates[one],
                "scores": self.scores(one, self.fresh),
                "cost": self.costs[one],
            }
            for one in self.recipes
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
        seconds: The wall-clock time of all runs.
        probabilities: Of reaching the target, for every recipe with a score.
    """

    named: str
    learned: bool
    seeds: list[int]
    held_out: list[int]
    runs: int
    seconds: float
    probabilities: dict[Recipe, float]


def replayed(runs: RecordedRuns, recipes: Sequence[Recipe], order: Sequence[int]) -> Replay:
    """Replay a search over some recipes with the seeds in this order."""
    seeds = list(order)
    seen = _nothing_seen(runs, recipes, seeds)
    batches = policy(seen)
    try:
        while True:
            batch = next(batches)
            seen.batches.append(batch.candidates)
            for one in batch.candidates:
                workers = WORKERS if len(batch.candidates) > 1 and one.recipe.k != 0 else 1
                seen.known[one] = _observation(runs, one, workers)
    except StopIteration as end:
        stop = end.value
    surrogate, held_out = seen.surrogate(), [seed for seed in runs.fresh if seed not in seeds[:2]]
    trained = sum(one.recipe.k != 0 for one in seen.known)
    if surrogate is None:
        return Replay(seen.space.head_only, not stop.nothing_learned, seeds, held_out, trained, seen.spent, {})
    choices = [choice for choice in surrogate.estimate.choices if choice.name not in runs.alternatives]
    probabilities = {choice.name: surrogate.probability(choice) for choice in choices}
    return Replay(surrogate.best.name, not stop.nothing_learned, seeds, held_out, trained, seen.spent, probabilities)


def _nothing_seen(runs: RecordedRuns, recipes: Sequence[Recipe], seeds: Sequence[int]) -> Observations:
    """No observations, with the settings that a search has by default."""
    rates = {one.learning_rate for one in runs.rows if one.recipe.k != 0}
    head = {one.learning_rate for one in runs.rows if one.recipe.k == 0}
    space = SearchSpace(
        recipes=tuple(recipes),
        lengths=Lengths.of(row for one, row in runs.rows.items() if one.recipe in recipes),
        learning_rates=tuple(sorted(rates)),
        head_learning_rates=tuple(sorted(head)),
        seeds=tuple(seeds[:SEEDS]),
        operations={one: 1e9 * runs.costs[one] for one in recipes},
        layers=runs.folder.identity.layers,
        shares={one.recipe: row.tuned_share or 0.0 for one, row in runs.rows.items() if one.recipe.is_way},
    )
    lows = [runs.evidence.alone(name).low for name in runs.alternatives]
    return Observations(
        space,
        Rule.of(AnalysisSettings(), runs.labelled.chance),
        runs.evidence,
        alternatives=tuple(map(Recipe, runs.alternatives)),
        alternative_score=max((low for low in lows if low is not None), default=-np.inf),
        workers=WORKERS,
    )


def _observation(runs: RecordedRuns, trial: Candidate, workers: int) -> Observation:
    """What became of a recorded run, or of the one with another seed at this learning rate."""
    same = [one for one in runs.rows if (one.recipe, one.learning_rate) == (trial.recipe, trial.learning_rate)]
    row = runs.rows[trial if trial in runs.rows else same[trial.seed % len(same)]]
    score = None if row.outcome == "diverged" else row.validation_best
    last = row.train_last, row.validation_last
    return Observation(score, runs.seconds[trial.recipe], row.run, workers, row.outcome or "ok", *last)
