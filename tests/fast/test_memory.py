"""Memory that a run takes, and what goes back to the system."""

import contextlib
import gc
import os
import platform
import subprocess
import sys
import time
import warnings
import weakref
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import frostline.fast.memory as memory_module
from frostline.fast.memory import (
    anonymous_memory,
    drop_mapped,
    highest,
    peak_memory,
    settled_memory,
    settled_objects,
)
from frostline.model.device import Machine

CPU = Machine(torch.device("cpu"), "float32")
OF_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def wait_until(true):
    deadline = time.monotonic() + 60
    while not true() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert true()


@pytest.mark.parametrize("fails", [False, True])
def test_peak_memory_sees_what_was_held(fails):
    with contextlib.suppress(ZeroDivisionError), peak_memory(CPU) as peak:
        wait_until(lambda: peak.bytes)
        start = peak.bytes
        held = np.ones(100 << 20, np.uint8)
        wait_until(lambda: peak.bytes - start > 90 << 20)
        del held
        if fails:
            raise ZeroDivisionError
    after = peak.bytes
    again = np.ones(400 << 20, np.uint8)
    assert peak.bytes == after and len(again)  # nobody looks any more


def test_it_is_looked_at_less_often_where_a_look_costs_more_but_at_the_end_in_any_case() -> None:
    looks: list[float] = []

    def dear() -> int:
        begun = time.thread_time()
        while time.thread_time() - begun < 0.002:
            pass
        looks.append(time.perf_counter())
        return len(looks)

    with highest(dear) as peak:
        wait_until(lambda: len(looks) >= 4)
    assert peak.bytes == len(looks) and np.diff(looks[:-1]).min() > 0.05  # 50 times as long as a look, not 20 ms


def test_freed_memory_that_is_still_held_does_not_count():
    with settled_memory():
        blocks = [torch.ones(8 << 20) for _ in range(6)]  # 200 MB
        with peak_memory(CPU) as before:
            wait_until(lambda: before.bytes)
        last = blocks.pop()
        blocks.clear()
        with peak_memory(CPU) as after:
            wait_until(lambda: after.bytes)
    if platform.libc_ver()[0] == "glibc":
        assert before.bytes - after.bytes > 150 << 20 and len(last)


def test_settled_memory_frees_the_collector_of_what_was_there_and_gives_it_back():
    with settled_objects():
        before = gc.get_freeze_count()
        later = [[] for _ in range(1_000)]
        with settled_memory():
            assert before > 10_000 and gc.get_freeze_count() >= before + len(later)
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0


def test_what_is_garbage_by_then_is_not_settled_with_the_rest():
    class Link:
        pass

    with settled_objects():
        one = Link()
        one.itself = one
        gone = weakref.ref(one)
        del one
        with settled_objects():
            assert gone() is None


FREED = """
import sys
import psutil, torch
from frostline.fast.memory import anonymous_memory, settled_memory

held = [anonymous_memory(psutil.Process())]
with settled_memory(sparing=sys.argv[1] == "True"):
    blocks = [torch.ones(32 << 20) for _ in range(2)]
    held.append(anonymous_memory(psutil.Process()))
    blocks.clear()
    held.append(anonymous_memory(psutil.Process()))
held.append(anonymous_memory(psutil.Process()))
print(*held)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="elsewhere the heap cannot be told")
@pytest.mark.parametrize("sparing", [False, True])
def test_what_is_freed_stays_or_goes_back_to_the_system(sparing: bool):
    """In a process of its own: in the heap of another, a gap left by earlier tests may serve the blocks."""
    command = [sys.executable, "-c", FREED, str(sparing)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    before, held, freed, after = map(int, printed.split())
    assert held - before > 200 << 20
    assert (held - freed > 200 << 20) == sparing
    assert after - before < 50 << 20


AFTERWARDS = """
from frostline.fast.memory import _glibc, settled_memory
with settled_memory():
    pass
