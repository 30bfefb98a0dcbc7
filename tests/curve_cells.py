"""Makes the cells of a curve from their mean scores."""

from collections.abc import Sequence
from typing import Any


def cells_of(means: Sequence[float], std: float = 0.01, costs: Sequence[float] | None = None) -> list[dict[str, Any]]:
    """A cell for each k = 0, 1, ...; ``costs`` are training times in seconds."""
    return [
        {
            **{"trainable": str(k), "tuned_layers": k, "tune_embeddings": False},
            **{
                "validation": {"mean": mean, "std": std, "n": 4},
                "comparable": mean,
                "shared_seconds": None,
                "concurrent_runs": 1,
                "seconds": costs[k] if costs else k,
            },
            **{"trainable_parameters": k, "peak_memory_bytes": None},
        }
        for k, mean in enumerate(means)
    ]
