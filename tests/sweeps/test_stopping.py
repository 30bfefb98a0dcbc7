"""Requests to stop, and the checkpoints of runs: who heeds a request, and when a checkpoint is kept."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from frostline.sweeps.execution.stacks import EVERY, RunCheckpoints
from frostline.sweeps.execution.stopping import STOP, Stopped, StopRequest
from frostline.sweeps.results.tensor_files import TensorFiles

RUN: Any = SimpleNamespace(digest="aa", recipe="last 1", seed=0)
LONG_AGO = StopRequest.WORTH_KEEPING + 1


@pytest.fixture
def request_to_stop() -> StopRequest:
    return StopRequest()


@pytest.fixture(autouse=True)
def nothing_is_trained() -> Iterator[None]:
    """After each test: a checkpoint says that a run is trained."""
    yield
    STOP.since = None


def test_a_run_that_has_trained_for_long_stops_after_its_step(request_to_stop: StopRequest) -> None:
    leaving = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as found, request_to_stop.heeded():
        request_to_stop.since = monotonic() - LONG_AGO
        request_to_stop.stop_if_made()
        assert request_to_stop.make(leaving) and request_to_stop.made
        assert not request_to_stop.make(SystemExit())  # the second signal
        request_to_stop.stop_if_made()
    assert found.value is leaving
    assert not request_to_stop.made and signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.parametrize("trained", [None, 1.0])
def test_nothing_waits_for_a_run_that_has_just_begun(request_to_stop: StopRequest, trained: float | None) -> None:
    with request_to_stop.heeded():
        request_to_stop.since = None if trained is None else monotonic() - trained
        assert not request_to_stop.make(SystemExit()) and not request_to_stop.made


@pytest.mark.parametrize("given_up", [False, True])
def test_a_request_is_not_lost(request_to_stop: StopRequest, given_up: bool) -> None:
    """It may come while the last run is evaluated, or in a step that does not end, which is then given up."""
    request_to_stop.give_up()
    with pytest.raises(SystemExit) as found, request_to_stop.heeded():
        request_to_stop.since = monotonic() - LONG_AGO
        request_to_stop.make(SystemExit(143))
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 20
        if given_up:
            request_to_stop.give_up()
    assert found.value.code == 143


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forks")
def test_a_fork_sees_a_request_that_is_made_later(request_to_stop: StopRequest) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def wait_for_the_request() -> None:
        theirs.recv()
        try:
            request_to_stop.stop_if_made()
        except Stopped:
            theirs.send("stopped")

    process = context.Process(target=wait_for_the_request, daemon=True)
    process.start()
    with pytest.raises(SystemExit), request_to_stop.heeded():
        request_to_stop.since = monotonic() - LONG_AGO
        request_to_stop.make(SystemExit())
        ours.send("look")
        assert ours.poll(30) and ours.recv() == "stopped"
        request_to_stop.stop_if_made()
    process.join()


def checkpoints_of(out: Path, notes: list[str], trained: float, micro_batch: int = 8) -> RunCheckpoints:
    """Those of a run that has trained for so many seconds."""
    experiment: Any = SimpleNamespace(micro_batch=lambda spec: micro_batch)
    return RunCheckpoints(TensorFiles(out, "checkpoints"), [RUN], experiment, notes.append, since=monotonic() - trained)


def state(step: int) -> dict[str, Any]:
    return {"present": {"training": {"step": step}}, "finished": [{"records": [{"steps": 5}]}]}


def test_a_checkpoint_is_kept_after_every_ten_minutes_of_training(tmp_path: Path) -> None:
    kept = checkpoints_of(tmp_path, notes := [], EVERY - 9)
    kept.after_step(lambda: state(10))
    assert kept.load() is None
    kept.since -= 10
    for step in (11, 12):
        kept.after_step(lambda step=step: state(step))  # type: ignore[misc]
    assert kept.load() == state(11) and not notes
    assert [file.name.split(".")[:2] for file in kept.files.folder.iterdir()] == [["aa", "16"]]
    assert checkpoints_of(tmp_path, [], 0).load() == state(11)
    assert checkpoints_of(tmp_path, [], 0, micro_batch=4).load() is None  # with other parts of batches
    kept.stack = [RUN, SimpleNamespace(digest="bb")]
    assert kept.load() is None  # with other runs


def test_a_run_that_is_asked_to_stop_leaves_one_if_it_has_trained_for_long(tmp_path: Path) -> None:
    for seconds, expected in ((20, None), (40, state(3))):
        kept = checkpoints_of(tmp_path / str(seconds), [], seconds)
        with pytest.raises(SystemExit), STOP.heeded():
            STOP.since = monotonic() - LONG_AGO  # of another worker
            assert STOP.make(SystemExit())
            kept.after_step(lambda: state(3))
        assert kept.load() == expected


def test_a_checkpoint_that_cannot_be_kept_does_not_end_the_run(tmp_path: Path) -> None:
    kept = checkpoints_of(tmp_path, notes := [], EVERY + 1)
    (tmp_path / "checkpoints").write_text("in the way")
    for step in (3, 4):  # the next attempt is in ten minutes
        kept.after_step(lambda step=step: state(step))  # type: ignore[misc]
    assert len(notes) == 1 and notes[0].startswith("A checkpoint of last 1, seed 0 could not be kept (")
