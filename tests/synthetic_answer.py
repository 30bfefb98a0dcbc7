"""Makes answers from synthetic runs of a given accuracy."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from frostline.report.answer.make_answer import make_answer
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Answer, Cell, OperatingPoint, SizeAnswer
from frostline.statistics.predictions import Labelled, RunPredictions
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_group import NO_SEARCH, RunGroup, SearchOutcome
from frostline.statistics.run_result import RunResult

ROWS, LAYERS = 1000, 4
TARGETS = np.arange(ROWS) % 2
VALIDATION = Labelled(TARGETS, "text-classification", ("no", "yes"), "accuracy")
KS: tuple[int | str, ...] = (0, 1, 2, "full")
Made = tuple[list[RunResult], dict[str, np.ndarray]]


def logits_with(accuracy: float, rng: np.random.Generator) -> np.ndarray:
    """Logits that classify exactly this share of the examples correctly."""
    wrong = rng.permutation(ROWS) >= round(accuracy * ROWS)
    return np.eye(2, dtype=np.float32)[np.where(wrong, 1 - TARGETS, TARGETS)]


def make_runs(
    quality: Callable[[int | str, int, float, int], float],
    *,
    ks: tuple[int | str, ...] = KS,
    seeds: int = 5,
    rates: tuple[float, ...] = (1e-4,),
    sizes: tuple[int, ...] = (1000,),
    outcome: Callable[[int | str, int, float], str] = lambda k, seed, rate: "ok",
) -> Made:
    """Runs whose accuracy is ``quality(k, seed, rate, size)``; ``outcome`` may also be failed or pending."""
    rng, rows, logits = np.random.default_rng(1), [], {}  # not the seed of the groups of a jackknife
    for size in sizes:
        for seed in range(seeds):
            for rate in rates:
                for k in ks:
                    name, how = f"{k}-{seed}-{rate}-{size}", outcome(k, seed, rate)
                    done = how in ("ok", "degenerate", "diverged")
                    score = quality(k, seed, rate, size) if how in ("ok", "degenerate") else None
                    if score is not None:
                        logits[name] = logits_with(score, rng)
                        score = float((logits[name].argmax(1) == TARGETS).mean())
                    number = {"full": LAYERS, "named": 2}.get(k, k if isinstance(k, int) else 2)
                    rows.append(
                        RunResult(
                            **{"model": "m", "task": "t", "train_size": size, "seed": seed, "learning_rate": rate},
                            recipe=Recipe(k),
                            **{"tuned_layers": number, "tune_embeddings": k == "full", "tuned_share": number / LAYERS},
                            **{"status": "done" if done else how, "outcome": how if done else None, "run": name},
                            metric="accuracy",
                            **{"validation_best": score, "validation_last": score, "test": score},
                            train_last=None if score is None else (1 + score) / 2,
                            trainable_parameters=10 * (int(number) + 1) if done else None,
                            **{"train_seconds": 1.0 + int(number) if done else None, "peak_memory_bytes": 1000},
                            cache_seconds=(0.0 if k == "full" else 0.5) if done else None,
                        )
                    )
    return rows, logits


def answer_of(
    made: Made,
    *,
    validation: Labelled = VALIDATION,
    layers: int = LAYERS,
    search: SearchOutcome = NO_SEARCH,
    **settings: Any,
) -> Answer:
    """The answer for these runs. Asserts that it is plain JSON."""
    runs, logits = made
    evidence = RunPredictions(validation, logits.__getitem__, search.interim_analyses)
    group = RunGroup(model="m", task="t", layers=layers, runs=runs, evidence=evidence, search=search)
    answer = make_answer(group, AnalysisSettings(**settings))
    json.dumps(answer.to_json(), allow_nan=False)
    return answer


def point(size: SizeAnswer, target: float = 0.95, corrected: bool = True) -> OperatingPoint:
    """The operating point of a target."""
    return next(p for p in size.operating_points if (p.target, p.corrected) == (target, corrected))


def cells(size: SizeAnswer) -> dict[str, Cell]:
    """The cells of a train size by their k."""
    return {cell.recipe: cell for cell in size.cells}


def clear(k: int | str, seed: int, rate: float, size: int) -> float:
    """A quality at which k = 2 clearly reaches full, and smaller k do not."""
    return {0: 0.6, 1: 0.75, 2: 0.9, "full": 0.9}[k]


def with_named(k: int | str, seed: int, rate: float, size: int) -> float:
    """The same, with named parts."""
    return 0.89 if k == "named" else clear(k, seed, rate, size)
