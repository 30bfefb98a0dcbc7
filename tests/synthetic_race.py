"""A race on synthetic scores: its settings, and a loop that scores the trials of its steps."""

import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from frostline.search.race import race
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import Outcome, RaceSettings, Step, Trial, Verdict, interim_analyses
from frostline.statistics.decision import Rule
from frostline.statistics.goal import Goal
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.scores import Scores
from frostline.statistics.tune import Tune

LAYERS = 6
# Seconds of one run, by k.
SECONDS: dict[Tune, float] = {0: 0.2, 1: 1.5, 2: 4.0, 3: 6.5, 4: 8.5, 5: 11.0, 6: 13.0, "all": 14.5}
RATES = (5e-5, 1e-4, 2e-4)
# Scores by k.
RISING: dict[Tune, float] = {0: 0.6, 1: 0.7, 2: 0.76, 3: 0.795, 4: 0.80, 5: 0.80, 6: 0.80, "all": 0.80}


def settings(**more: Any) -> RaceSettings:
    """The settings of a race with six layers; ``more`` replaces some of them."""
    given: dict[str, Any] = {
        **{
            "ks": tuple(range(LAYERS + 1)),
            "reference": "all",
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
    return RaceSettings(**{**given, **more})


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
        return Outcome(round(800 * score) / 800, SECONDS[trial.tune], str(trial))

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
                    Outcome(score(trial), SECONDS[trial.tune]) if rows is None else rows.outcome(trial, score(trial))
                )
                workers = board.settings.workers if len(step.trials) > 1 and trial.tune else 1
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


def runs_per_k(steps: list[Step]) -> dict[Tune, int]:
    """The number of trials of each k."""
    counts: dict[Tune, int] = {}
    for step in steps:
        for trial in step.trials:
            counts[trial.tune] = counts.get(trial.tune, 0) + 1
    return counts


def exact(curve: dict[Tune, float]) -> Any:
    """Scores without noise: those of ``curve`` at the learning rate 1e-4, and .04 less at any other."""
    return lambda trial: curve[trial.tune] - (0.04 if trial.tune != 0 and trial.learning_rate != 1e-4 else 0.0)
