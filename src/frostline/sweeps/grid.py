"""The runs of a sweep, from its settings and from what sweep.toml holds besides them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from frostline import FrostlineError
from frostline.data.files import validated
from frostline.data.kinds import REGRESSION
from frostline.statistics.recipe import HEAD_ONLY, Recipe
from frostline.sweeps.results.store import Store
from frostline.sweeps.settings import Settings, make_settings
from frostline.sweeps.toml import NOT_SETTINGS, TRUST
from frostline.training.run import Run

MOST_RUNS = 1_000_000  # of a grid
Size = Annotated[int, Field(ge=1, le=2**40)]
VARIED = ("train_size", "seed", "learning_rate", "recipe", "head_learning_rate", "num_train_epochs")  # by a grid


@dataclass(frozen=True)
class Origin:
    """Where a sweep was started: what another process needs, besides the settings, to find the model and the data."""

    # from which relative paths start, as seen from the folder of the sweep: it names nothing else of the machine
    folder: str = ""
    in_memory: tuple[str, ...] = ()  # the splits that were given in Python, not as files

    @classmethod
    def of(cls, start: Path, out: Path, in_memory: tuple[str, ...]) -> Self:
        """The origin of a sweep in ``out`` that is started in the folder ``start``."""
        same_drive = start.drive == out.absolute().drive  # on Windows, there is no way from one drive to another
        return cls(os.path.relpath(start, out.resolve()) if same_drive else str(start), in_memory)

    def folder_for(self, out: Path) -> Path:
        """The folder from which relative paths start, for the sweep in ``out``."""
        return Path(os.path.normpath(out.resolve() / self.folder))


@dataclass(frozen=True)
class Identity:
    """What identifies a sweep besides its settings: digests of model and data, and resolved defaults."""

    weights: str
    vocabulary: str
    data: str
    layers: Annotated[int, Field(ge=1, le=10_000)]  # L
    metric: str
    precision: str
    max_length: Size
    train_rows: Size
    folds: Annotated[int, Field(ge=0, le=2**40)]
    task: str
    task_type: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Written:
    """What sweep.toml holds: settings, which trust no code that comes with a model, and what no setting says.

    Attributes:
        spec: The settings, with the union of all requested grids.
        identity: What identifies the sweep.
        origin: Where it was started.
        own_code: Whether its runs need code that comes with the model.
    """

    spec: Settings
    identity: Identity
    origin: Origin
    own_code: bool


def read_sweep(store: Store) -> Written | None:
    """The contents of sweep.toml, which somebody else may have written; None if it does not exist.

    Raises:
        FrostlineError: A value is missing or wrong.
    """
    written, path = store.read_spec(), store.out / "sweep.toml"
    if written is None:
        return None
    if "identity" not in written:
        raise FrostlineError(
            f"{path} is damaged, or no sweep has written it: restore it, or give the folder of another sweep."
        )
    try:
        identity, origin = validated(Identity, written["identity"]), validated(Origin, written.get("origin", {}))
        spec = make_settings({name: value for name, value in written.items() if name not in NOT_SETTINGS})
    except ValueError as error:
        why = str(error).rstrip(".")
        raise FrostlineError(f"{path} is damaged ({why}): restore it, or start again in another folder.") from error
    return Written(spec, identity, origin, own_code=written.get(TRUST, False) is not False)


def expand(spec: Settings, identity: Identity) -> list[Run]:
    """Every run of the grid, in the order in which they are trained.

    All k of one seed come before the next seed, so that an interrupted sweep has complete curves. k = 0 comes first, because it
    has learning rates of its own.

    Raises:
        FrostlineError: The grid has more runs than one folder can hold.
    """
    common = {name: getattr(spec, name) for name in Run.model_fields if name in Settings.model_fields}
    for name in ("weights", "vocabulary", "data", "metric", "precision", "max_length", "folds"):
        common[name] = getattr(identity, name)
    common["standardize_targets"] = spec.standardize_targets and identity.task_type == REGRESSION
    sizes = [
        len(part.train_size or (1,))
        * len(part.seeds)
        * len(part.num_train_epochs)
        * sum(len(part.learning_rate_pairs(k)) for k in part.tune)
        for part in spec.grids()
    ]
    if sum(sizes) > MOST_RUNS:
        raise FrostlineError(
            f"The grid has {sum(sizes):,} runs, more than {MOST_RUNS:,}: give fewer values of tune, seeds, train_size or "
            "learning_rate or num_train_epochs."
        )
    shortest: dict[Recipe, float] = {}  # what no training loop trains has no length: it is fitted once
    for part in spec.grids():
        shortest |= {k: min(shortest.get(k, inf), *part.num_train_epochs) for k in part.tune}
    cells = {
        (size, seed, rate, k, head_rate, epochs)
        for part in spec.grids()
        for size in part.train_size or (identity.train_rows,)
        for seed in part.seeds
        for k in part.tune
        for rate, head_rate in part.learning_rate_pairs(k)
        for epochs in (part.num_train_epochs if part.way_of(k).in_loop else (shortest[k],))
    }

    def order(run: Run) -> tuple[Any, ...]:
        epochs, rate = run.num_train_epochs, run.learning_rate or 0.0
        return run.train_size, run.seed, run.recipe != HEAD_ONLY, epochs, rate, *run.recipe.order

    runs, first = list[Run](), dict[Recipe, Run]()
    for cell in cells:
        own: dict[str, Any] = dict(zip(VARIED, cell, strict=True))
        k = own["recipe"]
        if k not in first:  # the others are not validated, because all values come from settings that are valid
            first[k] = Run.model_validate({**common, "way": spec.way_of(k), **own})
        runs.append(first[k].model_copy(update=own))
    return sorted(runs, key=order)


def one_of_each(runs: Sequence[Run]) -> list[Run]:
    """One run of each recipe; one of each seed if that draws the trained layers."""
    return list({(run.recipe, run.seed if run.way.drawn else 0): run for run in runs}.values())
