"""The one next step that would make an answer surer or better, and how long it trains."""

import shlex
from collections.abc import Callable, Sequence
from math import ceil
from pathlib import Path

from frostline.statistics.answer import Cell, Choice, SizeAnswer
from frostline.statistics.curve import UNDECIDED
from frostline.statistics.recipe import Recipe
from frostline.statistics.run_result import is_unfitted

FIRST_SEEDS = 5  # what one seed is followed by
MAX_SEEDS = 30  # more than this is no advice
SURE = 0.95
LONGER = 3.3  # times as many epochs, which are then tried
ENOUGH_EPOCHS = 10  # if a sweep of fewer has learned nothing, these are tried; a search tries them by itself
SAME_COMMAND = "the same command with "  # begins a step that is no command of its own
MORE_ROWS = f"{SAME_COMMAND}more validation examples"


def next_command(
    out: Path,
    seeds: Sequence[int],
    curve: SizeAnswer,
    *,
    sure: float | None = None,
    of_search: bool = False,
    longest: float | None = None,
    larger: tuple[str, float] | None = None,
    more_rows: str = MORE_ROWS,
    own_code: bool = False,
    factor: Callable[[Recipe], float] = lambda recipe: 1.0,
    smaller: Sequence[SizeAnswer] = (),
) -> tuple[str | None, float | None]:
    """The step that helps most, and the seconds that it trains; None where unknown.

    If the budget ended a search, that is a larger one. If a sweep has learned nothing, or full fine-tuning has not fitted its
    examples, it is longer training. Else more seeds; and if these would not decide, more validation examples. There is none if
    the answer is sure.

    Args:
        out: The folder.
        seeds: Those of the sweep.
        curve: The largest train size of its answer.
        sure: The wanted probability, if it was given.
        of_search: Whether a search trained the runs. Then only the recommended choice and its rival get more seeds.
        longest: The most epochs that a search may train.
        larger: If the budget ended the search: that it be larger, and the seconds that are missing.
        more_rows: How to get more validation examples.
        own_code: Whether the runs need code that comes with the model.
        factor: How many times the learning rates of the grid a recipe has.
        smaller: The answers at smaller train sizes, at which the command trains the same.
    """
    decision, cells = curve.decision, {str(cell.recipe): cell for cell in curve.cells}
    sweep = f"frostline sweep {shlex.quote(str(out / 'sweep.toml'))}{' --trust-remote-code' if own_code else ''}"

    def at_every_size(some: Sequence[Cell]) -> list[Cell]:
        return [*some, *(found for size in smaller for one in some if (found := size.cell(one.recipe)))]

    if larger and decision and decision.above_baseline is False:
        return larger
    if decision is None or nothing_learned(curve):
        if of_search:
            return larger or (None, None)
        some = [cell for cell in curve.cells if cell.runs > cell.failures.diverged + cell.failures.undefined]
        most = max((cell.num_train_epochs or 3.0 for cell in some), default=ENOUGH_EPOCHS)
        if most >= ENOUGH_EPOCHS:
            return None, None
        last = [cell for cell in curve.cells if (cell.num_train_epochs or 3.0) == most]
        seconds = _seconds(at_every_size(last), len(seeds), ENOUGH_EPOCHS, of_search=False)
        return f"{sweep} --num-train-epochs {ENOUGH_EPOCHS}", seconds
    if decision.reference is None:
        return None, None
    reference, wanted_sure = cells[decision.reference], max(SURE, sure or 0.0)
    rivals = [one for one in curve.choices if one.choice in cells and one.choice != decision.reference]
    is_reference = decision.choice == decision.reference
    known: Sequence[Choice] = rivals if is_reference else [decision]
    if all(one.probability >= wanted_sure or one.probability <= 1 - wanted_sure for one in known):
        return None, None
    if larger:
        return larger
    rival = (
        max(rivals, key=lambda one: one.probability if sure else one.value).choice if is_reference else decision.choice
    )
    compared = [cells[name] for name in (rival, decision.reference) if name in cells]

    def command(some: Sequence[Cell], wanted: int, epochs: float | None = None) -> str:
        """One command for all cells, or one for each if their learning rates or lengths differ: a grid has all pairs."""
        rates = {_of_grid(cell, factor) for cell in some if cell.tuned_layers}
        together = len(rates) < 2 and (epochs or len({cell.recipe.epochs for cell in some}) == 1)
        grids = [_grid(part, epochs, factor) for part in ([some] if together else [[cell] for cell in some]) if part]
        return " && ".join(f"{sweep}{grid} --seeds {_more_seeds(seeds, wanted)}" for grid in grids or [""])

    if has_not_fitted(reference, longest):
        epochs = ceil(LONGER * (reference.num_train_epochs or 3.0))
        # two lengths of one k train the same for these epochs
        once = list({cell.recipe.short: cell for cell in compared}.values())
        return command(once, len(seeds), epochs), _seconds(at_every_size(once), len(seeds), epochs)
    few = min(cell.runs for cell in compared) if of_search else len(seeds)
    wanted = FIRST_SEEDS if few == 1 or not curve.learned else curve.seeds_to_decide
    if wanted is not None and few < wanted <= MAX_SEEDS:
        every = at_every_size(compared if of_search else curve.cells)
        return command(compared if of_search else [], wanted), _seconds(every, wanted, of_search=of_search)
    return more_rows if curve.deciding_point.verdict == UNDECIDED else None, None


