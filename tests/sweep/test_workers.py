"""Runs side by side: each task once, the same bits as alone, and nothing left behind however it ends."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import frostline
import frostline.sweep.execution.execute as execute_module
from frostline import FrostlineError
from frostline.sweep.execution import workers as workers_module
from frostline.sweep.execution.progress import Progress
from frostline.sweep.execution.workers import in_each, run_concurrently, workers_for
from frostline.sweep.results.store import Store
from frostline.training.run import run
from tiny import go

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forks")


class Heard(Progress):
    """Remembers what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self.results: list[Any] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)

    def result(self, facts: Any, trainable: str) -> None:
        self.results.append(facts)


def say(task: object) -> str:
    return f"task {task}"


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("workers", [2, 3, 9])
def test_every_task_is_done_once_and_what_is_said_arrives(workers: int) -> None:
    heard = Heard()

    def do(task: str, progress: Progress) -> None:
        progress.begin(task)
        progress.note(f"{task} by {os.getpid()}")
        progress.result({"task": task, "threads": torch.get_num_threads()}, "")
        progress.finish(1.0)

    heard.start(5, 5.0)
    run_concurrently(list("abcde"), workers, do, say, heard)
    assert sorted(facts["task"] for facts in heard.results) == list("abcde")
    assert {facts["threads"] for facts in heard.results} == {1}
    assert str(os.getpid()) not in " ".join(heard.notes) and heard.done == 5 and heard.under_way == 0
    assert not children()


def test_what_is_under_way_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "OFTEN", 0.0)
    seen: list[tuple[float, float]] = []

    class Watched(Progress):
        def show(self) -> None:
            seen.append((self.done, self.under_way))

    def do(task: float, progress: Progress) -> None:
        progress.begin(f"{task:g}")
        for part in (0.25, 0.5, 1.0):
            progress.advance(part * task)
        progress.finish(task)

    shown = Watched()
    run_concurrently([1.0, 2.0, 4.0], 2, do, say, shown)
    assert shown.done == 7 and shown.under_way == 0 and max(done + under_way for done, under_way in seen) <= 7


@pytest.mark.parametrize("error", [FrostlineError("The disk is full."), ZeroDivisionError("by nothing")])
def test_an_error_comes_out_as_it_was_and_ends_the_others(error: Exception) -> None:
    def do(task: int, progress: Progress) -> None:
        if task == 1:
            raise error
        signal.pause()

    with pytest.raises(type(error), match=str(error)):
        run_concurrently(range(4), 2, do, say, Progress())
    assert not children()


def test_an_error_that_cannot_travel_is_told_in_words() -> None:
    class Local(Exception):
        pass

    def do(task: int, progress: Progress) -> None:
        raise Local("of this function")

    with pytest.raises(RuntimeError, match="of this function"):
        run_concurrently([0], 2, do, say, Progress())


def test_a_worker_that_is_killed_is_said_with_what_it_was_at() -> None:
    def do(task: str, progress: Progress) -> None:
        if task == "b":
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(FrostlineError, match=r"The worker at task b was ended by the system.*--workers 1"):
        run_concurrently(["a", "b", "c"], 2, do, say, Progress())
    assert not children()


def test_an_interrupt_leaves_no_worker() -> None:
    class Impatient(Progress):
        def note(self, sentence: str) -> None:
            raise KeyboardInterrupt

    def do(task: int, progress: Progress) -> None:
        progress.note("begun")
        signal.pause()

    with pytest.raises(KeyboardInterrupt):
        run_concurrently(range(3), 3, do, say, Impatient())
    assert not children()


def test_in_each_asks_every_worker_or_this_process_alone() -> None:
    assert in_each(1, os.getpid) == [os.getpid()]
    found = in_each(3, os.getpid)
    assert len(set(found)) == 3 and os.getpid() not in found


