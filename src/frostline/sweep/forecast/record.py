"""What a sweep is said to take before it runs, and the record of that beside what it took."""

import heapq
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from frostline.data.files import write_json

FILE = "forecast.json"


@dataclass(frozen=True)
class Cell:
    """The runs of one number of tuned layers and train size that are still to be done. Seconds are the clock's: where runs go
    side by side, each takes its share of it."""

    trainable: str
    train_size: int
    runs: int
    training_seconds: float  # of one run
    evaluation_seconds: float
    seconds: float  # of one run, with what is around its training
    memory_bytes: float
    trainer_seconds: float | None  # of one run by plain transformers; None where that was not asked for
    timed: bool  # steps of this k were timed; else they are interpolated


@dataclass(frozen=True)
class Forecast:
    """Seconds and memory of all that is still to be done."""

    cells: tuple[Cell, ...]
    forward_pass_seconds: float
    calibration_seconds: float  # that went into knowing this
    workers: int = 1  # runs at the same time
    remarks: tuple[str, ...] = ()

    @property
    def runs(self) -> int:
        return sum(cell.runs for cell in self.cells)

    @property
    def seconds(self) -> float:
        """Pass and runs, by the clock: the longest runs are begun first, each by the next worker that is free."""
        free = [0.0] * self.workers
        for cell in sorted(self.cells, key=lambda cell: -cell.seconds):
            for _ in range(cell.runs):
                heapq.heapreplace(free, free[0] + self.workers * cell.seconds)
        return self.forward_pass_seconds + max(free)

    @property
    def trainer_seconds(self) -> float | None:
        """The same runs by plain transformers."""
        each = [cell.trainer_seconds for cell in self.cells]
        if not each or None in each:
            return None
        return sum(cell.runs * (cell.trainer_seconds or 0.0) for cell in self.cells)

    @property
    def memory_bytes(self) -> float:
        """Of the largest run; where runs go at the same time, each has its own."""
        return max((cell.memory_bytes for cell in self.cells), default=0.0)


def record(out: Path, forecast: Forecast) -> str:
    """Write down what is forecast, before the runs; each call of a sweep that has runs to do has an entry of its own, and
    is given its name."""
    call = uuid.uuid4().hex
    facts = {**asdict(forecast), "seconds": forecast.seconds, "trainer_seconds": forecast.trainer_seconds}
    _write(out, [*recorded(out), {"call": call, "predicted": facts, "measured": None}])
    return call


def complete(out: Path, call: str, measured: Mapping[str, float]) -> None:
    """Put what a recorded call took beside its forecast, if that is still there."""
    calls = recorded(out)
    _write(out, [{**one, "measured": dict(measured)} if one["call"] == call else one for one in calls])


def recorded(out: Path) -> list[dict[str, Any]]:
    """Every call: what was ``predicted``, and what was ``measured`` (None where it did not reach its end). A file that
    is not there or damaged says nothing."""
    try:
        calls = json.loads((out / FILE).read_bytes())["calls"]
        assert isinstance(calls, list)
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        return []
    return calls


def _write(out: Path, calls: Sequence[Mapping[str, Any]]) -> None:
    write_json(out / FILE, {"calls": calls})
