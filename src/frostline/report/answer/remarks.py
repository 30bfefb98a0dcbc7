"""Sentences after the recommendation: failed and missing runs, doubtful times, too few epochs, and named parts."""

from collections.abc import Iterable, Mapping, Sequence

from frostline.data.wording import capitalized, ranges
from frostline.report.answer.comparison import Comparison
from frostline.report.answer.search_outcome import NO_SEARCH, SearchOutcome
from frostline.report.formatting import score, score_interval
from frostline.report.names import tuning
from frostline.statistics.answer import Cell
from frostline.statistics.recipe import Recipe

NEARLY_PERFECT = 0.95  # a score on training examples that leaves little to learn
UNFITTED = 2 / 3  # the error on training examples as a share of that on validation, from which more epochs help
CLEARLY_LONGER = 1.1  # times as long; fewer layers never take longer by themselves


def smaller(cell: Cell, names: Iterable[str]) -> list[int]:
    """The numbers of layers among these values of k that are smaller than the k of the cell."""
    ks = [k for name in names if (k := Recipe(name).k) is not None]
    return [k for k in ks if cell["tune_embeddings"] or k < cell["tuned_layers"]]


def times_not_comparable(cells: Mapping[str, Cell], full: Cell) -> str:
    """A sentence if a k took clearly longer than a larger one, the reference; else empty.

    Fewer layers never take more operations. Measured times also hold what other programs took of the processor.
    """
    comparable = [
        cell for name, cell in cells.items() if Recipe(name).is_k and cell is not full and cell["times_cheaper"]
    ]
    shares = {cell["recipe"]: float(cell["seconds"] or 0.0) / float(full["seconds"] or 1.0) for cell in comparable}
    longest = max(shares, key=lambda name: shares[name], default=None)
    if longest is None or shares[longest] < CLEARLY_LONGER:
        return ""
    return (
        f" Do not trust the training times: {tuning(longest)} took {100 * shares[longest]:.0f} % of the time of "
        f"{tuning(full['recipe'])}, so other programs probably slowed some runs down."
    )


def trained_too_little(full: Cell) -> str:
    """A sentence if the reference has not fitted the examples that it was trained on; else empty.

    Its error on them (1 - score) is then not much smaller than on validation. ``docs/log.md`` has the tasks behind the limit.
    """
    on_train, on_validation = full["train_last"]["mean"], full["validation_last"]["mean"]
    trains_layers = full["tuned_layers"] or full["tune_embeddings"]
    if not trains_layers or on_train is None or on_validation is None or on_train >= NEARLY_PERFECT:
        return ""
    if 1 - on_train < UNFITTED * (1 - on_validation):
        return ""
    return (
        f" {capitalized(tuning(full['recipe']))} scores {score(on_train)} on examples that it was trained on and "
        f"{score(on_validation)} on validation. It has not fitted its examples yet, so a higher --num-train-epochs may help."
    )


def not_tried(ks: Sequence[int]) -> str:
    """A sentence that these values of k were not trained; empty if there are none."""
    parts = [
        tuning(Recipe(first)) if first == last else f"tuning the last {first} to {last} layers"
        for first, last in ranges(ks)
    ]
    return f" {capitalized(' and '.join(parts))} {'was' if len(parts) == 1 else 'were'} not tried." if parts else ""


def only_constant(cell: Cell) -> bool:
    """Whether a cell has finished runs, and all of them diverged or predict a constant."""
    return bool(0 < cell["runs"] == cell["failures"]["diverged"] + cell["failures"]["degenerate"])


def failed_runs(names: Iterable[str], cells: Mapping[str, Cell]) -> str:
    """A sentence on the number of failed runs of each of these k; empty if none failed."""
    parts = [
        f"{cell['failures']['failed']} of {cell['runs']} runs of {tuning(cell['recipe'])} failed"
        for cell in (cells[name] for name in dict.fromkeys(names))
        if cell["failures"]["failed"]
    ]
    return f" {' and '.join(parts)}." if parts else ""


def named_parts_only(named: Cell, comparison: Comparison, *, others: bool) -> str:
    """The answer if only named parts have a score; ``others``: whether some k has finished or pending runs."""
    scores = named["validation"]
    basis = "one seed" if scores["n"] == 1 else f"{scores['n']} seeds"
    if scores["low"] is not None:
        basis += f", 95 % confidence interval {score_interval(scores['low'], scores['high'])}"
    if comparison.evidence.chance is not None:
        runs = [point for point in named["points"] if point["in_mean"]]
        basis += f"; {comparison.baseline} {score(comparison.evidence.baseline(runs))}"
    why = "no other run has succeeded so far" if others else "add numbers of layers and full to --tune to compare"
    reached = f"{comparison.metric} {score(scores['mean'])}"
    return f"The named parts reach {reached} ({basis}). Nothing was compared: {why}."


def named_parts(named: Cell | None, full: Cell, comparison: Comparison) -> str:
    """A sentence on the named parts, after the answer about k; empty if there are none."""
    if named is None:
        return ""
    share = comparison.share(named)
    if share is None or share["estimate"] is None:
        return " The named parts cannot be compared: none of their runs has succeeded so far."
    return f" The named parts reach {comparison.with_full(named, full)}."


def full_not_run(cells: Mapping[str, Cell], comparison: Comparison, search: SearchOutcome) -> str:
    """A sentence that full fine-tuning was not run, so that it is not the reference; empty if it was run.

    A search that could not run it has a sentence of its own.
    """
    if search.instead or len(cells) < 2 or any(cell["tune_embeddings"] for cell in cells.values()):
        return ""
    if comparison.evidence.rows is None:
        return " Full fine-tuning was not run here."
    remedy = "add full to --tune" + (
        ", or full to --ways of `compare`" if any(Recipe(name).is_way for name in cells) else ""
    )
    return f" Full fine-tuning was not run: {remedy if search is NO_SEARCH else 'leave out --max-k'}."
