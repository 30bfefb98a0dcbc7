"""Synthetic results of many runs, and comparisons of single ones, for tests of the statistics and reports about them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Cell, SizeAnswer
from frostline.statistics.curve import compare
from frostline.statistics.evidence import Scores
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_group import RunGroup
from frostline.statistics.run_result import RunResult

Quality = Callable[[int | str, int, int | None], float | None]  # from k, seed and train size to the score


def synthetic_runs(
    quality: Quality,
    *,
    ks: Sequence[int | str] = (0, 1, 2, 4, "full"),
    seeds: int = 5,
    sizes: Sequence[int | None] = (None,),
    layers: int = 4,
    model: str = "m",
    task: str = "t",
    rates: Sequence[float | None] = (None,),
) -> list[RunResult]:
    """Runs with the score ``quality(k, seed, size)``; None is a diverged run."""
    return [
        RunResult(
            **{"model": model, "task": task, "train_size": size, "seed": seed, "learning_rate": rate},
            recipe=Recipe(k),
            **{"tuned_layers": k if isinstance(k, int) else layers, "tune_embeddings": k == "full"},
            **{"run": f"{task}-{size}-{k}-{seed}-{rate}", "validation_best": quality(k, seed, size)},
        )
        for size in sizes
        for seed in range(seeds)
        for rate in rates
        for k in ks
    ]


def synthetic_group(
    quality: Quality, *, metric: str = "accuracy", chance: float | None = 0.5, **settings: Any
) -> RunGroup:
    """The group of the :func:`synthetic_runs` with these settings."""
    runs = synthetic_runs(quality, **settings)
    layers, evidence = settings.get("layers", 4), Scores(metric, chance)
    return RunGroup(model=runs[0].model, task=runs[0].task, layers=layers, runs=runs, evidence=evidence)


def noisy(level: dict[int | str, float], spread: float = 0.01, seed: int = 0) -> Quality:
    """The ``level`` of each k plus normal noise. The same k, seed and size always have the same score."""

    def quality(k: int | str, run: int, size: int | None) -> float:
        rng = np.random.default_rng([seed, run, size or 0, *str(k).encode()])
        return float(level[k] + rng.normal(0, spread))

    return quality


RISING: dict[int | str, float] = {0: 0.6, 1: 0.75, 2: 0.85, 4: 0.9, "full": 0.9}


LAYERS = 4


def one(k: str, seed: int, score: float | None, **other: Any) -> RunResult:
    """One run; ``other`` replaces some of its values."""
    layers = LAYERS if k == "full" else int(k)
    made: dict[str, Any] = {
        **{
            "recipe": Recipe(k),
            "tuned_layers": layers,
            "tune_embeddings": k == "full",
            "train_size": 100,
            "seed": seed,
        },
        **{"learning_rate": 1e-4, "status": "done", "run": f"{k}-{seed}", "outcome": "ok", "validation_best": score},
        **{"validation_last": score, "train_last": score, "train_seconds": 1.0 + layers, "cache_seconds": 0.0},
        **{"trainable_parameters": 10 * (layers + 1), "peak_memory_bytes": 1000},
    }
    return RunResult(**made | other)


def answer(runs: Sequence[RunResult], chance: float | None = 0.2, **settings: Any) -> SizeAnswer:
    """The comparison of these runs."""
    return compare(runs, Scores("accuracy", chance), AnalysisSettings(**settings))


def by_name(got: SizeAnswer) -> dict[str, Cell]:
    """The cells of a comparison by the short name of their k."""
    return {cell.recipe.short: cell for cell in got.cells}