def nothing_learned(curve: SizeAnswer) -> bool:
    """Whether neither the best choice nor the reference is shown to be above the baseline."""
    return curve.decision is None or (curve.decision.above_baseline is False and not curve.learned)


def has_not_fitted(full: Cell, longest: float | None) -> bool:
    """Whether the reference has not fitted the examples that it was trained on, in the longest training."""
    is_longest = longest is None or (full.recipe.epochs or longest) >= longest
    return (
        is_longest
        and bool(full.tuned_layers or full.tune_embeddings)
        and is_unfitted(full.train_last.mean, full.validation_last.mean)
    )


def _seconds(
    cells: Sequence[Cell], wanted: int, epochs: float | None = None, *, of_search: bool = True
) -> float | None:
    """The time of the runs that are missing until each cell has as many seeds as wanted; or of all of them, for these epochs."""
    total = 0.0
    for cell in cells:
        if cell.seconds is None:
            return None
        rates = 1 if of_search else max(1, len(cell.learning_rates_tried))
        missing = wanted * epochs / (cell.num_train_epochs or 3.0) if epochs else max(0, wanted - cell.runs)
        total += missing * rates * cell.seconds
    return total / max(cell.concurrent_runs or 1 for cell in cells)


def _more_seeds(seeds: Sequence[int], wanted: int) -> str:
    """The seeds, and new ones until there are as many as wanted, as a flag."""
    more = [*seeds, *range(max(seeds) + 1, max(seeds) + 1 + max(0, wanted - len(seeds)))]
    return str(len(more)) if more == list(range(len(more))) else ",".join(map(str, more))


def _of_grid(cell: Cell, factor: Callable[[Recipe], float]) -> str:
    """The learning rate of a cell as a grid has it, without the factor of its way; empty if it has none."""
    return f"{cell.learning_rate / factor(cell.recipe):g}" if cell.learning_rate is not None else ""


def _grid(cells: Sequence[Cell], epochs: float | None, factor: Callable[[Recipe], float]) -> str:
    """The flags that train these k at their learning rates, for their one length or for these ``epochs``."""
    tunes = ",".join(cell.recipe.short for cell in cells)
    rates = sorted({_of_grid(cell, factor) for cell in cells if cell.tuned_layers} - {""}, key=float)
    given = f" --learning-rate {','.join(rates)}" if rates else ""
    length = [f"{epochs:g}"] if epochs else cells[0].recipe.length.split()[:1]
    return " ".join([f" --tune {tunes}{given}", *(f"--num-train-epochs {one}" for one in length)])
