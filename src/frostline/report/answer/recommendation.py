"""The choice of the recommended k and of its best run."""

from collections.abc import Mapping, Sequence
from typing import Any

from frostline.statistics.cells import NAMED
from frostline.statistics.outcomes import ANSWERS

Cell = Mapping[str, Any]


def recommend(cells: Sequence[Cell], point: Mapping[str, Any], chosen: str | None) -> dict[str, Any] | None:
    """The recommended k with its best run; None if no run has a usable score.

    Args:
        cells: The cells of one train size.
        point: The operating point that the answer is about.
        chosen: The k that a search ended with, if there was one.
    """
    depths = [cell for cell in cells if cell["trainable"] != NAMED]
    name = chosen or smallest_sufficient(depths, point) or best_mean(cells)
    return with_best_run(cells, name) if name else None


def smallest_sufficient(cells: Sequence[Cell], point: Mapping[str, Any]) -> str | None:
    """The smallest k whose whole interval reaches the target, else the k with the best mean.

    If every k has one seed, the smallest k whose score reaches the target.
    """
    by_score = point["sure"] is None or all(cell["validation"]["n"] < 2 for cell in cells)
    return (point["estimate"] if by_score else point["sure"]) or best_mean(cells)


def best_mean(cells: Sequence[Cell]) -> str | None:
    """The k with the best mean, of those with a run that is neither diverged nor degenerate."""
    scored = [cell for cell in cells if any(run["in_mean"] and run["outcome"] in ANSWERS for run in cell["points"])]
    return max(scored, key=lambda cell: cell["validation"]["mean"])["trainable"] if scored else None


def with_best_run(cells: Sequence[Cell], name: str) -> dict[str, Any]:
    """A k with the best of its runs on validation; of equal runs the first seed."""
    cell = next(cell for cell in cells if cell["trainable"] == name)
    in_mean = [run for run in cell["points"] if run["in_mean"]]
    usable = [run for run in in_mean if run["outcome"] in ANSWERS]
    best = max(usable or in_mean, key=lambda run: run["validation_best"])
    return {
        **{key: cell[key] for key in ("trainable", "tuned_layers", "tune_embeddings", "learning_rate")},
        **{key: best[key] for key in ("run", "seed", "validation_best")},
    }


def cell_of(curve: Mapping[str, Any], name: str | None) -> Cell | None:
    """The cell of one k; None if the curve has none."""
    return next((cell for cell in curve["cells"] if cell["trainable"] == name), None)
