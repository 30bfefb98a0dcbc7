"""The machine: requested and available devices and precisions, and measured memory of a run and of a process."""

import contextlib
import os
import platform
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import frostline.model.device as memory_module
from frostline import FrostlineError
from frostline.fast.switch import memory_reused
from frostline.model.device import (
    DeviceMemory,
    Machine,
    anonymous_memory,
    device_memory,
    memory_limit,
    memory_ran_out,
    peak_memory,
    sampled_peak,
    this_machine,
)

CPU = Machine(torch.device("cpu"), "float32")


def test_what_a_machine_has_decides_device_and_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FrostlineError, match="This machine has no device 'cuda': use --device cpu"):
        this_machine("cuda")  # tests see no GPU
    assert this_machine("auto").device.type == "cpu"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    with pytest.raises(FrostlineError, match="float16 cannot be used with the device mps"):
        this_machine("mps", "float16")
    assert this_machine("mps", "auto").precision == "float32"
    for instructions, precision in (
        ({"avx2": True, "avx512_bf16": True}, "bfloat16"),
        ({"amx_bf16": True}, "bfloat16"),
        ({"avx512_bf16": False, "avx512_f": True}, "float32"),
    ):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=instructions: found)
        assert this_machine("cpu").precision == precision
        assert [this_machine("cpu", one).precision for one in ("float32", "bfloat16")] == ["float32", "bfloat16"]


def test_autocast_changes_the_precision_of_products_only():
    x = torch.ones(4, 4)
    with Machine(torch.device("cpu"), "bfloat16").autocast():
        assert (x @ x).dtype == torch.bfloat16 and (x + x).dtype == torch.float32
    with CPU.autocast():
        assert (x @ x).dtype == torch.float32


def test_facts_describe_the_current_state():
    facts = CPU.facts()
    assert facts["threads"] == 1 and facts["device"] == "cpu" and facts["torch"].split("+")[0] in torch.__version__
    assert facts["python"] == platform.python_version() and facts["device_name"] == platform.machine()
    assert {"frostline", "transformers", "numpy", "instructions"} <= set(facts)
    assert CPU.name == "CPU, 1 thread"
    torch.set_num_threads(2)
    assert CPU.facts()["threads"] == 2 and CPU.name == "CPU, 2 threads"


def wait_until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert true()


@pytest.mark.parametrize("fails", [False, True])
def test_peak_memory_includes_memory_that_was_freed_before_the_end(fails: bool) -> None:
    with contextlib.suppress(ZeroDivisionError), peak_memory(CPU) as peak:
        wait_until(lambda: peak.bytes)
        start = peak.bytes
        held = np.ones(100 << 20, np.uint8)
        wait_until(lambda: peak.bytes - start > 90 << 20)
        del held
        if fails:
            raise ZeroDivisionError
    after = peak.bytes
    again = np.ones(200 << 20, np.uint8)
    assert peak.bytes == after and len(again)  # sampling has ended


def test_slow_samples_are_taken_less_often_and_the_last_one_at_the_end() -> None:
    samples: list[float] = []

    def expensive() -> int:
        started = time.thread_time()
        while time.thread_time() - started < 0.002:
            pass
        samples.append(time.perf_counter())
        return len(samples)

    with sampled_peak(expensive) as peak:
        wait_until(lambda: len(samples) >= 4)
    assert peak.bytes == len(samples) and np.diff(samples[:-1]).min() > 0.05  # 50 times as long as a sample, not 20 ms


def test_freed_memory_that_the_process_keeps_does_not_count() -> None:
    with memory_reused():
        blocks = [torch.ones(8 << 20) for _ in range(6)]  # 200 MB
        with peak_memory(CPU) as before:
            wait_until(lambda: before.bytes)
        last = blocks.pop()
        blocks.clear()
        with peak_memory(CPU) as after:
            wait_until(lambda: after.bytes)
    if platform.libc_ver()[0] == "glibc":
        assert before.bytes - after.bytes > 150 << 20 and len(last)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forks")
def test_a_fork_measures_its_own_memory_without_glibc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "glibc", lambda: None)
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


def test_files_mapped_from_disk_do_not_count(tmp_path: Path) -> None:
    np.save(tmp_path / "states.npy", np.ones(50 << 20, np.uint8))
    process = psutil.Process()
    before, resident = anonymous_memory(process), process.memory_info().rss
    mapped = np.load(tmp_path / "states.npy", mmap_mode="r")
    assert mapped[::4096].sum() == len(mapped[::4096])
    if hasattr(process.memory_info(), "shared"):
        assert process.memory_info().rss - resident > 40 << 20
        assert anonymous_memory(process) - before < 10 << 20


def test_the_memory_of_a_gpu_is_its_own_and_that_of_a_cpu_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7000, 16000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 3000)
    gpu = torch.device("cuda")
    assert device_memory(gpu) == DeviceMemory(total=16000, free=7000, held=3000)
    assert memory_limit(gpu) == 8500  # of what this process holds and what is free
    machine, mine = psutil.virtual_memory(), device_memory(CPU.device)
    assert mine.total == machine.total and 0 < mine.held < mine.total and 0 < mine.free < mine.total
    assert 0 < memory_limit(CPU.device) < machine.total / 2


@pytest.mark.parametrize(
    "error, ran_out",
    [
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (RuntimeError("CUDNN_STATUS_ALLOC_FAILED"), True),
        (ValueError("out of memory"), False),
        (RuntimeError("The size of tensor a must match"), False),
    ],
)
def test_libraries_of_gpus_report_lack_of_memory_in_their_own_words(error: Exception, ran_out: bool) -> None:
    assert memory_ran_out(error) == ran_out
