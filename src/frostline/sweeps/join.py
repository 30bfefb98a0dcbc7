"""Sweeps that belong together: one that continues the sweep in its folder, and folders of one sweep."""

import shlex
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.sweeps.grid import Written
from frostline.sweeps.results.store import SEARCH
from frostline.sweeps.settings import GRID, Settings
from frostline.sweeps.toml import TRUST
from frostline.training.settings import TrainingSettings

# settings that all sweeps in a folder share
MUST_AGREE = sorted({*TrainingSettings.model_fields, "head_learning_rate"} - {*GRID})
DIGESTS = {"weights": "model", "vocabulary": "tokenizer", "data": "data"}  # of the identity, with words for them
OF_DATA = " (other rows or labels, or other rows are for validation or test)"


def join_existing(new: Written, older: Written, out: Path) -> Settings:
    """The settings of a sweep with the grid of the sweep in the folder added; everything but the grid must agree.

    Raises:
        FrostlineError: The folder holds another sweep.
    """
    if found := difference(new, older):
        what, now, before = found
        held, detail = f"another sweep: its {what} is different", f" ({before} there, {now} now)" if before else ""
        if what == DIGESTS["data"]:
            held, detail = "results of other data", detail or OF_DATA
        again = f"add to that sweep with its own settings: `frostline sweep {shlex.quote(str(out / 'sweep.toml'))}`"
        if (out / SEARCH).exists():
            again = "continue that search with its own `frostline find` command"
        raise FrostlineError(f"{out} holds {held}{detail}. Choose another --out, or {again}.")
    return new.spec.extended(older.spec, new.identity.train_rows)


def difference(one: Written, other: Written) -> tuple[str, str, str] | None:
    """What two sweeps differ in, besides the grid, and both values; None if nothing.

    Another type of task comes first, then what the user has chosen, then what follows from the model and the data. The values
    are empty for what is identified by a digest, and for ways of one name.
    """
    first, second = (
        {name: sweep.spec.model_dump(mode="json")[name] for name in MUST_AGREE}
        | {TRUST: sweep.own_code}
        | vars(sweep.identity)
        for sweep in (one, other)
    )
    if first["task_type"] != second["task_type"]:
        return DIGESTS["data"], first["task_type"], second["task_type"]
    chosen = [name for name in MUST_AGREE if getattr(one.spec, name) != getattr(other.spec, name)]
    for name in (*chosen, TRUST, *vars(one.identity)):
        if first[name] != second[name] and name != "task":
            if name in DIGESTS:
                return DIGESTS[name], "", ""
            return f"value of {name}", _shown(first[name]), _shown(second[name])
    if one.spec.tune_modules and other.spec.tune_modules not in (None, one.spec.tune_modules):
        return "value of tune_modules", _shown(one.spec.tune_modules), _shown(other.spec.tune_modules)
    for this, that in ((one.spec, other.spec), (other.spec, one.spec)):
        known = {*that.values_of("tune"), *that.way}
        for name in this.values_of("tune"):
            if name.is_way and name in known and this.way_of(name) != that.way_of(name):
                return f"way {name!r}", "", ""
    return None


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
