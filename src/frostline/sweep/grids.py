"""The dimensions of a grid of runs, and the union of several grids."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from frostline.training.fields import LearningRates, Seeds, Sizes, Strict, Tunes

GRID = ("tune", "seeds", "train_size", "learning_rate")


class MoreRuns(BaseModel):
    """One more grid of runs. What it does not set is as in the sweep."""

    model_config = Strict

    tune: Tunes | None = None
    seeds: Seeds | None = None
    train_size: Sizes | None = None
    learning_rate: LearningRates | None = None

    def values(self) -> dict[str, Any]:
        """The values that are set."""
        return {name: value for name in GRID if (value := getattr(self, name)) is not None}


def merge_grids(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same runs with fewer grids: two grids that differ in at most one dimension become one."""
    joined: list[dict[str, Any]] = []
    for part in map(dict, parts):
        while (other := next((one for one in joined if len(_differ(one, part)) < 2), None)) is not None:
            joined.remove(other)
            part |= {name: _both(other[name], part[name]) for name in _differ(other, part)}
        if not any(_covers(one, part) for one in joined):
            joined = [*(one for one in joined if not _covers(part, one)), part]
    return joined


def _covers(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(set(one[name] or ()) >= set(other[name] or ()) for name in GRID)


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The dimensions in which two grids have different values, whatever their order."""
    return [name for name in GRID if set(one[name] or ()) != set(other[name] or ())]


def _both(values: tuple[Any, ...] | None, more: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    return values if more is None else (*(values or ()), *(value for value in more if value not in (values or ())))
