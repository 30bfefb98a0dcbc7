"""The recommended k with its best run."""

from frostline.statistics.answer import Cell, Recommended, SizeAnswer
from frostline.statistics.cells import ANSWERS


def recommend(curve: SizeAnswer, *, by_mean: bool) -> Recommended | None:
    """The recommended k or way with its best run; None if no run has a usable score, or if no run trained what is recommended.

    Args:
        curve: Of one train size, with its decision.
        by_mean: Whether the smallest k whose mean reaches the target is recommended, whatever the decision.
    """
    decided = (by_mean and curve.deciding_point.estimate) or (curve.decision and curve.decision.choice)
    cell = curve.cell(decided) if decided else _best_mean(curve)
    return best_run(cell) if cell else None


def best_run(cell: Cell) -> Recommended:
    """A recipe with its best run on validation."""
    usable = [run for run in cell.in_mean if run.outcome in ANSWERS]
    best = max(usable or cell.in_mean, key=lambda run: run.validation_best or 0.0)  # the first of equally good ones
    assert best.validation_best is not None
    return Recommended(
        recipe=cell.recipe,
        tuned_layers=cell.tuned_layers,
        tune_embeddings=cell.tune_embeddings,
        learning_rate=cell.learning_rate,
        run=best.run,
        seed=best.seed,
        validation_best=best.validation_best,
    )


def _best_mean(curve: SizeAnswer) -> Cell | None:
    """The k with the best mean. At least one of its runs neither diverged nor is degenerate."""
    usable = [cell for cell in curve.cells if any(run.outcome in ANSWERS for run in cell.in_mean)]
    return max(usable, key=lambda cell: cell.comparable or 0.0, default=None)
