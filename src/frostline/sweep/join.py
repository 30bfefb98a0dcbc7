"""A sweep that continues the one in its folder."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.sweep.plan import Identity, read_settings
from frostline.sweep.specification import SweepSpec
from frostline.training.specification import Settings

MUST_AGREE = {*Settings.model_fields, "head_learning_rate"}  # settings that all sweeps in a folder share


def join_existing(spec: SweepSpec, identity: Identity, older: Mapping[str, Any], out: Path) -> SweepSpec:
    """This sweep with the grid of the sweep in the folder added; everything but the grid must agree.

    Raises:
        FrostlineError: The folder holds another sweep.
    """
    before, now = older["identity"], _toml_ready(asdict(identity))
    settings = {name: x for name, x in spec.model_dump(mode="json").items() if name in MUST_AGREE}
    mine = {**{name: x for name, x in settings.items() if name not in now}, **now}
    theirs = {**{name: older.get(name) for name in settings}, **before}
    words = {"weights": "model", "vocabulary": "tokenizer", "data": "data"}
    for name, value in mine.items():
        if theirs.get(name) != value and name != "task":
            detail = "" if name in words else f" ({_shown(theirs.get(name))} there, {_shown(value)} now)"
            raise FrostlineError(
                f"{out} holds another sweep: its {words.get(name, name)} is different{detail}. Choose another --out, "
                "or give the same settings to add to that sweep."
            )
    earlier = read_settings(older, out)
    if earlier.tune_modules and spec.tune_modules not in (None, earlier.tune_modules):
        raise FrostlineError(
            f"{out} holds a sweep whose named parts are {', '.join(earlier.tune_modules)}: choose another --out for "
            "others, or give the same."
        )
    return spec.extended(earlier, identity.train_rows)


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _toml_ready(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
