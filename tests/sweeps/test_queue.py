"""The order in which processes take stacks of runs: each stack once, and every process knows when it is done."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import frostline.sweeps.execution.queue as queue_module
from frostline.sweeps.execution.queue import Queue, Stack, shared_out
from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.store import Store
from frostline.training.result import Result
from frostline.training.run import Run
from records import failure, record, spec_of_run

MANY = [spec_of_run(seed=seed) for seed in range(40)]
# For each stack: its group, its cost and its number of runs.
DRAWN = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.integers(1, 3)), min_size=1, max_size=12)
# Who does something next, and whether it takes a stack or ends its oldest one.
TURNS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=80)


class Team:
    """Processes that share stacks, each with a queue of its own. Nobody has the ``free`` runs, and they have not ended."""

    def __init__(self, drawn: list[tuple[int, int, int]], count: int) -> None:
        runs, self.group, self.cost = iter(MANY), dict[str, int](), dict[str, int]()
        self.stacks = list[Stack]()
        for group, cost, size in drawn:
            self.stacks.append([next(runs) for _ in range(size)])
            self.group |= {run.digest: group for run in self.stacks[-1]}
            self.cost |= {run.digest: cost for run in self.stacks[-1]}
        self.free, self.ended = set(self.group), set[str]()
        self.has: list[list[Stack]] = [[] for _ in range(count)]
        self.last: list[int | None] = [None] * count
        self.queues = [
            Queue(self.stacks, lambda run: self.group[run.digest], lambda stack: self.cost[stack[0].digest])
            for _ in range(count)
        ]

    @property
    def taken(self) -> set[str]:
        return {run.digest for held in self.has for stack in held for run in stack}

    def end(self, who: int) -> None:
        if self.has[who]:
            self.ended |= {run.digest for run in self.has[who].pop(0)}

    def take(self, who: int) -> Stack:
        """Take the first stack with a free run; returns its free runs."""
        queue = self.queues[who]
        queue.remove(self.ended)
        wanted = ([run for run in stack if run.digest in self.free] for stack in queue.in_order(self.taken))
        first = next((stack for stack in wanted if stack), [])
        if first:
            queue.took(first[0].digest)
            self.has[who].append(first)
            self.last[who] = self.group[first[0].digest]
            self.free -= {run.digest for run in first}
        return first

    def longest_free(self) -> dict[int, int]:
        """The cost of the longest free stack of each group that has one."""
        found: dict[int, int] = {}
        for run in self.free:
            found[self.group[run]] = max(self.cost[run], found.get(self.group[run], 0))
        return found


@given(DRAWN, TURNS)
def test_processes_stay_with_their_group_and_begin_with_the_longest(
    drawn: list[tuple[int, int, int]], turns: list[tuple[int, bool]]
) -> None:
    team, dealt = Team(drawn, 4), list[str]()
    start = [(who, True) for who in range(4)]
    finish = [(who, takes) for _ in range(len(drawn)) for who in range(4) for takes in (True, False)]
    for who, takes in [*start, *turns, *finish]:
        if not takes:
            team.end(who)
            continue
        longest, last = team.longest_free(), team.last[who]
        untouched = longest.keys() - {team.group[run] for run in team.taken}
        got = team.take(who)
        assert bool(got) == bool(longest)
        if got:
            dealt += [run.digest for run in got]
            group = team.group[got[0].digest]
            assert team.cost[got[0].digest] == longest[group]  # the longest of its group
            if last in longest:
                assert group == last
            elif untouched:
                assert group in untouched and longest[group] == max(longest[one] for one in untouched)
            else:
                assert longest[group] == max(longest.values())
    assert sorted(dealt) == sorted(team.group)  # every run once


RUNS = [spec_of_run(seed=seed) for seed in range(4)]
STACKS = [RUNS[:2], RUNS[2:3], RUNS[3:]]


def finish(store: Store, runs: list[Run] | None) -> None:
    assert runs
    for run in runs:
        store.publish(Result(record(run), {}))


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL", "PAUSE"):
        monkeypatch.setattr(queue_module, name, 0.0)


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