def test_a_sweep_gives_the_same_bits_with_workers_as_on_one_thread(settings: dict[str, Any], tmp_path: Path) -> None:
    go({**settings, "workers": 1, "out": tmp_path / "alone"})
    together = go({**settings, "workers": 2, "out": tmp_path / "together"})
    ours, theirs = Store(tmp_path / "together"), Store(tmp_path / "alone")
    assert ours.results().keys() == theirs.results().keys() and together.table().status.eq("done").all()
    for digest, facts in theirs.results().items():
        assert ours.results()[digest]["scores"] == facts["scores"]
        for name, logits in theirs.predictions(digest).items():
            assert np.array_equal(ours.predictions(digest)[name], logits)


def test_an_interrupted_sweep_goes_on(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(Progress):
        def result(self, facts: Any, trainable: str) -> None:
            raise KeyboardInterrupt

    settings = {**settings, "workers": 2, "stack": 1}
    with pytest.raises(KeyboardInterrupt):
        frostline.Sweep(progress=Impatient(), **settings).run()
    before = Store(settings["out"]).results()
    assert before and not children()
    again = go(settings)
    assert again.table().status.eq("done").all()
    assert all(Store(settings["out"]).results()[digest] == facts for digest, facts in before.items())


def test_a_run_that_fails_in_a_worker_fails_alone(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def sometimes(spec: Any, context: Any, **more: Any) -> Any:
        if spec.tune == 1:
            raise RuntimeError("out of memory, say")
        return run(spec, context, **more)

    monkeypatch.setattr(execute_module, "run", sometimes)
    sweep = go({**settings, "workers": 2, "stack": 1})
    table = sweep.table()
    assert set(table[table.tuned_layers == 1].status) == {"failed"} and (table.status == "done").any()
    assert table[table.tuned_layers == 1].reason.str.contains("out of memory, say").all()


@pytest.mark.parametrize(("stack", "sizes"), [("auto", [2, 2, 2, 2, 1]), (4, [4, 4, 4, 4, 1])])
def test_heads_alone_are_shared_out_among_the_workers_unless_a_number_is_given(
    settings: dict[str, Any], stack: int | str, sizes: list[int]
) -> None:
    go({**settings, "tune": "0", "seeds": 5, "workers": 3, "stack": stack})
    found = [facts["provenance"]["stacked"] for facts in Store(Path(settings["out"])).results().values()]
    assert sorted(found, reverse=True) == sizes


def test_a_run_that_goes_alone_has_the_whole_clock(settings: dict[str, Any]) -> None:
    settings = {**settings, "workers": 2, "stack": 1}
    go({**settings, "tune": "1", "seeds": 1})
    go({**settings, "tune": "0,1"})  # three runs are missing
    results = Store(Path(settings["out"])).results().values()
    abreast = {(one["spec"]["tune"], one["spec"]["seed"]): one["provenance"]["workers"] for one in results}
    assert abreast == {(1, 0): 1, (0, 0): 2, (0, 1): 2, (1, 1): 2}
    for tune, together in (("0,1", 2), ("1", 1)):  # stacks are what goes side by side
        other = go({**settings, "tune": tune, "seeds": 3, "stack": 3, "out": Path(settings["out"]).with_name(tune)})
        assert {one["provenance"]["workers"] for one in Store(Path(other.spec.out)).results().values()} == {together}


def test_how_many(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def count(**more: Any) -> int:
        sweep = frostline.Sweep(progress=Progress(), **{**settings, **more})
        prepared = sweep._prepare(Progress())
        return workers_for(prepared, sweep._requested(prepared))

    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert count() == 1  # too little to do
    with monkeypatch.context() as slow:  # a head alone hardly computes, and takes its time for every step
        slow.setattr(workers_module, "A_STEP", 1e11)
        assert count(tune="0", seeds=5) == 4
    assert count(workers=3, seeds=5) == 3 and count(workers=1) == 1
    monkeypatch.setattr(workers_module, "WORTH", 1.0)
    assert count(seeds=5) == 4
    assert count(seeds=1, tune="0") == 1
    monkeypatch.setattr(workers_module, "KEPT", 1e12)  # too much for the memory
    assert count(seeds=5) == 1
    monkeypatch.setattr(workers_module, "KEPT", 64)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    assert count() == 1  # so few runs leave most cores idle
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert count(seeds=5) == 1
