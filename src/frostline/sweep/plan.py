"""Before anything runs: the runs, what they share, and what that takes of the disk."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.frozen.selection import StateSelection
from frostline.model.tune import Tune
from frostline.sweep.forecast.record import Forecast
from frostline.sweep.parameter_groups import Group
from frostline.sweep.specification import SweepSpec, make_spec
from frostline.training.specification import RunSpec


@dataclass(frozen=True)
class Identity:
    """What, beside the settings, makes two sweeps the same: digests, and what defaults were resolved to."""

    weights: str
    vocabulary: str
    data: str
    layers: int  # L
    metric: str
    precision: str
    max_length: int
    train_rows: int
    folds: int
    task: str
    problem_type: str
    labels: tuple[str, ...]


def read_identity(written: Mapping[str, Any], out: Path) -> Identity:
    """The identity in what sweep.toml says.

    Raises:
        FrostlineError: it is not whole.
    """
    try:
        facts = written["identity"]
        identity = Identity(**{**facts, "labels": tuple(facts["labels"])})
        if not all(
            type(getattr(identity, field.name)) is field.type for field in fields(Identity) if field.type is int
        ):
            raise TypeError("a word stands where a number belongs")
    except (KeyError, TypeError) as error:
        raise FrostlineError(
            f"{out / 'sweep.toml'} is damaged ({error}): put it back, or choose another --out."
        ) from error
    return identity


def read_settings(written: Mapping[str, Any], out: Path) -> SweepSpec:
    """The specification in what sweep.toml says.

    Raises:
        FrostlineError: it is not whole.
    """
    try:
        return make_spec({name: value for name, value in written.items() if name != "identity"})
    except FrostlineError as error:
        raise FrostlineError(
            f"{out / 'sweep.toml'} is damaged ({str(error).rstrip('.')}): put it back, or choose another --out."
        ) from error


def expand(spec: SweepSpec, identity: Identity) -> list[RunSpec]:
    """Every run of the grid: all k of one seed before the next seed, so that an early answer is a whole curve; the head
    alone, which has rates of its own, first."""
    common = {name: getattr(spec, name) for name in RunSpec.model_fields if name in SweepSpec.model_fields}
    for name in ("weights", "vocabulary", "data", "metric", "precision", "max_length", "folds"):
        common[name] = getattr(identity, name)
    cells = {
        (size, seed, rate, k, of_head)
        for part in spec.grids()
        for size in part.train_size or (identity.train_rows,)
        for seed in part.seeds
        for k in part.tune
        for rate, of_head in part.learning_rate_pairs(k)
    }
    return [
        RunSpec.model_validate(
            {
                **{**common, "tune_modules": spec.tune_modules if k == "named" else None},
                **{"tune": k, "seed": seed, "train_size": size, "learning_rate": rate, "head_learning_rate": of_head},
            }
        )
        for size, seed, rate, k, of_head in sorted(cells, key=_in_order)
    ]


def _in_order(cell: tuple[int, int, float, Tune, float | None]) -> tuple[Any, ...]:
    size, seed, rate, k, _ = cell
    return size, seed, k != 0, rate, *by_depth(k)


def by_depth(k: Tune) -> tuple[bool, bool, int]:
    """The order of values of k: the head alone first, full last, named parts after it."""
    return k == "named", k == "all", k if isinstance(k, int) else 0


@dataclass(frozen=True)
class Plan:
    """What a sweep will do."""

    runs: tuple[RunSpec, ...]
    done: frozenset[str]  # digests of runs that have a result
    parameters: int
    trainable: Mapping[Tune, int]  # parameters trained, by k
    groups: Mapping[Tune, tuple[Group, ...]]  # of parameters, trained and frozen, by k
    rows: int  # that pass through the frozen layers
    tokens: int
    wanted: StateSelection  # what all runs together would take up
    cached: StateSelection  # the part of it within the limit
    cache_bytes: int
    limit_bytes: int
    free_bytes: int
    truncated: Mapping[str, float]  # share of texts cut at the length limit, by split
    truncated_by_class: Mapping[str, float]  # of training texts
    max_length: int
    notes: tuple[str, ...]
    results_bytes: int  # of a result with its predictions, for all runs
    model_bytes: int
    forecast: Forecast | None = None  # seconds and memory of what is missing, once that was timed

    @property
    def missing(self) -> list[RunSpec]:
        """Runs without a result."""
        return [run for run in self.runs if run.digest not in self.done]

    @property
    def disk_bytes(self) -> int:
        """Of the output folder while the sweep runs: results, model, and what the best run of each k has learned."""
        return self.results_bytes + self.model_bytes + 4 * sum(self.trainable.values())
