"""Makes synthetic runs and compares them."""

from collections.abc import Sequence
from typing import Any

from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.curve import compare
from frostline.statistics.scores import Scores

LAYERS = 4


def one(k: str, seed: int, score: float | None, **other: Any) -> dict[str, Any]:
    """One run; ``other`` replaces some of its values."""
    layers = LAYERS if k == "full" else int(k)
    made: dict[str, Any] = {
        **{"recipe": k, "tuned_layers": layers, "tune_embeddings": k == "full", "train_size": 100, "seed": seed},
        **{"learning_rate": 1e-4, "status": "done", "run": f"{k}-{seed}", "outcome": "ok", "validation_best": score},
        **{"validation_last": score, "train_last": score, "train_seconds": 1.0 + layers, "cache_seconds": 0.0},
        **{"trainable_parameters": 10 * (layers + 1), "peak_memory_bytes": 1000},
    }
    return made | other


def answer(runs: Sequence[dict[str, Any]], chance: float | None = 0.2, **settings: Any) -> dict[str, Any]:
    """The comparison of these runs."""
    return compare(runs, Scores("accuracy", chance), AnalysisSettings(**settings))


def by_name(got: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The cells of a comparison by their k."""
    return {cell["recipe"]: cell for cell in got["cells"]}
