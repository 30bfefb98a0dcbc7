"""The choice of the recommended k and of its best run."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.statistics.cells import CellSummary
from frostline.statistics.outcomes import ANSWERS
from frostline.statistics.tune import is_k


def recommend(cells: Sequence[CellSummary], point: Mapping[str, Any], chosen: str | None) -> dict[str, Any] | None:
    """The recommended k with its best run; None if no run has a usable score.

    Args:
        cells: The cells of one train size.
        point: The operating point that the answer is about.
        chosen: The k that a search recommends; None if there is none.
    """
    with_k = [cell for cell in cells if is_k(cell["trainable"])]
    name = chosen or smallest_sufficient(with_k, point) or best_mean(cells)
    return with_best_run(cells, name) if name else None


def smallest_sufficient(cells: Sequence[CellSummary], point: Mapping[str, Any]) -> str | None:
    """The smallest k whose whole interval reaches the target; if there is none, the k with the best mean.

    If every k has one seed, it is the smallest k whose score reaches the target.
    """
    by_score = point["confident"] is None or all(cell["validation"]["n"] < 2 for cell in cells)
    return (point["estimate"] if by_score else point["confident"]) or best_mean(cells)


def best_mean(cells: Sequence[CellSummary]) -> str | None:
    """The k with the best mean. At least one of its runs neither diverged nor is degenerate."""
    scored = [cell for cell in cells if any(run["in_mean"] and run["outcome"] in ANSWERS for run in cell["points"])]
    return max(scored, key=lambda cell: cell["validation"]["mean"])["trainable"] if scored else None


def with_best_run(cells: Sequence[CellSummary], name: str) -> dict[str, Any]:
    """A k with its best run on validation; the run with the first seed if several are equally good."""
    cell = next(cell for cell in cells if cell["trainable"] == name)
    in_mean = [run for run in cell["points"] if run["in_mean"]]
    usable = [run for run in in_mean if run["outcome"] in ANSWERS]
    best = max(usable or in_mean, key=lambda run: run["validation_best"])
    return {
        **{key: cell[key] for key in ("trainable", "tuned_layers", "tune_embeddings", "learning_rate")},
        **{key: best[key] for key in ("run", "seed", "validation_best")},
    }


def cell_of(curve: Mapping[str, Any], name: str | None) -> CellSummary | None:
    """The cell of one k; None if the curve has none."""
    return next((cell for cell in curve["cells"] if cell["trainable"] == name), None)
