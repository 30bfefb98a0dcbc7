"""When checkpoints of a run are kept."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import frostline.sweeps.execution.stacks as checkpoints_module
from frostline.sweeps.execution.stacks import RunCheckpoints
from frostline.sweeps.execution.stopping import Stopped, StopRequest
from frostline.sweeps.results.tensor_files import CheckpointFiles

RUN: Any = SimpleNamespace(digest="aa", recipe="last 1", seed=0)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(checkpoints_module, "monotonic", clock)
    return clock


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> StopRequest:
    stop = StopRequest()
    monkeypatch.setattr(checkpoints_module, "STOP", stop)
    return stop


def checkpoints_of(out: Path, clock: Clock, notes: list[str]) -> RunCheckpoints:
    experiment: Any = SimpleNamespace(micro_batch=lambda spec: 8)
    return RunCheckpoints(CheckpointFiles(out), [RUN], experiment, notes.append, since=clock())


def state(step: int) -> dict[str, Any]:
    return {"present": {"training": {"step": step}}, "finished": [{"records": [{"steps": 5}]}]}


def test_every_ten_minutes_of_training(tmp_path: Path, clock: Clock, stop: StopRequest) -> None:
    kept = checkpoints_of(tmp_path, clock, notes := [])
    for step in range(1, 26):
        clock.now += 60
        kept.after_step(lambda step=step: state(step))  # type: ignore[misc]
        if step == 10:
            assert kept.load() is None
    assert kept.load() == state(22) and not notes  # after 11 minutes, and after 11 more
    assert [file.name.split(".")[:2] for file in kept.files.folder.iterdir()] == [["aa", "27"]]


def test_a_run_that_is_asked_to_stop_leaves_one_if_it_has_trained_for_long(
    tmp_path: Path, clock: Clock, stop: StopRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StopRequest, "made", True)
    for seconds, expected in ((20, None), (40, state(3))):
        kept = checkpoints_of(tmp_path / str(seconds), clock, [])
        clock.now += seconds
        with pytest.raises(Stopped):
            kept.after_step(lambda: state(3))
        assert kept.load() == expected


def test_a_checkpoint_that_cannot_be_kept_does_not_end_the_run(tmp_path: Path, clock: Clock, stop: StopRequest) -> None:
    kept = checkpoints_of(tmp_path, clock, notes := [])
    (tmp_path / "checkpoints").write_text("in the way")
    clock.now += 601
    kept.after_step(lambda: state(3))
    assert len(notes) == 1 and notes[0].startswith("A checkpoint of last 1, seed 0 could not be kept (")
    kept.after_step(lambda: state(4))
    assert len(notes) == 1  # the next attempt is in ten minutes


def test_with_other_parts_of_batches_or_other_runs_training_starts_again(
    tmp_path: Path, clock: Clock, stop: StopRequest
) -> None:
    kept = checkpoints_of(tmp_path, clock, [])
    clock.now += 601
    kept.after_step(lambda: state(3))
    assert checkpoints_of(tmp_path, clock, []).load() == state(3)
    kept.experiment.micro_batch = lambda spec: 4  # type: ignore[method-assign]
    assert kept.load() is None
    other = checkpoints_of(tmp_path, clock, [])
    other.stack = [RUN, SimpleNamespace(digest="bb")]
    assert other.load() is None
