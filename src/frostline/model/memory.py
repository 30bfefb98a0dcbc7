"""Memory: of a device, the measured peak of a run, the limit for one training, and whether it ran out."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from time import thread_time

import psutil
import torch

from frostline.fast.malloc import glibc
from frostline.model.device import Machine

SHORTEST, LONGEST = 0.02, 0.25  # seconds between two samples
OVERHEAD = 50  # the pause after a sample lasts at least this many times the sample's own processor time
# In errors of lacking memory that have no class of their own. cuBLAS and cuDNN write ALLOC_FAILED.
WORDS = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed")


class PeakMemory:
    """The highest sample so far."""

    bytes = 0


@contextmanager
def peak_memory(machine: Machine) -> Iterator[PeakMemory]:
    """Measure the peak memory while the context is open; ``bytes`` is final when it closes.

    On a GPU this is the peak of torch's allocator. Elsewhere it is the memory that this process has in use, without files
    mapped from disk. It is sampled 4 to 50 times a second, which takes at most 2 % of one core.
    """
    gc.collect()
    if machine.device.type == "cuda":
        peak = PeakMemory()
        torch.cuda.reset_peak_memory_stats(machine.device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(machine.device)
        return
    with sampled_peak(_meter()) as peak:
        yield peak


@contextmanager
def sampled_peak(used: Callable[[], int]) -> Iterator[PeakMemory]:
    """The highest value of ``used()`` while the context is open. A thread samples it, with one last sample at the end."""
    peak, done = PeakMemory(), threading.Event()

    def sample() -> None:
        ended = False
        while not ended:
            started = thread_time()
            peak.bytes = max(peak.bytes, used())
            ended = done.wait(min(max(SHORTEST, OVERHEAD * (thread_time() - started)), LONGEST))
        peak.bytes = max(peak.bytes, used())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a device, in bytes.

    Attributes:
        total: All of it.
        free: What no process uses.
        held: What this process uses of it.
    """

    total: int
    free: int
    held: int


def device_memory(device: torch.device) -> DeviceMemory:
    """The memory of a CUDA GPU. Other devices use that of the machine."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return DeviceMemory(total, free, torch.cuda.memory_reserved(device))
    machine = psutil.virtual_memory()
    return DeviceMemory(machine.total, machine.available, anonymous_memory(psutil.Process()))


def memory_limit(device: torch.device) -> int:
    """Bytes that one training may take.

    On a GPU: 85 % of the memory that other processes leave free. Elsewhere: half of the machine's available memory.
    """
    memory = device_memory(device)
    return int(0.85 * (memory.free + memory.held) if device.type == "cuda" else 0.5 * memory.free)


def memory_ran_out(error: BaseException) -> bool:
    """Whether the error says that the memory of the machine or of its device is used up."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in WORDS)


def release_unused(device: torch.device) -> None:
    """Release the memory that torch holds on a CUDA GPU without using it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()  # smaller tensors do not fit into the blocks that torch holds for larger ones


def anonymous_memory(process: psutil.Process) -> int:
    """Bytes of memory that a process holds, without mapped files."""
    memory = process.memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


@cache
def _meter() -> Callable[[], int]:
    """A function that returns the bytes that this process has in use.

    The process may hold freed memory for its next allocations. With glibc, which reports the size of its heap, this memory
    does not count. With other C libraries it does.
    """
    libc = glibc()
    if libc is None:
        return lambda: anonymous_memory(psutil.Process())  # the calling process, which may be a fork of this one
    libc.malloc_trim(0)  # releases freed memory: afterwards the process holds only memory in use
    outside = anonymous_memory(psutil.Process()) - libc.mallinfo2().in_use
    return lambda: outside + libc.mallinfo2().in_use
