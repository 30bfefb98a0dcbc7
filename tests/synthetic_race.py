"""A race on synthetic scores: its settings, and a loop that carries its steps out."""

import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from frostline.model.tune import Tune
from frostline.search.race import race
from frostline.search.scoreboard import Scoreboard
from frostline.search.trials import Outcome, RaceSettings, Step, Trial, Verdict, interim_analyses
from frostline.statistics.goal import Goal
from frostline.statistics.predictions import Labelled, Predictions
from frostline.statistics.scores import Scores

LAYERS = 6


PRICE: dict[Tune, float] = {0: 0.2, 1: 1.5, 2: 4.0, 3: 6.5, 4: 8.5, 5: 11.0, 6: 13.0, "all": 14.5}


RATES = (5e-5, 1e-4, 2e-4)


RISING: dict[Tune, float] = {0: 0.6, 1: 0.7, 2: 0.76, 3: 0.795, 4: 0.80, 5: 0.80, 6: 0.80, "all": 0.80}


def settings(**more: Any) -> RaceSettings:
    given: dict[str, Any] = {
        **{
            "ks": tuple(range(LAYERS + 1)),
            "reference": "all",
            "learning_rates": RATES,
            "head_learning_rates": (1e-4,),
            "seeds": tuple(range(5)),
            "chance": 0.5,
            "highest_score": 1.0,
        },
        **{
            "goal": Goal.of_gain(0.95, 0.5),
            "operations": {k: 1e9 * price for k, price in PRICE.items()},
            "budget": None,
        },
    }
    return RaceSettings(**{**given, **more})


def board(**more: Any) -> Scoreboard:
    """That knows scores alone."""
    return Scoreboard(settings(**more), Scores("accuracy", 0.5))


class Rows:
    """Predictions of 800 rows that have the score asked for; which rows are wrong is drawn anew for each run, or is the
    same for all as far as their scores are."""

    def __init__(self, *, alike: bool, seeds: int = 5) -> None:
        self.targets = np.arange(800) % 2
        self.alike, self.logits = alike, {}
        labelled = Labelled(self.targets, "single_label_classification", ("0", "1"), "accuracy")
        self.evidence = Predictions(labelled, self.logits.__getitem__, interim_analyses(seeds))

    def outcome(self, trial: Trial, score: float | None) -> Outcome:
        if score is None:
            return Outcome(None, 0.0)
        draw = np.random.default_rng(0 if self.alike else zlib.crc32(str(trial).encode()))
        right = draw.permutation(800) < round(800 * score)
        self.logits[str(trial)] = np.eye(2)[np.where(right, self.targets, 1 - self.targets)]
        return Outcome(float(right.mean()), PRICE[trial.tune], str(trial))


def carried_out(board: Scoreboard, score: Any, rows: Rows | None = None) -> tuple[Verdict, list[Step]]:
    """The race on scores by trial, of these ``rows`` if there are any; None is a run that failed."""
    steps, taken = race(board), []
    try:
        step = next(steps)
        while True:
            taken.append(step)
            assert not set(step.trials) & set(board.outcomes)  # nothing is trained twice
            for trial in step.trials:
                known = Outcome(score(trial), PRICE[trial.tune]) if rows is None else rows.outcome(trial, score(trial))
                workers = board.settings.workers if len(step.trials) > 1 and trial.tune else 1
                board.outcomes[trial] = replace(known, workers=workers)
            step = next(steps)
    except StopIteration as end:
        verdict: Verdict = end.value
        return verdict, taken


def trained(steps: list[Step]) -> dict[Tune, int]:
    counts: dict[Tune, int] = {}
    for step in steps:
        for trial in step.trials:
            counts[trial.tune] = counts.get(trial.tune, 0) + 1
    return counts


def exact(curve: dict[Tune, float]) -> Any:
    return lambda trial: curve[trial.tune] - (0.04 if trial.tune != 0 and trial.learning_rate != 1e-4 else 0.0)
