"""The machine that a run uses: device, precision, threads, and what a run takes of it."""

import ctypes
import gc
import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from time import thread_time

import psutil
import torch

from frostline.errors import FrostlineError

LARGE = 4 << 20  # bytes of a block
SHORTEST, LONGEST = 0.02, 0.25  # seconds between two looks at what is in use
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Machine:
    """Where a sweep runs; ``precision`` is that of matrix products, weights are always fp32."""

    device: torch.device
    precision: str

    @property
    def dtype(self) -> torch.dtype:
        """That of matrix products."""
        return PRECISIONS[self.precision]

    @property
    def autocast(self) -> Callable[[], AbstractContextManager[object]]:
        if self.precision == "float32":
            return nullcontext
        return lambda: torch.autocast(self.device.type, self.dtype)

    def facts(self) -> dict[str, str | int]:
        """What can change the last bits of a result, for the record."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else platform.machine()
        return {
            "device": self.device.type,
            "device_name": name,
            "threads": torch.get_num_threads(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "python": platform.python_version(),
            **_versions(),
        }


@cache
def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("frostline", "torch", "transformers", "numpy")}


def this_machine(device: str = "auto", precision: str = "auto") -> Machine:
    """The device asked for, and bf16 where its processor multiplies in it; looked up, not assumed.

    Raises:
        FrostlineError: unknown name, or a device that is not here.
    """
    known = ("auto", "cpu", "cuda", "mps")
    if device not in known or precision not in ("auto", *PRECISIONS):
        raise FrostlineError(
            f"device = {device!r}, precision = {precision!r} is not known: devices are {', '.join(known)}, "
            f"precisions auto, {', '.join(PRECISIONS)}."
        )
    here = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        device = "cuda" if here["cuda"] else "cpu"
    if not here[device]:
        raise FrostlineError(f"This machine has no device {device!r}: use --device cpu.")
    if precision == "auto":
        precision = "bfloat16" if _has_bf16(device) else "float32"
    return Machine(torch.device(device), precision)


def _has_bf16(device: str) -> bool:
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device == "mps":
        return False
    abilities = torch.cpu.get_capabilities()
    return bool(abilities.get("avx512_bf16") or abilities.get("amx_bf16"))


class PeakMemory:
    """The most memory seen since :func:`peak_memory` was entered, in bytes: on a GPU its own, else what the process
    has in use (files mapped from disk do not count), looked at as often as costs 2 % of a core, 4 to 50 times a second."""

    bytes = 0


@contextmanager
def peak_memory(machine: Machine) -> Iterator[PeakMemory]:
    """Measure the peak of what runs inside."""
    gc.collect()
    if machine.device.type == "cuda":
        peak = PeakMemory()
        torch.cuda.reset_peak_memory_stats(machine.device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(machine.device)
        return
    with highest(_meter()) as peak:
        yield peak


@contextmanager
def highest(used: Callable[[], int]) -> Iterator[PeakMemory]:
    """The highest of what ``used`` says while the context is open."""
    peak, done = PeakMemory(), threading.Event()

    def sample() -> None:
        ended = False
        while not ended:
            begun = thread_time()
            peak.bytes = max(peak.bytes, used())
            ended = done.wait(min(max(SHORTEST, 50 * (thread_time() - begun)), LONGEST))
        peak.bytes = max(peak.bytes, used())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def memory_limit(device: torch.device) -> int:
    """Bytes that one training may take: most of a GPU's that others leave, or half of what the machine has available."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(0.85 * (free + torch.cuda.memory_reserved(device)))
    return int(0.5 * psutil.virtual_memory().available)


def anonymous_memory(process: psutil.Process) -> int:
    """Bytes held by a process that are no mapped file."""
    memory = process.memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


@cache
def _meter() -> Callable[[], int]:
    """The bytes that this process has in use. What was freed, but is still held for the next run, does not count:
    with glibc the heap says so itself; elsewhere it counts."""
    process, libc = psutil.Process(), _glibc()
    if libc is None:
        return lambda: anonymous_memory(process)
    libc.malloc_trim(0)  # now the system holds what is in use, and nothing more
    outside = anonymous_memory(process) - libc.mallinfo2().in_use
    return lambda: outside + libc.mallinfo2().in_use


@contextmanager
def settled_objects() -> Iterator[None]:
    """What is there by now is not searched for garbage again; one in another does nothing."""
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def settled_memory(*, sparing: bool = False) -> Iterator[None]:
    """For many short trainings in one process: objects settled, and freed memory is used again instead of being handed back
    to the system and asked for anew, page by page. ``sparing``: large blocks are handed back all the same, since a heap of
    large and small ones never fills its gaps."""
    with settled_objects():
        _keep_freed(True, sparing=sparing)
        try:
            yield
        finally:
            _keep_freed(False)
            hand_back()


def hand_back() -> None:
    """Give freed memory back to the system."""
    if libc := _glibc():
        libc.malloc_trim(0)


def _keep_freed(keep: bool, *, sparing: bool = False) -> None:
    if libc := _glibc():
        trim_threshold, mmap_threshold, mmap_max = -1, -3, -4
        libc.mallopt(trim_threshold, 2**31 - 1 if keep else 128 << 10)
        libc.mallopt(mmap_max, 0 if keep and not sparing else 65536)
        libc.mallopt(mmap_threshold, LARGE if keep else 128 << 10)


class _Mallinfo(ctypes.Structure):
    """glibc's own count of its heap."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    ]

    @property
    def in_use(self) -> int:
        return int(self.uordblks + self.hblkhd)


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library, where it is one that can be asked and told about its heap."""
    if platform.libc_ver()[0] != "glibc":
        return None
    libc = ctypes.CDLL("libc.so.6")
    if not hasattr(libc, "mallinfo2"):
        return None
    libc.mallinfo2.restype = _Mallinfo
    return libc


def free_bytes(path: os.PathLike[str]) -> int:
    """Free bytes of the disk that holds ``path``."""
    return int(psutil.disk_usage(os.fspath(path)).free)
