"""Requests to stop: who heeds them, and what is raised."""

import os
import signal
from time import monotonic

import pytest

from frostline.sweeps.execution.stopping import Stopped, StopRequest


@pytest.fixture
def request_to_stop() -> StopRequest:
    return StopRequest()


def test_a_run_that_has_trained_for_long_stops_after_its_step(request_to_stop: StopRequest) -> None:
    leaving = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt) as found, request_to_stop.heeded():
        request_to_stop.since = monotonic() - StopRequest.WORTH_KEEPING - 1
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


def test_a_step_that_does_not_end_is_given_up(request_to_stop: StopRequest) -> None:
    request_to_stop.give_up()
    with pytest.raises(SystemExit) as found, request_to_stop.heeded():
        request_to_stop.since = monotonic() - StopRequest.WORTH_KEEPING - 1
        request_to_stop.make(SystemExit(143))
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 20
        request_to_stop.give_up()
    assert found.value.code == 143


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forks")
def test_a_fork_sees_a_request_that_is_made_later(request_to_stop: StopRequest) -> None:
    import multiprocessing

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
        request_to_stop.since = monotonic() - StopRequest.WORTH_KEEPING - 1
        request_to_stop.make(SystemExit())
        ours.send("look")
        assert ours.poll(30) and ours.recv() == "stopped"
        request_to_stop.stop_if_made()
    process.join()


def test_a_request_after_the_last_step_is_not_lost(request_to_stop: StopRequest) -> None:
    with pytest.raises(SystemExit) as found, request_to_stop.heeded():
        request_to_stop.since = monotonic() - StopRequest.WORTH_KEEPING - 1
        request_to_stop.make(SystemExit(143))  # while the last run is evaluated
    assert found.value.code == 143