before = _glibc().mallinfo2().hblks
blocks = [bytearray(1 << 20) for _ in range(8)]
print(_glibc().mallinfo2().hblks - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="elsewhere the system is not told")
def test_afterwards_blocks_of_some_size_are_not_asked_of_the_system_one_by_one():
    printed = subprocess.run([sys.executable, "-c", AFTERWARDS], check=True, capture_output=True, text=True).stdout
    assert int(printed) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forks")
def test_a_fork_measures_itself_where_the_heap_cannot_be_asked(monkeypatch):
    monkeypatch.setattr(memory_module, "_glibc", lambda: None)
    memory_module._meter.cache_clear()
    meter = memory_module._meter()
    before, (ours, theirs) = meter(), get_context("fork").Pipe()

    def child() -> None:
        block = np.ones(200 << 20, np.uint8)
        theirs.send(meter() + 0 * len(block))

    process = get_context("fork").Process(target=child)
    with warnings.catch_warnings():  # other tests may have left threads
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    assert ours.recv() - before > 150 << 20
    process.join()
    memory_module._meter.cache_clear()


def test_files_mapped_from_disk_are_not_counted(tmp_path):
    np.save(tmp_path / "states.npy", np.ones(50 << 20, np.uint8))
    process = psutil.Process()
    before, resident = anonymous_memory(process), process.memory_info().rss
    mapped = np.load(tmp_path / "states.npy", mmap_mode="r")
    assert mapped[::4096].sum() == len(mapped[::4096])
    if hasattr(process.memory_info(), "shared"):
        assert process.memory_info().rss - resident > 40 << 20
        assert anonymous_memory(process) - before < 10 << 20


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not os.access(memory_module.PAGES, os.R_OK),
    reason="elsewhere the system is not asked",
)
def test_mapped_values_are_let_go_and_read_again(tmp_path):
    np.save(tmp_path / "values.npy", np.arange(10 << 20, dtype=np.float32))  # 42 MB
    values = torch.from_numpy(np.load(tmp_path / "values.npy", mmap_mode="c"))
    own = torch.ones(1 << 20)
    before, total = psutil.Process().memory_info().rss, values.double().sum()
    values[:1024] = 1.0  # in a copy of its page, which is no longer the file's
    read = psutil.Process().memory_info().rss
    drop_mapped([values[512:], own, torch.empty(0)])
    assert read - before > 35 << 20
    assert read - psutil.Process().memory_info().rss > 35 << 20
    assert (values[:1024] == 1).all() and values.double().sum() == total - sum(range(1024)) + 1024 and own.all()


def test_where_the_system_does_not_tell_of_pages_mapped_values_stay(tmp_path, monkeypatch):
    np.save(tmp_path / "values.npy", np.ones(1 << 20, np.float32))
    values = torch.from_numpy(np.load(tmp_path / "values.npy", mmap_mode="c"))
    monkeypatch.setattr(memory_module, "PAGES", tmp_path / "none")
    drop_mapped([values])
    assert values.all()


LARGE_PAGES = """
import os, re, sys
from pathlib import Path
import frostline.fast.memory
import torch
block = torch.ones(16 << 20)  # 64 MB
print(re.search(r"AnonHugePages: +([0-9]+) kB", Path("/proc/self/smaps_rollup").read_text())[1], *sorted(
    name for name in os.environ if name.startswith("THP")))
"""


@pytest.mark.skipif(
    not OF_PAGES.exists() or "[madvise]" not in OF_PAGES.read_text(), reason="Linux gives them to who asks"
)
@pytest.mark.parametrize("said", [None, "0"])
def test_large_tensors_lie_in_large_pages_unless_somebody_has_said_otherwise(said: str | None):
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    if said is not None:
        environment["THP_MEM_ALLOC_ENABLE"] = said
    command = [sys.executable, "-c", LARGE_PAGES]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    kilobytes, *left = printed.split()
    assert (int(kilobytes) > 32 << 10) == (said is None)
    assert left == ([] if said is None else ["THP_MEM_ALLOC_ENABLE"])
