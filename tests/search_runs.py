"""What the tests of a search share."""

from pathlib import Path
from typing import Any

from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.search_record import SearchRecord


def runs_in(out: Path) -> dict[tuple[Any, ...], Any]:
    """The rows of results.csv by k, learning rate and seed."""
    return {(row.recipe, row.learning_rate, row.seed): row for row in Folder(out).rows}


def record_of(**more: Any) -> SearchRecord:
    """The record of a search that has just started; ``more`` replaces some values."""
    empty: dict[str, Any] = {
        "train_size": 20,
        "why": None,
        "over": False,
        "pending_reference": "full",
        "interim_analyses": 3,
        "budget_seconds": None,
        "spent_seconds": 0.0,
        "operations": {"head only": 1.0, "full": 2.0},
        "num_train_epochs": [3.0],
        "learning_rates": [1e-4],
        "head_learning_rates": [1e-3],
        "selected_learning_rates": {},
        "results_so_far": [],
        "skipped": ["head only", "full"],
        "failed_reference": None,
        "enough_budget": None,
        "requested": [],
        "abandoned": [],
        "known": [],
        "probes": None,
        "estimated_k": None,
        "steps": [],
    }
    return SearchRecord(**{**empty, **more})
