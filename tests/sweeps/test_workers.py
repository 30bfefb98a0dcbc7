"""Concurrent runs: every task once, results bitwise identical to one worker, and no process left however it ends."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from frostline import FrostlineError
from frostline.sweeps.execution import workers as workers_module
from frostline.sweeps.execution.workers import run_concurrently, run_in_each_worker
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.store import Store
from tiny import Notes, assert_same_predictions, run_sweep

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forks")


def concurrently(
    tasks: Iterable[Any], workers: int, work: Callable[[Any, Progress], Any], shown: Progress
) -> list[Any]:
    """The tasks that are done, each with what ``work`` returned."""
    return list(run_concurrently(tasks, workers, work, lambda task: f"task {task}", shown))


def children() -> list[psutil.Process]:
    """The forks of this process that live; a browser of other tests is no fork."""
    own = psutil.Process().exe()
    living = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in living if child.exe() == own]


@pytest.mark.parametrize("workers", [2, 9])
def test_every_task_is_done_once_and_its_messages_arrive(workers: int) -> None:
    def do(task: str, progress: Progress) -> tuple[int, int]:
        progress.begin(task)
        progress.note(task)
        return os.getpid(), torch.get_num_threads()

    done = concurrently("abcde", workers, do, shown := Notes())
    assert sorted(shown.notes) == sorted(task for task, _ in done) == list("abcde")
    assert {threads for _, (_, threads) in done} == {1} and os.getpid() not in {pid for _, (pid, _) in done}
    assert shown.under_way == 0 and not children()


def test_work_under_way_is_summed_over_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "MESSAGE_INTERVAL", 0.0)
    seen: list[float] = []

    class Watched(Progress):
        def show(self) -> None:
            seen.append(self.under_way)

    def do(task: float, progress: Progress) -> None:
        progress.begin(f"{task:g}")
        for part in (0.25, 0.5, 1.0):
            progress.set_done(part * task)

    concurrently([1.0, 2.0, 4.0], 2, do, shown := Watched())
    assert shown.under_way == 0 and 4 <= max(seen) <= 6


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (FrostlineError("The disk is full."), FrostlineError, r"^The disk is full\.$"),
        (ZeroDivisionError("by nothing"), RuntimeError, "Traceback (.|\n)*ZeroDivisionError: by nothing"),
    ],
)
def test_an_error_is_raised_here_and_ends_the_other_workers(error: Exception, kind: type[Exception], said: str) -> None:
    def do(task: int, progress: Progress) -> None:
        if task == 1:
            raise error
        signal.pause()

    with pytest.raises(kind, match=said):
        concurrently(range(4), 2, do, Progress())
    assert not children()


def test_the_message_for_a_killed_worker_names_its_task() -> None:
    def do(task: str, progress: Progress) -> None:
        if task == "b":
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(FrostlineError, match=r"killed the worker that trained task b, probably .*workers = 1"):
        concurrently("abc", 2, do, Progress())
    assert not children()


def test_an_interrupt_leaves_no_worker() -> None:
    class Interrupting(Progress):
        def note(self, sentence: str) -> None:
            raise KeyboardInterrupt

    def do(task: int, progress: Progress) -> None:
        progress.note("begun")
        signal.pause()

    with pytest.raises(KeyboardInterrupt):
        concurrently(range(3), 3, do, Interrupting())
    assert not children()


def test_work_runs_once_in_each_worker_or_in_this_process() -> None:
    assert run_in_each_worker(1, os.getpid) == [os.getpid()]
    found = run_in_each_worker(3, os.getpid)
    assert len(set(found)) == 3 and os.getpid() not in found


def test_workers_give_bitwise_identical_results(settings: dict[str, Any], finished_small: Path) -> None:
    together = run_sweep({**settings, "workers": 2})
    ours, theirs = Store(together.folder), Store(finished_small)
    assert {one.provenance.workers for one in theirs.results().values()} == {1}
    assert_same_predictions(ours, theirs)
    assert [one.scores for one in ours.results().values()] == [one.scores for one in theirs.results().values()]
    assert together.table().status.eq("done").all()


def test_runs_of_k_0_are_split_among_the_workers(settings: dict[str, Any]) -> None:
    run_sweep({**settings, "tune": "0", "seeds": 5, "workers": 3})
    found = [facts.provenance.stacked for facts in Store(Path(settings["out"])).results().values()]
    assert sorted(found) == [1, 2, 2, 2, 2]


def test_results_record_how_many_runs_were_trained_at_the_same_time(settings: dict[str, Any]) -> None:
    settings = {**settings, "workers": 2, "stack": 1}
    run_sweep({**settings, "tune": "1", "seeds": 1})
    run_sweep({**settings, "tune": "0,1"})  # three runs are missing
    results = Store(Path(settings["out"])).results().values()
    concurrent = {(one.spec.recipe.k, one.spec.seed): one.provenance.workers for one in results}
    assert concurrent == {(1, 0): 1, (0, 0): 2, (0, 1): 2, (1, 1): 2}
    other = run_sweep({**settings, "tune": "1", "seeds": 3, "stack": 3, "out": Path(settings["out"]).with_name("p")})
    assert {one.provenance.workers for one in Store(other.folder).results().values()} == {1}  # stacks count, not runs


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interruption_while_workers_start_leaves_none(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers ignore SIGTERM, so Python would wait for one at its end for ever."""
    started: list[Any] = []
    start = multiprocessing.Process.start

    def interrupted(process: Any) -> None:
        if moment == "after" or not started:
            start(process)
        started.append(process)
        if len(started) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(multiprocessing.get_context("fork").Process, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        concurrently(range(3), 3, lambda number, sender: None, Progress())
    assert len(started) == 2 and not multiprocessing.active_children()
