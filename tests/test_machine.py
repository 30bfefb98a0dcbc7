"""The machine: what is asked for and what is there; memory that a run takes."""

import contextlib
import gc
import platform
import shutil
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import torch

from frostline.errors import FrostlineError
from frostline.machine import (
    Machine,
    anonymous_memory,
    free_bytes,
    highest,
    peak_memory,
    settled_memory,
    settled_objects,
    this_machine,
)

CPU = Machine(torch.device("cpu"), "float32")


@pytest.mark.parametrize("wrong", [{"device": "gpu"}, {"precision": "fp16"}, {"device": "cuda:0", "precision": "auto"}])
def test_an_unknown_name_lists_the_known_ones(wrong):
    with pytest.raises(FrostlineError, match=r"auto, cpu, cuda, mps, precisions auto, float32, bfloat16\.$"):
        this_machine(**wrong)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_here(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(FrostlineError, match=f"This machine has no device '{device}': use --device cpu"):
        this_machine(device)
    assert this_machine("auto").device.type == "cpu"


@pytest.mark.parametrize(
    "abilities, precision",
    [
        ({"avx2": True, "avx512_bf16": True}, "bfloat16"),
        ({"amx_bf16": True}, "bfloat16"),
        ({"avx512_bf16": False, "avx512_f": True}, "float32"),
        ({}, "float32"),
    ],
)
def test_bf16_where_the_processor_multiplies_in_it(monkeypatch, abilities, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities)
    assert this_machine("cpu").precision == precision
    assert this_machine("cpu", "float32").precision == "float32"
    assert this_machine("cpu", "bfloat16").precision == "bfloat16"


def test_autocast_is_of_the_products_only():
    x = torch.ones(4, 4)
    with Machine(torch.device("cpu"), "bfloat16").autocast():
        assert (x @ x).dtype == torch.bfloat16 and (x + x).dtype == torch.float32
    with CPU.autocast():
        assert (x @ x).dtype == torch.float32


def test_facts_are_those_of_the_moment():
    facts = CPU.facts()
    assert facts["threads"] == 1 and facts["device"] == "cpu" and facts["torch"].split("+")[0] in torch.__version__
    assert facts["python"] == platform.python_version() and facts["device_name"] == platform.machine()
    assert {"frostline", "transformers", "numpy", "instructions"} <= set(facts)
    torch.set_num_threads(2)
    assert CPU.facts()["threads"] == 2


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
        with settled_memory():
            assert gc.get_freeze_count() > 10_000
        assert gc.get_freeze_count() > 10_000
    assert gc.get_freeze_count() == 0


FREED = """
import sys
import psutil, torch
from frostline.machine import anonymous_memory, settled_memory

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


def test_files_mapped_from_disk_are_not_counted(tmp_path):
    np.save(tmp_path / "states.npy", np.ones(50 << 20, np.uint8))
    process = psutil.Process()
    before, resident = anonymous_memory(process), process.memory_info().rss
    mapped = np.load(tmp_path / "states.npy", mmap_mode="r")
    assert mapped[::4096].sum() == len(mapped[::4096])
    if hasattr(process.memory_info(), "shared"):
        assert process.memory_info().rss - resident > 40 << 20
        assert anonymous_memory(process) - before < 10 << 20


def test_free_bytes_is_of_the_disk_that_holds_the_folder(tmp_path):
    assert abs(free_bytes(tmp_path) - shutil.disk_usage(tmp_path).free) < 1 << 30
