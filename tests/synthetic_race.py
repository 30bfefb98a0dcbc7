"""A race on synthetic scores: its settings, and a loop that scores the trials of its steps."""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from frostline.search.race import race
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import Outcome, RaceSettings, Step, Trial, Verdict, interim_analyses
from frostline.statistics.decision import Rule
from frostline.statistics.goal import Goal
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.recipe import Recipe
from frostline.statistics.scores import Scores

LAYERS = 6


def curve(*values: float) -> dict[Recipe, float]:
    """Values of k = 0 to 6 and of full fine-tuning."""
    return by_recipe(dict(zip((*range(LAYERS + 1), "full"), values, strict=True)))


def by_recipe(values: Mapping[Any, float]) -> dict[Recipe, float]:
    """Values by k."""
    return {Recipe(k): value for k, value in values.items()}


# Seconds of one run, by k.
SECONDS = curve(0.2, 1.5, 4.0, 6.5, 8.5, 11.0, 13.0, 14.5)
RATES = (5e-5, 1e-4, 2e-4)
# Scores by k.
RISING = curve(0.6, 0.7, 0.76, 0.795, 0.80, 0.80, 0.80, 0.80)


def settings(**more: Any) -> RaceSettings:
    """The settings of a race with six layers; ``more`` replaces some of them."""
    given: dict[str, Any] = {
        **{
            "ks": tuple(range(LAYERS + 1)),
            "reference": "full",
            "learning_rates": RATES,
            "head_learning_rates": (1e-4,),
            "seeds": tuple(range(5)),
            "chance": 0.5,
        },
        **{
            "rule": Rule(goal=Goal.of_gain(0.95, 0.5)),
            "operations": {k: 1e9 * seconds for k, seconds in SECONDS.items()},
            "budget": None,
        },
    }
    given |= more
    given |= {"ks": tuple(map(Recipe, given["ks"])), "reference": Recipe(given["reference"])}
    return RaceSettings(**given)


def board(**more: Any) -> Scoreboard:
    """An empty scoreboard whose evidence is scores without predictions."""
    return Scoreboard(settings(**more), Scores("accuracy", 0.5))


class Rows:
    """Predictions on 800 rows with a given score.

    With ``same_errors``, all runs use the same random order of the rows, so runs with equal scores have the same errors.
    Otherwise the errors of each run are drawn independently.
    """

    def __init__(self, *, same_errors: bool, seeds: int = 5) -> None:
        self.targets = np.arange(800) % 2
        self.same_errors, self.logits = same_errors, {}
        labelled = Labelled(self.targets, "text-classification", ("0", "1"), "accuracy")
        self.evidence = RunPredictions(labelled, self.logits.__getitem__, interim_analyses(seeds))

    def outcome(self, trial: Trial, score: float | None) -> Outcome:
        if score is None:
            return Outcome(None, 0.0)
        seed = 0 if self.same_errors else zlib.crc32(str(trial).encode())
        self.logits[str(trial)] = self.logits_with(score, seed)
        return Outcome(round(800 * score) / 800, SECONDS[trial.recipe], str(trial))

    def logits_with(self, score: float, seed: int = 0) -> Any:
        """Predictions with this score; ``seed`` decides which rows are wrong."""
        right = np.random.default_rng(seed).permutation(800) < round(800 * score)
        return np.eye(2)[np.where(right, self.targets, 1 - self.targets)]


def run_race(board: Scoreboard, score: Any, rows: Rows | None = None) -> tuple[Verdict, list[Step]]:
    """Run a race whose trials have the scores ``score(trial)``; None is a failed run.

    Args:
        board: An empty scoreboard.
        score: From a trial to its score.
        rows: Makes predictions with these scores; None: the board knows the scores only.

    Returns:
        The verdict and all steps.
    """
    steps, trained_steps = race(board), []
    try:
        step = next(steps)
        while True:
            trained_steps.append(step)
            assert not set(step.trials) & set(board.outcomes)  # nothing is trained twice
            for trial in step.trials:
                known = (
                    Outcome(score(trial), SECONDS[trial.recipe]) if rows is None else rows.outcome(trial, score(trial))
                )
                workers = board.settings.workers if len(step.trials) > 1 and trial.recipe != "head only" else 1
                board.outcomes[trial] = replace(known, workers=workers)
            step = next(steps)
    except StopIteration as end:
        verdict: Verdict = end.value
        return verdict, trained_steps


def best(board: Scoreboard) -> str:
    """The name of the choice that the search would recommend."""
    outlook = board.outlook()
    assert outlook is not None
    return outlook.best.name


def runs_per_k(steps: list[Step]) -> dict[int | None, int]:
    """The number of trials of each k; None stands for full fine-tuning."""
    counts: dict[int | None, int] = {}
    for step in steps:
        for trial in step.trials:
            counts[trial.recipe.k] = counts.get(trial.recipe.k, 0) + 1
    return counts


def exact(scores: Mapping[Any, float]) -> Any:
    """Scores without noise by k: those given at the learning rate 1e-4, and .04 less at any other."""
    known = by_recipe(scores)

    def score(trial: Trial) -> float:
        return known[trial.recipe] - (0.04 if trial.recipe != "head only" and trial.learning_rate != 1e-4 else 0.0)

    return score
