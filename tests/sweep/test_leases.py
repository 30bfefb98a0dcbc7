"""Leases: one holder at a time, dead holders are replaced, and no clock of another machine counts."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

import frostline.sweep.results.leases as leases_module
from frostline import FrostlineError
from frostline.sweep.results.leases import Leases
from hostile import without_locks


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The clock of this process, which a test can set."""
    now = [1000.0]
    monkeypatch.setattr(leases_module, "monotonic", lambda: now[0])
    yield now


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every holder looks as if it ran on another machine, so that only its beat counts."""
    monkeypatch.setattr(leases_module, "kernel", lambda: "")


def beat(leases: Leases, number: int) -> None:
    (leases.folder / f"{leases.holder}.beat").write_text(str(number))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_has_one_holder_until_it_is_given_back(tmp_path: Path) -> None:
    with Leases(tmp_path, silent_after=30) as one, Leases(tmp_path) as other:
        assert one.take([["a", "b"], ["c"]]) == ["a", "b"] and other.take([["a", "b"], ["b", "c"]]) == ["c"]
        assert one.take([["a"]]) == [] == other.take([["a"]])
        assert [(lease.run, lease.holder) for lease in one.current()] == [
            ("a", one.holder),
            ("b", one.holder),
            ("c", other.holder),
        ]
        one.release(["a"])
        assert other.take([["a", "b"]]) == ["a"] and set(other.held) == {"a", "c"}
    assert files(tmp_path / "leases") == []


def test_of_many_holders_one_gets_a_run(tmp_path: Path) -> None:
    with ExitStack() as opened, ThreadPoolExecutor(8) as pool:
        many = [opened.enter_context(Leases(tmp_path)) for _ in range(8)]
        taken = list(pool.map(lambda leases: leases.take([["a"]]), many))
        assert sorted(map(len, taken)) == [0] * 7 + [1]


def test_a_killed_process_is_replaced_at_once_on_the_same_machine(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from frostline.sweep.results.leases import Leases
with Leases(Path({str(tmp_path)!r})) as leases:
    leases.take([["a", "b"]])
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    with Leases(tmp_path) as leases:
        assert [lease.run for lease in leases.current()] == ["a", "b"]
        assert leases.take([["a"]]) == ["a"]
        leases.forget({"b"})  # it has ended; another process may have published its result
        assert [(lease.run, lease.number) for lease in leases.current()] == [("a", 2)]
    assert files(tmp_path / "leases") == []


@pytest.mark.usefixtures("elsewhere")
def test_a_silent_holder_on_another_machine_is_replaced_after_the_time_of_who_waits(
    tmp_path: Path, clock: list[float]
) -> None:
    with Leases(tmp_path, silent_after=5.0) as silent, Leases(tmp_path, silent_after=30.0) as other:
        silent.take([["a"]])
        assert not other.take([["a"]]) and other.undecided()  # is it dead?
        clock[0] += 29
        assert not other.take([["a"]]) and other.undecided()
        beat(silent, 7)
        assert not other.take([["a"]]) and not other.undecided()  # it lives
        clock[0] += 30
        assert not other.take([["a"]])
        clock[0] += 1
        assert other.take([["a"]]) == ["a"]
        assert [(lease.holder, lease.number) for lease in silent.current()] == [(other.holder, 2)]
        silent.release(["a"])  # it was not dead: what it gives back is no longer its own
        assert [lease.holder for lease in silent.current()] == [other.holder]


@pytest.mark.usefixtures("elsewhere")
def test_a_wrong_clock_of_another_machine_does_no_harm(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    with Leases(tmp_path) as one, Leases(tmp_path) as other:
        one.take([["a"]])
        for modified in (0, 4e9):  # 1970 and 2096
            for path in (tmp_path / "leases").iterdir():
                os.utime(path, (modified, modified))
            assert not other.take([["a"]])


def test_a_process_that_was_stopped_is_dead_even_if_it_still_has_its_lock(tmp_path: Path, clock: list[float]) -> None:
    with Leases(tmp_path) as stopped, Leases(tmp_path) as other:
        stopped.take([["a"]])
        assert not other.take([["a"]]) and not other.undecided()  # its lock shows that it exists
        clock[0] += 31
        assert other.take([["a"]]) == ["a"]


def test_only_one_of_many_replaces_a_dead_holder(tmp_path: Path) -> None:
    with Leases(tmp_path) as dead:
        dead.take([["a"]])
        (path,) = (tmp_path / "leases").glob("a.*.json")
        left = path.read_bytes()
    path.write_bytes(left)  # its beat is gone
    with ExitStack() as opened, ThreadPoolExecutor(8) as pool:
        many = [opened.enter_context(Leases(tmp_path)) for _ in range(8)]
        taken = list(pool.map(lambda leases: leases.take([["a"]]), many))
        assert sorted(map(len, taken)) == [0] * 7 + [1]


def test_a_holder_without_locks_lives_while_its_beat_changes(tmp_path: Path, clock: list[float]) -> None:
    """Locks may work for the process that looks, which must not take a free lock as a sign of death."""
    with Leases(tmp_path) as looking, ExitStack() as opened:
        with without_locks():
            other = opened.enter_context(Leases(tmp_path))
        other.take([["a"]])
        assert not looking.take([["a"]])
        clock[0] += 31
        assert looking.take([["a"]]) == ["a"]


def test_files_of_a_killed_process_without_leases_are_removed(tmp_path: Path) -> None:
    with Leases(tmp_path) as living:
        (tmp_path / "leases" / "dead.beat").write_text(f"{leases_module.kernel()} 3")
        (tmp_path / "leases" / "dead.lock").write_text("")
        (tmp_path / "leases" / "elsewhere.beat").write_text("another-kernel 3")
        with Leases(tmp_path):
            pass
        kept = {f"{living.holder}.beat", f"{living.holder}.lock", "elsewhere.beat"}  # the last one may live
        assert set(files(tmp_path / "leases")) == kept


def test_a_look_at_a_holder_that_ends_meanwhile_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Leases(tmp_path) as watching, ExitStack() as ending:
        ending.enter_context(Leases(tmp_path)).take([["a"]])
        (lease,) = watching.current()
        is_free = watching._lock_is_free

        def after_its_end(holder: str) -> bool:
            ending.close()
            return is_free(holder)

        monkeypatch.setattr(watching, "_lock_is_free", after_its_end)
        assert watching.is_dead(lease)
    assert not list((tmp_path / "leases").iterdir())


def test_a_holder_beats_while_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "BEAT", 0.01)
    with Leases(tmp_path) as leases:
        path, seen = leases.folder / f"{leases.holder}.beat", set[str]()
        for _ in range(500):
            seen.add(path.read_text())
            if len(seen - {""}) > 2:
                break
            time.sleep(0.01)
        assert len(seen - {""}) > 2


@pytest.mark.parametrize(
    "change",
    [
        {"holder": "../../x"},
        {"holder": "x" * 65},  # no file could have the name of its beat
        {"holder": 7},
        {"host": "h" * 257},
        {"pid": -1},
        {"pid": 10**400},
        {"at_a_time": 0},
        {"at_a_time": 2**33},
        {"at_a_time": True},
        {"since": ["now"]},
        {"more": 1},
        {"silent_after": 1e300},  # how long to wait is the decision of who waits
    ],
)
def test_a_lease_that_no_holder_has_written_is_free(tmp_path: Path, change: dict[str, object]) -> None:
    with Leases(tmp_path / "o") as one, Leases(tmp_path / "o") as other:
        one.take([["a"]])
        path = tmp_path / "o" / "leases" / "a.1.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        assert other.take([["a"]]) == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


@pytest.mark.parametrize(
    "name",
    [
        "a.99999999999.json",
        "a.10000.json",
        "a.0.json",
        "a.007.json",
        f"{'a' * 65}.1.json",
        "a.\u0661.json",
        "a.-1.json",
    ],
)
def test_a_file_with_the_name_of_no_lease_is_ignored_and_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / name).write_text("{}")
    with Leases(tmp_path) as leases:
        assert leases.take([["a"]]) == ["a"] and leases.held == {"a": 1}
        leases.release(["a"])
    assert files(tmp_path / "leases") == [name]


def test_the_highest_forged_number_is_refused_and_the_next_one_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "a.9999.json").write_text("{}")
    (tmp_path / "leases" / "b.9998.json").write_text("{}")
    with Leases(tmp_path) as leases:
        assert leases.take([["b"]]) == ["b"] and leases.held == {"b": 9999}
        with pytest.raises(FrostlineError, match=r"a\.9999\.json is a lease that no process can take over: remove it"):
            leases.take([["a"]])
    assert files(tmp_path / "leases") == ["a.9999.json"]


def test_a_lease_or_beat_that_cannot_be_read_keeps_nobody_waiting(tmp_path: Path, clock: list[float]) -> None:
    """A loop of links, and a beat whose holder has taken away the permission to read it."""
    with Leases(tmp_path) as one, Leases(tmp_path) as other:
        one.take([["a"]])
        (other.folder / "b.1.json").symlink_to("b.1.json")
        assert other.take([["b"]]) == ["b"]
        own = other.folder / f"{one.holder}.beat"
        own.unlink()
        own.symlink_to(own.name)
        assert not other.take([["a"]])
        clock[0] += 31
        assert other.take([["a"]]) == ["a"]


def test_other_and_damaged_files_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Leases(tmp_path) as one, Leases(tmp_path) as other:
        one.take([["a", "b"]])
        (tmp_path / "leases" / "a.1.json").write_text("{")
        for name in ("notes.json", "a.x.json", ".a.7.json"):
            (tmp_path / "leases" / name).write_text("")
        assert other.take([["a", "b"]]) == ["a"]

        def interrupted(path: Path, *_: object) -> str:
            raise OSError(116, "Stale file handle")

        monkeypatch.setattr(Path, "read_text", interrupted)
        assert not other.take([["b"]])  # nothing is known of its holder
    assert files(tmp_path / "leases") == [".a.7.json", "a.x.json", "notes.json"]


def test_a_lease_shows_who_has_it(tmp_path: Path) -> None:
    import os
    import platform

    with Leases(tmp_path) as leases:
        leases.take([["a"]])
        (lease,) = leases.current()
        assert (lease.host, lease.pid) == (platform.node(), os.getpid()) and lease.since[10] == "T"
        assert not leases.is_dead(lease) and leases.is_dead(replace(lease, holder="gone"))


def test_what_killed_processes_were_writing_is_removed_when_no_process_is_left(tmp_path: Path) -> None:
    parts = (
        tmp_path / "leases" / ".a.1.json.12345678.part",
        tmp_path / "runs" / ".a.12345678.part" / "result.json",
        tmp_path / "checkpoints" / ".a.12345678.part",
    )
    with Leases(tmp_path):
        with Leases(tmp_path):
            for path in parts:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("{")
        assert all(path.exists() for path in parts)  # the other one may be writing them
        (tmp_path / "runs" / "b").mkdir()
    assert (
        files(tmp_path / "leases") == [] and files(tmp_path / "runs") == ["b"] and files(tmp_path / "checkpoints") == []
    )


def test_a_lease_or_beat_that_is_no_ordinary_file_is_that_of_nobody(tmp_path: Path) -> None:
    """A folder may come from others. Reading a named pipe would wait for ever."""
    leases = Leases(tmp_path)
    leases.folder.mkdir()
    os.mkfifo(leases.folder / "aa.1.json")
    (lease,) = leases.current()
    os.mkfifo(leases.folder / f"{lease.holder}.beat")
    assert lease.holder == "nobody" and leases.is_dead(lease)
    (leases.folder / "bb.1.json").symlink_to("/etc/hostname")
    assert [one.holder for one in leases.current()] == ["nobody", "nobody"]  # the link is not followed
