"""Measured memory: the peak of a run, and what one training may take."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from time import thread_time

import psutil
import torch

from frostline.fast.glibc import glibc
from frostline.model.device import Machine

SHORTEST, LONGEST = 0.02, 0.25  # seconds between two samples
OVERHEAD = 50  # the pause after a sample is at least this many times the processor time that it took


class PeakMemory:
    """The highest sample so far, in bytes."""

    bytes = 0


@contextmanager
def peak_memory(machine: Machine) -> Iterator[PeakMemory]:
    """Measure the peak memory of what runs inside; ``bytes`` is final when the context closes.

    On a GPU this is the peak of torch's allocator. Elsewhere it is the memory in use by this process, sampled 4 to 50
    times a second, which takes at most 2 % of one core. Files mapped from disk do not count.
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
    """The highest value of ``used()`` while the context is open, sampled by a thread and once more at the end."""
    peak, done = PeakMemory(), threading.Event()

    def sample() -> None:
        ended = False
        while not ended:
            begun = thread_time()
            peak.bytes = max(peak.bytes, used())
            ended = done.wait(min(max(SHORTEST, OVERHEAD * (thread_time() - begun)), LONGEST))
        peak.bytes = max(peak.bytes, used())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def memory_limit(device: torch.device) -> int:
    """Bytes that one training may take: 85 % of the GPU memory that others leave free, or half of the machine's available
    memory."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(0.85 * (free + torch.cuda.memory_reserved(device)))
    return int(0.5 * psutil.virtual_memory().available)


def anonymous_memory(process: psutil.Process) -> int:
    """Bytes that a process holds apart from mapped files."""
    memory = process.memory_info()
    return int(memory.rss - getattr(memory, "shared", 0))


@cache
def _meter() -> Callable[[], int]:
    """A function that gives the bytes that this process has in use.

    glibc reports its own heap, so freed memory that the process still holds for the next run does not count. With other C
    libraries it counts.
    """
    libc = glibc()
    if libc is None:
        return lambda: anonymous_memory(psutil.Process())  # the process that calls it, which may be a fork of this one
    libc.malloc_trim(0)  # now the process holds what is in use and no more
    outside = anonymous_memory(psutil.Process()) - libc.mallinfo2().in_use
    return lambda: outside + libc.mallinfo2().in_use
