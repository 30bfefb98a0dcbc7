"""Sweeps that belong together: one that continues the sweep in its folder, and folders of one sweep."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.statistics.recipe import Recipe
from frostline.sweep.grid import Identity, read_settings
from frostline.sweep.results.store import SEARCH
from frostline.sweep.settings import Settings
from frostline.sweep.toml import TRUST
from frostline.training.settings import TrainingSettings

MUST_AGREE = {*TrainingSettings.model_fields, "head_learning_rate", TRUST}  # settings that all sweeps in a folder share
DIGESTS = {"weights": "model", "vocabulary": "tokenizer", "data": "data"}  # of the identity, with words for them
OF_DATA = " (other rows or labels, or other rows are for validation or test)"


def join_existing(spec: Settings, identity: Identity, older: Mapping[str, Any], out: Path) -> Settings:
    """This sweep with the grid of the sweep in the folder added; everything but the grid must agree.

    Raises:
        FrostlineError: The folder holds another sweep.
    """
    own = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(identity).items()}
    if found := difference({**spec.model_dump(mode="json"), "identity": own}, older):
        what, now, before = found
        held, detail = f"another sweep: its {what} is different", f" ({before} there, {now} now)" if before else ""
        if what == DIGESTS["data"]:
            held, detail = "results of other data", detail or OF_DATA
        again = f"add to that sweep with its own settings: `frostline sweep {shlex.quote(str(out / 'sweep.toml'))}`"
        if (out / SEARCH).exists():
            again = "continue that search with its own `frostline find` command"
        raise FrostlineError(f"{out} holds {held}{detail}. Choose another --out, or {again}.")
    earlier = read_settings(older, out)
    if earlier.tune_modules and spec.tune_modules not in (None, earlier.tune_modules):
        raise FrostlineError(
            f"{out} holds a sweep whose named parts are {', '.join(earlier.tune_modules)}: choose another --out for "
            "others, or give the same."
        )
    if way := other_way(spec, earlier):
        raise FrostlineError(
            f"{out} holds a sweep with another way called {way!r}: give yours another name, or choose another --out."
        )
    return spec.extended(earlier, identity.train_rows)


def other_way(one: Settings, other: Settings) -> str | None:
    """The name of a way in the grid of one sweep that the other one defines differently; None if there is none."""
    for first, second in ((one, other), (other, one)):
        known = {*second.values_of("tune"), *second.way}
        for name in first.values_of("tune"):
            if Recipe(name).is_way and name in known and first.way_of(name) != second.way_of(name):
                return str(name)
    return None


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """What two sweeps in the form of sweep.toml differ in, besides the grid, and both values; None if nothing.

    Another type of task comes first, then what the user has chosen, then what follows from the model and the data. The values
    are empty for what is identified by a digest.
    """
    settings = _shared_settings(one), _shared_settings(other)
    first, second = settings[0] | one["identity"], settings[1] | other["identity"]
    if first["task_type"] != second["task_type"]:
        return DIGESTS["data"], first["task_type"], second["task_type"]
    chosen = [name for name, value in settings[0].items() if value != settings[1][name]]
    for name in (*chosen, *one["identity"]):
        if first[name] != second.get(name) and name != "task":
            if name in DIGESTS:
                return DIGESTS[name], "", ""
            return f"value of {name}", _shown(first[name]), _shown(second.get(name))
    return None


def _shared_settings(sweep: Mapping[str, Any]) -> dict[str, Any]:
    return {name: sweep.get(name) for name in sorted(MUST_AGREE)}


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
