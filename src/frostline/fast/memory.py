"""Memory: the most that a run takes of it, and what is handed back to the system while runs go on."""

import ctypes
import gc
import mmap
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from io import RawIOBase
from pathlib import Path
from time import thread_time

import numpy as np
import psutil
import torch
from torch import Tensor

from frostline.model.device import Machine

LARGE = 4 << 20  # bytes of a block
DYNAMIC = 32 << 20  # where glibc's own limit is by the time that large blocks were freed; once set, it moves no more
SHORTEST, LONGEST = 0.02, 0.25  # seconds between two looks at what is in use
DO_WITHOUT = 4  # Linux's number for that wish
PAGES = Path("/proc/self/pagemap")
LARGE_PAGES = "THP_MEM_ALLOC_ENABLE"  # torch's own name, which it looks up once


def _want_large_pages() -> None:
    """Large tensors are put in pages of 2 MB where Linux has them: a step waits for memory, and then less for where it is
    (docs/performance.md). Torch asks for the wish when it first takes memory; who has said otherwise is heard, and a
    program that was started by this one is not told."""
    if LARGE_PAGES not in os.environ:
        os.environ[LARGE_PAGES] = "1"
        torch.empty(1)
        del os.environ[LARGE_PAGES]


_want_large_pages()


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
    libc = _glibc()
    if libc is None:
        return lambda: anonymous_memory(psutil.Process())  # the process that asks, which may be a fork of this one
    libc.malloc_trim(0)  # now the system holds what is in use, and nothing more
    outside = anonymous_memory(psutil.Process()) - libc.mallinfo2().in_use
    return lambda: outside + libc.mallinfo2().in_use


@contextmanager
def settled_objects() -> Iterator[None]:
    """What is there by now is not searched for garbage again; one in another adds what has come since."""
    outermost = not gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if outermost:
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


def drop_mapped(tensors: Iterable[Tensor]) -> None:
    """Of these, let go what is mapped from files and was not written to: who asks for it finds it where the system keeps
    what was read of a file. Where the system does not tell which pages those are (it has to be Linux, and a sandbox may not
    let one ask), all stay."""
    libc = _glibc()
    if libc is None:
        return
    size = mmap.PAGESIZE
    try:
        with PAGES.open("rb", buffering=0) as pages:
            for tensor in tensors:
                if tensor.device.type == "cpu" and tensor.nbytes:
                    first, last = tensor.data_ptr() // size, -(-(tensor.data_ptr() + tensor.nbytes) // size)
                    for more, less in _of_a_file(pages, first, last):
                        libc.madvise(ctypes.c_void_p(more * size), ctypes.c_size_t((less - more) * size), DO_WITHOUT)
    except OSError:  # what stays takes memory, and does no harm
        return


def _of_a_file(pages: RawIOBase, first: int, last: int) -> list[tuple[int, int]]:
    """The stretches of these pages that are there and as the file has them
    (https://docs.kernel.org/admin-guide/mm/pagemap.html)."""
    pages.seek(8 * first)
    told = np.frombuffer(pages.read(8 * (last - first)) or b"", np.uint64)
    theirs = (told >> 61) & 0b101 == 0b101  # there, and of a file: a page that was written to is of none
    edges = np.flatnonzero(np.diff(theirs.astype(np.int8), prepend=0, append=0))
    return [(first + int(begin), first + int(end)) for begin, end in edges.reshape(-1, 2)]


def _keep_freed(keep: bool, *, sparing: bool = False) -> None:
    if libc := _glibc():
        trim_threshold, mmap_threshold, mmap_max = -1, -3, -4
        libc.mallopt(trim_threshold, 2**31 - 1 if keep else 2 * DYNAMIC)
        libc.mallopt(mmap_max, 0 if keep and not sparing else 65536)
        libc.mallopt(mmap_threshold, LARGE if keep else DYNAMIC)


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
