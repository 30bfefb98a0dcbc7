"""Runs are dealt out to several processes: each stack once, and every process knows when it is done."""

import os
import shutil
from pathlib import Path

import pytest

import frostline.sweep.execution.queue as sharing_module
from frostline.sweep.execution.queue import Queue, shared_out
from frostline.sweep.results.leases import Leases
from frostline.sweep.results.store import Store
from frostline.training.result import Result
from frostline.training.run import Run
from records import failure, record, spec_of_run

RUNS = [spec_of_run(seed=seed) for seed in range(4)]
STACKS = [RUNS[:2], RUNS[2:3], RUNS[3:]]


def finish(store: Store, runs: list[Run] | None) -> None:
    assert runs
    for run in runs:
        store.publish(Result(record(run), {}))


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL", "PAUSE"):
        monkeypatch.setattr(sharing_module, name, 0.0)


def test_alone_it_deals_out_every_stack_in_order(tmp_path: Path) -> None:
    store, dealt = Store(tmp_path), []
    for stack in shared_out(Queue(STACKS), store, Leases(tmp_path), wait=False):
        dealt.append(stack)
        finish(store, stack)
    assert dealt == STACKS and not list((tmp_path / "leases").iterdir())


def test_two_share_and_each_sees_what_the_other_has_ended(tmp_path: Path) -> None:
    store, seen = Store(tmp_path), list[Run]()
    one = shared_out(Queue(STACKS), store, Leases(tmp_path), wait=True, on_other=seen.append)
    other = shared_out(Queue([RUNS]), store, Leases(tmp_path), wait=False)
    first = next(one)
    assert first == RUNS[:2]
    second = next(other)
    assert second == RUNS[2:]  # the rest of its larger stack
    assert next(one) is None and next(other) is None  # the other has what is left; its own is under way
    finish(store, second)
    assert list(other) == []  # nothing that it could take, and it does not wait
    assert next(one) is None and seen == RUNS[2:]
    store.fail(failure(RUNS[0]))  # a failed run has ended, too
    finish(store, RUNS[1:2])
    assert list(one) == [] and seen == RUNS[2:] and not list((tmp_path / "leases").iterdir())


def test_two_take_the_runs_of_different_groups(tmp_path: Path) -> None:
    store = Store(tmp_path)
    queues = [Queue([[run] for run in RUNS], lambda run: run.seed % 2, lambda stack: 1.0) for _ in range(2)]
    one, other = (shared_out(queue, store, Leases(tmp_path), wait=True) for queue in queues)
    assert next(one) == RUNS[:1] and next(other) == RUNS[1:2]
    finish(store, RUNS[:2])
    assert next(other) == RUNS[3:]  # of its own group
    finish(store, RUNS[3:])
    assert next(other) == RUNS[2:3]  # it helps
    finish(store, RUNS[2:3])
    assert list(one) == list(other) == []


def test_what_is_not_finished_is_given_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    one = shared_out(Queue(STACKS), store, Leases(tmp_path), wait=True)
    next(one)
    one.close()
    assert next(shared_out(Queue(STACKS), store, Leases(tmp_path), wait=True)) == RUNS[:2]


def test_one_that_does_not_wait_takes_over_the_runs_of_the_dead(tmp_path: Path) -> None:
    with Leases(tmp_path) as silent:
        silent.take([[run.digest for run in RUNS]])
        for path in (tmp_path / "leases").glob("*.json"):
            path.write_text(path.read_text().replace('"kernel": "', '"kernel": "another '))
        assert list(shared_out(Queue(STACKS), Store(tmp_path), Leases(tmp_path), wait=False)) == []
        for path in (tmp_path / "leases").glob("*.json"):
            os.utime(path, (1, 1))
        assert next(shared_out(Queue(STACKS), Store(tmp_path), Leases(tmp_path), wait=False)) == STACKS[0]


def test_a_run_that_ends_between_the_look_at_the_folder_and_its_lease_is_not_trained_again(tmp_path: Path) -> None:
    class Slow(Store):
        def ended(self) -> set[str]:
            found = super().ended()
            if not found:  # now another process ends two runs and gives them back
                finish(Store(tmp_path), RUNS[:1])
                Store(tmp_path).fail(failure(RUNS[1]))
            return found

    for stacks, dealt in (([RUNS[:1], RUNS[1:]], RUNS[2:]), ([RUNS[:3], RUNS[3:]], RUNS[2:3])):
        seen, store = list[Run](), Slow(tmp_path)
        shared = shared_out(Queue(stacks), store, Leases(tmp_path), wait=False, on_other=seen.append)
        assert next(shared) == dealt
        finish(store, RUNS[2:])
        assert list(shared) == [] and seen[:2] == RUNS[:2] and not list((tmp_path / "leases").iterdir())
        shutil.rmtree(store.runs)
