"""The command that would make an answer surer."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from frostline.statistics.tune import LAST

FIRST_SEEDS = 5  # what one seed is followed by
MAX_SEEDS = 30  # more than this is no advice
SURE = 0.95


def next_command(
    out: Path,
    seeds: Sequence[int],
    curve: Mapping[str, Any],
    *,
    sure: float | None = None,
    of_search: bool = False,
    missing: str | None = None,
) -> str | None:
    """The command that adds seeds to a sweep's folder; None if the answer is sure, or if more seeds would hardly help.

    If a search did not train the reference, the command trains it.

    Args:
        out: The folder.
        seeds: Those of the sweep.
        curve: The largest train size of its answer.
        sure: The wanted probability, if it was given.
        missing: The reference of a search that has no result.
        of_search: Whether a search trained the runs. Then only the recommended choice and its rival get more seeds.
    """
    decision, choices = curve["decision"], curve["choices"]
    if decision is None or not curve["learned"]:
        return None
    cells = {cell["trainable"]: cell for cell in curve["cells"]}
    if missing and missing not in cells:
        grid = _grid([{**cells[decision["reference"]], "trainable": missing}])
        return f"{_sweep(out)}{grid} --seeds {_more_seeds(seeds, len(seeds))}"
    others = [one for one in choices if one["choice"] in cells and one["choice"] != decision["reference"]]
    known = [decision] if decision["choice"] != decision["reference"] else others
    wanted_sure = max(SURE, sure or 0.0)
    if all(one["probability"] >= wanted_sure or one["probability"] <= 1 - wanted_sure for one in known):
        return None
    rival = decision if decision["choice"] in cells else None
    if decision["choice"] == decision["reference"]:
        rival = max(others, key=lambda one: float(one["probability" if sure else "value"]))
    compared = [cells[name] for name in dict.fromkeys((rival and rival["choice"], decision["reference"])) if name]
    few = min(cell["runs"] for cell in compared) if of_search else len(seeds)
    wanted = FIRST_SEEDS if few == 1 else curve["seeds_to_decide"]
    if wanted is None or not few < wanted <= MAX_SEEDS:
        return None
    return f"{_sweep(out)}{_grid(compared) if of_search else ''} --seeds {_more_seeds(seeds, wanted)}"


def _sweep(out: Path) -> str:
    """The command that trains more runs in a folder, without its flags."""
    return f"frostline sweep {shlex.quote(str(out / 'sweep.toml'))}"


def _more_seeds(seeds: Sequence[int], wanted: int) -> str:
    """The seeds, and new ones until there are as many as wanted, as a flag."""
    more = [*seeds, *range(max(seeds) + 1, max(seeds) + 1 + max(0, wanted - len(seeds)))]
    return str(len(more)) if more == list(range(len(more))) else ",".join(map(str, more))


def _grid(cells: Sequence[Mapping[str, Any]]) -> str:
    """The flags that train these k at their learning rates."""
    tunes = ",".join(cell["trainable"].removeprefix(LAST) for cell in cells)
    rates = sorted({cell["learning_rate"] for cell in cells if cell["tuned_layers"]})
    given = f" --learning-rate {','.join(f'{rate:g}' for rate in rates)}" if rates else ""
    return f" --tune {tunes}{given}"
