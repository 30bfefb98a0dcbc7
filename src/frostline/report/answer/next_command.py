"""The command that would make an answer surer."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FIRST_SEEDS = 5  # what one seed is followed by
MAX_SEEDS = 30  # more than this is no advice
SURE = 0.95


def next_command(out: Path, seeds: Sequence[int], curve: Mapping[str, Any], *, sure: float | None = None) -> str | None:
    """The command that adds seeds to a sweep's folder; None if the answer is sure, or if more seeds would hardly help.

    Args:
        out: The folder.
        seeds: Those of the sweep.
        curve: The largest train size of its answer.
        sure: The wanted probability, if it was given.
    """
    decision = curve["decision"]
    if decision is None or not curve["learned"]:
        return None
    others = [one["probability"] for one in curve["options"] if one["choice"] != decision["reference"]]
    known = [decision["probability"]] if decision["choice"] != decision["reference"] else others
    wanted_sure = max(SURE, sure or 0.0)
    if all(p >= wanted_sure or p <= 1 - wanted_sure for p in known):
        return None
    wanted = FIRST_SEEDS if len(seeds) == 1 else curve["seeds_to_decide"]
    if wanted is None or not len(seeds) < wanted <= MAX_SEEDS:
        return None
    more = [*seeds, *range(max(seeds) + 1, max(seeds) + 1 + wanted - len(seeds))]
    listed = str(wanted) if more == list(range(wanted)) else ",".join(map(str, more))
    return f"frostline sweep {shlex.quote(str(out / 'sweep.toml'))} --seeds {listed}"
