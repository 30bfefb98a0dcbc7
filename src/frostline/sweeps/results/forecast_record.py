"""The forecast of a sweep, and its record next to the measured time in ``forecast.json``."""

import heapq
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from frostline.data.files import read_inside, require_inside, unseal, validated, write_sealed
from frostline.statistics.recipe import Recipe
from frostline.training.result import Seconds
from frostline.training.run import Kind

FILE = "forecast.json"


def makespan(seconds: Sequence[float], workers: int) -> float:
    """Seconds until the last run ends, if the longest run starts first and every free worker takes the next one."""
    busy_until = [0.0] * workers
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + one)
    return max(busy_until)


@dataclass(frozen=True)
class KindForecast:
    """The forecast of the missing runs of one kind.

    Seconds are wall-clock seconds of one run. If several workers train at the same time, they are divided by the number of
    workers.
    """

    recipe: Recipe
    train_size: int
    runs: int
    seconds: Seconds  # training, evaluation, and the overhead of beginning and ending a run
    memory_bytes: float
    trainer_seconds: float | None = None  # with plain transformers (an estimator: the same); None if not requested
    timed: bool = True  # whether steps of this k were timed; otherwise they are interpolated
    stack: int = 1  # runs that are trained as one; the memory is that of all of them
    num_train_epochs: float = 3.0

    @property
    def kind(self) -> Kind:
        return Kind(self.recipe, self.train_size, self.num_train_epochs)


@dataclass(frozen=True)
class Forecast:
    """The forecast of all missing runs."""

    cells: tuple[KindForecast, ...]
    forward_pass_seconds: float
    workers: int = 1  # runs that are trained at the same time
    processes: int = 1  # that train, each this many runs at a time

    @property
    def by_kind(self) -> dict[Kind, KindForecast]:
        return {cell.kind: cell for cell in self.cells}

    @property
    def runs(self) -> int:
        return sum(cell.runs for cell in self.cells)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of the forward pass over the frozen layers and of all runs."""
        seconds = [self.workers * cell.seconds for cell in self.cells for _ in range(cell.runs)]
        return self.forward_pass_seconds + makespan(seconds, self.workers * self.processes)

    @property
    def trainer_seconds(self) -> float | None:
        """Seconds of the same runs with plain transformers."""
        each = [cell.trainer_seconds for cell in self.cells]
        if not each or None in each:
            return None
        return sum(cell.runs * (cell.trainer_seconds or 0.0) for cell in self.cells)

    @property
    def memory_bytes(self) -> float:
        """Memory of the largest run. Runs that are trained at the same time need it once each."""
        return max((cell.memory_bytes for cell in self.cells), default=0.0)


class Taken(BaseModel):
    """Wall-clock seconds of the forward pass over the frozen layers, and of the whole call."""

    forward_pass_seconds: Seconds
    seconds: Seconds


class ForecastCall(BaseModel):
    """One call of a sweep that had runs to train; ``measured`` is None if it did not finish."""

    call: str
    cells: list[KindForecast]
    predicted: Taken
    measured: Taken | None = None


def recorded(out: Path) -> list[ForecastCall]:
    """All calls. A missing or damaged file gives an empty list."""
    require_inside(out / FILE, out)
    try:
        return validated(list[ForecastCall], unseal(read_inside(out / FILE, out))["calls"])
    except (OSError, ValueError, KeyError):
        return []


def _write(out: Path, calls: Sequence[ForecastCall]) -> None:
    write_sealed(out / FILE, {"calls": [call.model_dump(mode="json") for call in calls]}, inside=out)


def record(out: Path, forecast: Forecast) -> str:
    """Record a forecast before the runs; returns the identifier of the new call."""
    predicted = Taken(forward_pass_seconds=forecast.forward_pass_seconds, seconds=forecast.seconds)
    call = ForecastCall(call=uuid.uuid4().hex, cells=list(forecast.cells), predicted=predicted)
    _write(out, [*recorded(out), call])
    return call.call


def record_measured(out: Path, call: str, measured: Taken) -> None:
    """Add what was measured to a call, if its record still exists."""
    _write(out, [one.model_copy(update={"measured": measured}) if one.call == call else one for one in recorded(out)])
