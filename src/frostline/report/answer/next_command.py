"""The command that would make an answer surer, and how long it trains."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from frostline.statistics.answer import Cell, Choice, SizeAnswer
from frostline.statistics.recipe import Recipe

FIRST_SEEDS = 5  # what one seed is followed by
MAX_SEEDS = 30  # more than this is no advice
SURE = 0.95
MOST_UNTRIED = 4  # k that one command tries


def next_command(
    out: Path,
    seeds: Sequence[int],
    curve: SizeAnswer,
    *,
    sure: float | None = None,
    of_search: bool = False,
    missing: str | None = None,
    untried: Sequence[str] = (),
    own_code: bool = False,
) -> tuple[str | None, float | None]:
    """The command that adds seeds to a sweep's folder, and the seconds that it trains; None where unknown.

    There is no command if the answer is sure, or if more seeds would hardly help.

    If a search did not train the reference, the command trains it, and then the k that its budget did not allow either.

    Args:
        out: The folder.
        seeds: Those of the sweep.
        curve: The largest train size of its answer.
        sure: The wanted probability, if it was given.
        of_search: Whether a search trained the runs. Then only the recommended choice and its rival get more seeds.
        missing: The reference of a search that has no result.
        untried: The k that a search would have tried, if its budget had allowed it.
        own_code: Whether the runs need code that comes with the model.
    """
    decision, choices = curve.decision, curve.choices
    sweep = _sweep(out, own_code=own_code)
    if decision is None or decision.reference is None or not curve.learned:
        return None, None
    cells: dict[str, Cell] = {cell.recipe: cell for cell in curve.cells}
    reference = cells[decision.reference]
    if missing and missing not in cells:
        grid = _grid([replace(reference, recipe=Recipe(missing))])
        return f"{sweep}{grid} --seeds {_more_seeds(seeds, len(seeds))}", None
    others = [one for one in choices if one.choice in cells and one.choice != decision.reference]
    known: Sequence[Choice] = [decision] if decision.choice != decision.reference else others
    wanted_sure = max(SURE, sure or 0.0)
    if all(one.probability >= wanted_sure or one.probability <= 1 - wanted_sure for one in known):
        return None, None
    if untried:
        some = untried[:: -(-len(untried) // MOST_UNTRIED)]  # evenly spaced
        each = _of_each_command([replace(reference, recipe=Recipe(k)) for k in some])
        return " && ".join(f"{sweep}{_grid(one)} --seeds {_more_seeds(seeds, len(seeds))}" for one in each), None
    rival: Choice | None = decision if decision.choice in cells else None
    if decision.choice == decision.reference:
        rival = max(others, key=lambda one: one.probability if sure else one.value)
    compared = [cells[name] for name in dict.fromkeys((rival.choice if rival else None, decision.reference)) if name]
    few = min(cell.runs for cell in compared) if of_search else len(seeds)
    wanted = FIRST_SEEDS if few == 1 else curve.seeds_to_decide
    if wanted is None or not few < wanted <= MAX_SEEDS:
        return None, None
    grids = [_grid(some) for some in _of_each_command(compared)] if of_search else [""]
    text = " && ".join(f"{sweep}{grid} --seeds {_more_seeds(seeds, wanted)}" for grid in grids)
    return text, _seconds(compared if of_search else curve.cells, wanted, of_search=of_search)


def _of_each_command(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells of each command: one for all, or one for each if their learning rates or lengths differ: a grid has all pairs."""
    rates = {cell.learning_rate for cell in cells if cell.tuned_layers}
    lengths = {cell.recipe.epochs for cell in cells}
    return [list(cells)] if len(rates) < 2 and len(lengths) == 1 else [[cell] for cell in cells]


def _seconds(cells: Sequence[Cell], wanted: int, *, of_search: bool) -> float | None:
    """The time of the runs that are missing until each cell has as many seeds as wanted."""
    total = 0.0
    for cell in cells:
        if cell.seconds is None:
            return None
        rates = 1 if of_search else max(1, len(cell.learning_rates_tried))
        total += max(0, wanted - cell.runs) * rates * cell.seconds
    return total / max(cell.concurrent_runs or 1 for cell in cells)


def _more_seeds(seeds: Sequence[int], wanted: int) -> str:
    """The seeds, and new ones until there are as many as wanted, as a flag."""
    more = [*seeds, *range(max(seeds) + 1, max(seeds) + 1 + max(0, wanted - len(seeds)))]
    return str(len(more)) if more == list(range(len(more))) else ",".join(map(str, more))


def _sweep(out: Path, *, own_code: bool) -> str:
    """The command that trains more runs in a folder, without the flags of its grid."""
    trust = " --trust-remote-code" if own_code else ""
    return f"frostline sweep {shlex.quote(str(out / 'sweep.toml'))}{trust}"


def _grid(cells: Sequence[Cell]) -> str:
    """The flags that train these k at their learning rates, for their one length."""
    tunes = ",".join(cell.recipe.short for cell in cells)
    rates = sorted({cell.learning_rate for cell in cells if cell.tuned_layers and cell.learning_rate is not None})
    given = f" --learning-rate {','.join(f'{rate:g}' for rate in rates)}" if rates else ""
    length = cells[0].recipe.length.split()[:1]
    return " ".join([f" --tune {tunes}{given}", *(f"--num-train-epochs {epochs}" for epochs in length)])
