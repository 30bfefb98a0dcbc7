"""Leases: one holder at a time, dead holders are replaced, and no clock of another machine counts."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import frostline.sweeps.results.leases as leases_module
from frostline import FrostlineError
from frostline.sweeps.results.leases import Leases


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every holder looks as if it ran on another machine, so that only its signs of life count."""
    monkeypatch.setattr(leases_module, "kernel", lambda: "")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def change(path: Path, **facts: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


def silence(path: Path, seconds: float) -> None:
    """Make the last sign of life of a holder this old."""
    os.utime(path, (0, time.time() - seconds))


def taken_by_eight(out: Path) -> list[int]:
    """How many runs each of eight holders gets that take one run at the same time."""
    with ExitStack() as opened, ThreadPoolExecutor(8) as pool:
        many = [opened.enter_context(Leases(out)) for _ in range(8)]
        return sorted(len(found) for found in pool.map(lambda leases: leases.take([["a"]]), many))


def test_a_run_has_one_holder_until_it_is_given_back(tmp_path: Path) -> None:
    with Leases(tmp_path, silent_after=30) as one, Leases(tmp_path) as other:
        assert one.take([["a", "b"], ["c"]]) == ["a", "b"] and other.take([["a", "b"], ["b", "c"]]) == ["c"]
        assert one.take([["a"]]) == [] == other.take([["a"]])
        holders = [(lease.run, lease.holder) for lease in one.current()]
        assert holders == [("a", one.holder), ("b", one.holder), ("c", other.holder)]
        one.release(["a"])
        assert other.take([["a", "b"]]) == ["a"] and set(other.held) == {"a", "c"}
    assert files(tmp_path / "leases") == []


@pytest.mark.skipif(not leases_module.kernel(), reason="the list of processes is that of Linux")
def test_a_killed_process_is_replaced_at_once_on_the_same_machine_and_by_only_one(tmp_path: Path) -> None:
    code = f"""
import os, signal
from pathlib import Path
from frostline.sweeps.results.leases import Leases
with Leases(Path({str(tmp_path)!r})) as leases:
    leases.take([["a", "b"]])
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.Popen([sys.executable, "-c", code])
    leases, deadline = Leases(tmp_path), time.monotonic() + 60
    while [leases.is_dead(lease) for lease in leases.current()] != [True, True]:  # also before it is waited for
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert killed.wait() == -9 and [lease.number for lease in leases.current()] == [1, 1]
    assert taken_by_eight(tmp_path) == [0] * 7 + [1]
    assert Leases(tmp_path).taken({"b"}) == set() and files(tmp_path / "leases") == []  # b has ended


@pytest.mark.skipif(not leases_module.kernel(), reason="the list of processes is that of Linux")
def test_another_process_with_the_number_of_a_dead_one_is_another(tmp_path: Path) -> None:
    with Leases(tmp_path) as one, Leases(tmp_path) as other:
        one.take([["a"]])
        assert not other.take([["a"]])
        change(tmp_path / "leases" / "a.1.json", started="1")
        assert other.take([["a"]]) == ["a"]


def test_a_silent_holder_is_replaced_by_who_waits_long_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine, or on this one: a process that hangs, or a lease that could not be removed."""
    path = tmp_path / "leases" / "a.1.json"
    with Leases(tmp_path, silent_after=5.0) as silent, Leases(tmp_path, silent_after=30.0) as other:
        silent.take([["a"]])
        for seconds in (0, 28, -100):  # the last one if a machine with a wrong clock has set it
            silence(path, seconds)
            assert not other.take([["a"]]) and other.taken() == {"a"}
        silence(path, 31)
        assert other.take([["a"]]) == ["a"]
        assert [(lease.holder, lease.number) for lease in silent.current()] == [(other.holder, 2)]
        silent.release(["a"])  # it was not dead: what it gives back is no longer its own
        assert [lease.holder for lease in silent.current()] == [other.holder]
        removed = list[str]()
        monkeypatch.setattr(leases_module, "remove", lambda path, inside: removed.append(path.name))
        other.release(["a"])
    assert removed == ["a.1.json", "a.2.json"]  # an older one never counts meanwhile


@pytest.mark.usefixtures("elsewhere")
def test_time_is_that_of_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong clock of this machine takes no run, and removes nothing that another holder writes."""
    part = tmp_path / "runs" / ".a.12345678.part"
    monkeypatch.setattr(leases_module, "time", lambda: 4e9)  # 2096
    with Leases(tmp_path) as one:
        one.take([["a"]])
        part.mkdir(parents=True)
        with Leases(tmp_path) as other:
            assert not other.take([["a"]])
        assert part.exists() and Leases(tmp_path).taken() == set()  # who only looks has no other clock
    assert not part.exists()


def test_a_holder_shows_that_it_lives_while_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "RENEWED", 0.01)
    with Leases(tmp_path) as leases:
        leases.take([["a"]])
        path, deadline = tmp_path / "leases" / "a.1.json", time.monotonic() + 10
        first = path.stat().st_mtime_ns
        while path.stat().st_mtime_ns == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_lease_that_no_holder_has_written_is_free(tmp_path: Path) -> None:
    text = ({"holder": 7}, {"holder": "x" * 257}, {"host": "h" * 257}, {"since": ["now"]})
    numbers = ({"pid": -1}, {"pid": 10**400}, {"at_a_time": 0}, {"at_a_time": 2**33}, {"at_a_time": True})
    for facts in (*text, *numbers):
        with Leases(tmp_path / "o") as one, Leases(tmp_path / "o") as other:
            one.take([["a"]])
            change(tmp_path / "o" / "leases" / "a.1.json", **facts)
            assert other.take([["a"]]) == ["a"], facts
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


def test_a_file_with_the_name_of_no_lease_is_ignored_and_stays(tmp_path: Path) -> None:
    numbers = ("99999999999", "10000", "0", "007", "\u0661", "-1", "x")
    names = sorted([*(f"a.{number}.json" for number in numbers), f"{'a' * 65}.1.json", "notes.json", ".a.7.json"])
    (tmp_path / "leases").mkdir()
    for name in names:
        (tmp_path / "leases" / name).write_text("{}")
    with Leases(tmp_path) as leases:
        assert leases.take([["a"]]) == ["a"] and leases.held == {"a": 1}
        leases.release(["a"])
    assert files(tmp_path / "leases") == names


def test_the_highest_forged_number_is_refused_and_the_next_one_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "a.9999.json").write_text("{}")
    (tmp_path / "leases" / "b.9998.json").write_text("{}")
    with Leases(tmp_path) as leases:
        assert leases.take([["b"]]) == ["b"] and leases.held == {"b": 9999}
        with pytest.raises(FrostlineError, match=r"a\.9999\.json is a lease that no process can take over: remove it"):
            leases.take([["a"]])
    assert files(tmp_path / "leases") == ["a.9999.json"]


def test_what_is_no_ordinary_file_is_the_lease_of_nobody(tmp_path: Path) -> None:
    """A folder may come from others. Reading a named pipe would wait for ever, and a link may lead elsewhere."""
    leases = Leases(tmp_path)
    leases.folder.mkdir()
    os.mkfifo(leases.folder / "a.1.json")
    (leases.folder / "b.1.json").symlink_to("/etc/hostname")
    (leases.folder / "c.1.json").symlink_to("c.1.json")
    (leases.folder / "d.1.json").write_text("{")
    assert [(one.holder, leases.is_dead(one)) for one in leases.current()] == [("nobody", True)] * 4
    with leases:
        assert leases.take([["a", "b", "c", "d"]]) == ["a", "b", "c", "d"]
    assert files(leases.folder) == []


def test_an_interrupted_network_takes_no_run_from_its_holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path, *_: object) -> bytes:
        raise OSError(116, "Stale file handle")

    with Leases(tmp_path) as one, Leases(tmp_path) as other:
        one.take([["a"]])
        with monkeypatch.context() as network:
            network.setattr(Path, "read_bytes", interrupted)
            assert not other.take([["a"]])
        assert [lease.holder for lease in other.current()] == [one.holder]


def test_what_killed_processes_were_writing_is_removed_when_no_process_is_left(tmp_path: Path) -> None:
    parts = (tmp_path / "runs" / ".a.12345678.part" / "result.json", tmp_path / "checkpoints" / ".a.12345678.part")
    with Leases(tmp_path) as other:
        other.take([["a"]])
        with Leases(tmp_path):
            for path in parts:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("{")
        assert all(path.exists() for path in parts)  # the other one may be writing them
        (tmp_path / "runs" / "b").mkdir()
    assert files(tmp_path / "runs") == ["b"] and files(tmp_path / "checkpoints") == []
