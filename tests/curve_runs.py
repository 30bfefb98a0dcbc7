"""Makes synthetic runs and compares them."""

from collections.abc import Sequence
from typing import Any

from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Cell, SizeAnswer
from frostline.statistics.curve import compare
from frostline.statistics.evidence import Scores
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import RunResult

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
