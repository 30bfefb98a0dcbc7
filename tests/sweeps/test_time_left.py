"""The time that the rest of a sweep will take."""

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

import frostline.sweeps.results.leases as leases_module
from frostline.statistics.recipe import Recipe
from frostline.sweeps.grid import Identity
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.results.forecast_record import Forecast, KindForecast, record
from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.store import Store
from frostline.sweeps.settings import Settings
from frostline.sweeps.time_left import SAMPLED, TimeLeft
from frostline.sweeps.time_left import time_left as time_left_of
from frostline.training.result import Result
from frostline.training.run import Run
from records import failure
from records import record as run_record

NOW = datetime(2026, 11, 26, 12).astimezone()


class Stopped(datetime):
    """A clock that has stopped."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return NOW.astimezone(tz)


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "datetime", Stopped)


def planned(
    out: Path, seeds: int, tune: tuple[Recipe, ...] = (0, 1), train_size: tuple[int, ...] = (100,)
) -> list[Run]:
    """The runs of a sweep, of which none has ended: all of the smallest k come first."""
    spec = Settings(model="m", train="t.csv", tune=tune, seeds=seeds, train_size=train_size, out=str(out))
    identity = Identity("w", "v", "d", 6, "accuracy", "float32", 128, 100, 0, "t", "text-classification", ("a", "b"))
    Store(out).write_spec({**spec.model_dump(mode="json"), "identity": {**vars(identity), "labels": ["a", "b"]}})
    return sorted(Folder(out).runs, key=lambda run: Recipe(run.recipe).order)


def end(out: Path, run: Run, seconds: float, outcome: str = "ok", **cost: float) -> None:
    """Publish the result of a run that took this long."""
    Store(out).publish(Result(run_record(run, outcome=outcome, cost={"run_seconds": seconds, **cost}), {}))


def time_left(out: Path, notes: list[str] | None = None) -> TimeLeft:
    said: list[str] = []
    left = time_left_of(Folder(out), Leases(out), said.append)
    assert said == (notes or [])
    return left


def forecast(out: Path, **seconds: float) -> None:
    cells = [KindForecast(name, 100, runs=1, seconds=one, memory_bytes=1.0) for name, one in seconds.items()]
    record(out, Forecast(tuple(cells), 0.0))


def take(leases: Leases, runs: Sequence[Run], ago: float) -> None:
    """Take these runs as one stack, which began this many seconds ago."""
    leases.take([[run.digest for run in runs]])
    since = (NOW - timedelta(seconds=ago)).isoformat(timespec="seconds")
    for lease in leases.current():
        if lease.run in {run.digest for run in runs}:
            path = leases.folder / f"{lease.run}.{lease.number}.json"
            path.write_text(path.read_text().replace(lease.since, since))


def left_of(seconds: float, **counts: int) -> TimeLeft:
    """The time left without a process that trains."""
    return TimeLeft(seconds, 0, counts)


def test_measured_times_come_before_the_forecast(tmp_path: Path) -> None:
    first, second, third, *of_one = planned(tmp_path, 3)
    assert time_left(tmp_path) == left_of(0.0, unknown=6)
    forecast(tmp_path, **{"last 1": 10.0, first.recipe: 99.0})
    assert time_left(tmp_path) == left_of(3 * 10.0 + 3 * 99.0, forecast=6)
    end(tmp_path, first, 2.0)
    end(tmp_path, second, 4.0)
    assert time_left(tmp_path) == left_of(3.0 + 3 * 10.0, measured=1, forecast=3)
    end(tmp_path, of_one[0], 0.1, outcome="diverged")  # it ended too early to count
    Store(tmp_path).fail(failure(of_one[1]))
    assert time_left(tmp_path) == left_of(3.0 + 10.0, measured=1, forecast=1)
    (tmp_path / "forecast.json").write_text('{"calls": [{"cells": [{}]}]}')
    assert time_left(tmp_path) == left_of(3.0 + 2 * 3.0, measured=1, scaled=1)
    end(tmp_path, third, 3.0)
    end(tmp_path, of_one[2], 3.0)
    assert time_left(tmp_path) == left_of(0.0)


@pytest.mark.parametrize(
    ("grid", "ended", "forecasts", "left"),
    [
        # 7 parts and the rest, instead of one and the rest
        ((2, (0, 1, "full")), {"head only": (1.0, 1.0), "last 1": (4.0, 4.0)}, (), left_of(2 * 4.0 * 8 / 2, scaled=2)),
        ((1, (0, 5)), {"head only": (2.0,)}, (), left_of(2.0 * 6, scaled=1)),
        ((2, (3,)), {"last 3": ("diverged",)}, (), left_of(0.0, unknown=1)),
        ((1, (2,), (50, 100)), {"last 2": (3.0,)}, (), left_of(6.0, scaled=1)),  # the smaller size has ended
        ((1, (1, "full")), {}, ({"last 1": 2.0, "full": 7.0}, {"last 1": 3.0}), left_of(3.0 + 7.0, forecast=2)),
        ((2, (3,)), {"last 3": ("failed",)}, (), left_of(0.0, unknown=1)),
        # a result without a time
        ((2, (1, "full")), {"last 1": (0.0,), "full": (8.0,)}, (), left_of(8.0 * 2 / 8 + 8.0, measured=1, scaled=1)),
        # LoRA in the last 2 layers
        ((1, ("full", "lora-2")), {"lora-2": (5.0,)}, (), left_of(5.0 * 8 / 3, scaled=1)),
    ],
)
def test_runs_of_a_kind_that_was_not_timed_have_the_best_estimate_there_is(
    tmp_path: Path, grid: Any, ended: dict[str, Any], forecasts: Sequence[dict[str, float]], left: TimeLeft
) -> None:
    """``ended``: by recipe, the seconds of its first runs, or what became of them."""
    runs = planned(tmp_path, *grid)
    for recipe, found in ended.items():
        for run, what in zip((run for run in runs if run.recipe == recipe), found, strict=False):
            if what == "failed":
                Store(tmp_path).fail(failure(run))
            elif what == "diverged":
                end(tmp_path, run, 2.0, outcome=what)
            else:
                end(tmp_path, run, what)
    for one in forecasts:  # a later one may be of fewer k
        forecast(tmp_path, **one)
    assert time_left(tmp_path) == left


def test_processes_share_the_runs_and_what_they_have_done_of_them_counts(tmp_path: Path) -> None:
    first, *runs = planned(tmp_path, 4)
    forecast(tmp_path, **{"last 1": 10.0})
    end(tmp_path, first, 10.0)
    with Leases(tmp_path) as one, Leases(tmp_path) as other:
        take(one, runs[:1], ago=4)
        assert time_left(tmp_path).seconds == pytest.approx(70 - 4)
        take(other, runs[1:3], ago=4)  # each run of a stack has had half of the time
        left = time_left(tmp_path)
        assert left.processes == 2 and left.seconds == pytest.approx(10 + 10 + 8 + 6)  # and 10 + 10 + 8
    with Leases(tmp_path) as late:
        take(late, runs[:1], ago=1000)
        assert time_left(tmp_path).seconds == 60  # and not less


def test_runs_that_a_process_trains_at_the_same_time_take_as_many_times_as_long(tmp_path: Path) -> None:
    first, *runs = planned(tmp_path, 3)
    end(tmp_path, first, 5.0)
    end(tmp_path, runs[2], 5.0)
    with Leases(tmp_path, at_a_time=2) as both:
        both.take([[runs[0].digest]])
        assert time_left(tmp_path).seconds == pytest.approx(20.0)  # also of those that nobody has yet
        both.take([[runs[1].digest]])
        assert time_left(tmp_path).seconds == pytest.approx(20.0)
        for run in (runs[0], *runs[3:]):
            Store(tmp_path).fail(failure(run))
        assert time_left(tmp_path).seconds == pytest.approx(10.0)  # no process can split the last run


def test_of_many_results_some_are_read_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    runs = planned(tmp_path, 100, tune=(1,))
    for number, run in enumerate(runs[:99]):
        end(tmp_path, run, float(number))
    assert time_left(tmp_path).seconds == pytest.approx(47.5, abs=3)
    for record_of_run in (tmp_path / "runs").rglob("result.json"):
        record_of_run.write_text("{")
    time_left_of(Folder(tmp_path), Leases(tmp_path), (notes := list[str]()).append)
    assert SAMPLED / 2 < len(notes) <= SAMPLED and all("is damaged" in note for note in notes)


@pytest.mark.parametrize("since", ["yesterday", "0001-01-01T00:00:00+23:00", "9999-12-31T00:00:00"])
def test_an_unreadable_or_late_beginning_counts_as_now(tmp_path: Path, since: str) -> None:
    first, second, *_ = planned(tmp_path, 2, tune=(1,))
    end(tmp_path, first, 5.0)
    with Leases(tmp_path, at_a_time=2**32) as leases:
        leases.take([[second.digest]])
        (file,) = leases.folder.glob("*.json")
        (lease,) = leases.current()
        file.write_text(file.read_text().replace(lease.since, since).replace("4294967296", "1"))
        left = time_left(tmp_path)
        assert left.processes == 1 and left.seconds == 5.0


def test_the_time_of_a_run_that_was_continued_is_that_of_all_its_parts(tmp_path: Path) -> None:
    first, *_ = planned(tmp_path, 2, tune=(1,))
    end(tmp_path, first, 1.0, train_seconds=5.0, evaluation_seconds=2.0)
    assert time_left(tmp_path).seconds == 7.0
