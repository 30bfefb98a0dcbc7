"""A search on synthetic scores: its space, and a loop that scores the candidates of its batches."""

import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from frostline.search.observations import Candidate, Observation, Observations, SearchSpace, interim_analyses
from frostline.search.policy import Batch, Stop, policy
from frostline.statistics.analysis_settings import Goal
from frostline.statistics.decision import Rule
from frostline.statistics.evidence import Scores
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.recipe import Recipe

LAYERS = 6


def by_recipe(values: Mapping[Any, float]) -> dict[Recipe, float]:
    """Values by k."""
    return {Recipe(k): value for k, value in values.items()}


def curve(*values: float) -> dict[Recipe, float]:
    """Values of k = 0 to 6 and of full fine-tuning."""
    return by_recipe(dict(zip((*range(LAYERS + 1), "full"), values, strict=True)))


# Seconds of one run, by k.
SECONDS = curve(0.2, 1.5, 4.0, 6.5, 8.5, 11.0, 13.0, 14.5)
RATES = (5e-5, 1e-4, 2e-4)
# Scores by k.
RISING = curve(0.6, 0.7, 0.76, 0.795, 0.80, 0.80, 0.80, 0.80)
SPACE = SearchSpace(
    recipes=tuple(SECONDS),
    learning_rates=RATES,
    head_learning_rates=(1e-4,),
    seeds=tuple(range(5)),
    operations={k: 1e9 * seconds for k, seconds in SECONDS.items()},
    layers=LAYERS,
)
RULE = Rule(goal=Goal.of_gain(0.95, 0.5))


class Rows:
    """Predictions on 800 rows with a given score.

    With ``same_errors``, all runs use the same random order of the rows, so runs with equal scores have the same errors.
    Otherwise the errors of each run are drawn independently.
    """

    def __init__(
        self, *, same_errors: bool, seconds: Mapping[Recipe, float] = SECONDS, unfitted: Collection[Recipe] = ()
    ) -> None:
        self.targets = np.arange(800) % 2
        self.same_errors, self.logits, self.seconds = same_errors, {}, seconds
        labelled = Labelled(self.targets, "text-classification", ("0", "1"), "accuracy")
        self.evidence = RunPredictions(labelled, self.logits.__getitem__, interim_analyses(5))
        self.unfitted = unfitted

    def observe(self, candidate: Candidate, score: float | None) -> Observation:
        if score is None:
            return Observation(None, 0.0)
        seed = 0 if self.same_errors else zlib.crc32(str(candidate).encode())
        self.logits[str(candidate)] = self.logits_with(score, seed)
        on_train = score if candidate.recipe in self.unfitted else 1.0
        seconds, rounded = self.seconds[candidate.recipe], round(800 * score) / 800
        return Observation(rounded, seconds, str(candidate), train_last=on_train, validation_last=score)

    def logits_with(self, score: float, seed: int = 0) -> Any:
        """Predictions with this score; ``seed`` decides which rows are wrong."""
        right = np.random.default_rng(seed).permutation(800) < round(800 * score)
        return np.eye(2)[np.where(right, self.targets, 1 - self.targets)]


def nothing_seen(rows: Rows | None = None, **more: Any) -> Observations:
    """A search with six layers that has observed nothing. Without ``rows``, its evidence is scores without predictions.

    ``more`` replaces values of the space and of the observations.
    """
    space = {name: more.pop(name) for name in [*more] if name in SearchSpace.__dataclass_fields__}
    space |= {"recipes": tuple(map(Recipe, space["recipes"]))} if "recipes" in space else {}
    rule = more.pop("rule", RULE)
    evidence = Scores("accuracy", 0.5) if rows is None else rows.evidence
    return Observations(replace(SPACE, **space), rule, evidence, **more)


def run_search(seen: Observations, score: Any, rows: Rows | None = None) -> tuple[Stop, list[Batch]]:
    """Follow the policy; candidates have the scores ``score(candidate)``, and None is a failed run.

    Args:
        seen: Nothing so far.
        score: From a candidate to its score.
        rows: Makes predictions with these scores; None: only the scores are known.

    Returns:
        Why it stopped, and all batches.
    """
    batches, trained = policy(seen), []
    try:
        while True:
            batch = next(batches)
            trained.append(batch)
            seen.batches.append(batch.candidates)
            assert not set(batch.candidates) & set(seen.known)  # nothing is trained twice
            for one in batch.candidates:
                value = score(one)
                found = Observation(value, SECONDS[one.recipe]) if rows is None else rows.observe(one, value)
                workers = seen.workers if len(batch.candidates) > 1 and one.recipe.k != 0 else 1
                seen.known[one] = replace(found, workers=workers)
    except StopIteration as end:
        stop: Stop = end.value
        return stop, trained


def best(seen: Observations) -> str:
    """The name of the choice that the search would recommend."""
    surrogate = seen.surrogate()
    assert surrogate is not None
    return surrogate.best.name


def runs_per_k(batches: list[Batch]) -> Counter[int | None]:
    """The number of candidates of each k; None stands for full fine-tuning."""
    return Counter(one.recipe.k for batch in batches for one in batch.candidates)


def exact(scores: Mapping[Any, float]) -> Any:
    """Scores without noise by k: those given at the learning rate 1e-4, and .04 less at any other."""
    known = by_recipe(scores)
    return lambda one: known[one.recipe] - (0.04 if one.recipe.k != 0 and one.learning_rate != 1e-4 else 0.0)
