"""The recommended k with its best run."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.statistics.cells import CellSummary
from frostline.statistics.outcomes import ANSWERS


def recommend(curve: Mapping[str, Any], point: Mapping[str, Any], *, by_mean: bool) -> dict[str, Any] | None:
    """The recommended k or way with its best run; None if no run has a usable score, or if no run trained what is recommended.

    Args:
        curve: Of one train size, with its decision.
        point: The operating point of the analysis.
        by_mean: Whether the smallest k whose mean reaches the target is recommended, whatever the decision.
    """
    decision = curve["decision"]
    decided = (by_mean and point["estimate"]) or (decision and decision["choice"])
    name = decided or best_mean(curve["cells"])
    return with_best_run(curve["cells"], name) if name and cell_of(curve, name) else None


def best_mean(cells: Sequence[CellSummary]) -> str | None:
    """The k with the best mean. At least one of its runs neither diverged nor is degenerate."""
    scored = [cell for cell in cells if any(run["in_mean"] and run["outcome"] in ANSWERS for run in cell["points"])]
    return max(scored, key=lambda cell: cell["comparable"])["recipe"] if scored else None


def with_best_run(cells: Sequence[CellSummary], name: str) -> dict[str, Any]:
    """A k with its best run on validation; the run with the first seed if several are equally good."""
    cell = next(cell for cell in cells if cell["recipe"] == name)
    in_mean = [run for run in cell["points"] if run["in_mean"]]
    usable = [run for run in in_mean if run["outcome"] in ANSWERS]
    best = max(usable or in_mean, key=lambda run: run["validation_best"])
    return {
        **{key: cell[key] for key in ("recipe", "tuned_layers", "tune_embeddings", "learning_rate")},
        **{key: best[key] for key in ("run", "seed", "validation_best")},
    }


def cell_of(curve: Mapping[str, Any], name: str | None) -> CellSummary | None:
    """The cell of one k; None if the curve has none."""
    return next((cell for cell in curve["cells"] if cell["recipe"] == name), None)
