"""Releases pages of weights that are mapped from a file, once something else holds a copy of them."""

import ctypes
import mmap
from collections.abc import Iterable
from io import RawIOBase
from pathlib import Path

import numpy as np
from torch import Tensor

from frostline.fast.glibc import glibc
from frostline.fast.switch import enabled

MADV_DONTNEED = 4
PAGEMAP = Path("/proc/self/pagemap")


def release_mapped_pages(tensors: Iterable[Tensor]) -> None:
    """Release the pages of these tensors that are mapped from files and were not written to.

    A later access finds them again in the system's cache of the file. Nothing happens unless the system is Linux and
    lets a process read which of its pages those are, which a sandbox may forbid.
    """
    libc = glibc()
    if libc is None or not enabled("mapped_pages"):
        return
    size = mmap.PAGESIZE
    try:
        with PAGEMAP.open("rb", buffering=0) as pages:
            for tensor in tensors:
                if tensor.device.type == "cpu" and tensor.nbytes:
                    first, last = tensor.data_ptr() // size, -(-(tensor.data_ptr() + tensor.nbytes) // size)
                    for start, stop in mapped_ranges(pages, first, last):
                        length = ctypes.c_size_t((stop - start) * size)
                        libc.madvise(ctypes.c_void_p(start * size), length, MADV_DONTNEED)
    except OSError:  # pages that are not released take memory and do no harm
        return


def mapped_ranges(pages: RawIOBase, first: int, last: int) -> list[tuple[int, int]]:
    """Among the pages from ``first`` to before ``last``: ranges that are in memory and as the file has them
    (https://docs.kernel.org/admin-guide/mm/pagemap.html)."""
    pages.seek(8 * first)
    flags = np.frombuffer(pages.read(8 * (last - first)) or b"", np.uint64)
    unchanged = (flags >> 61) & 0b101 == 0b101  # present, and of a file: a page that was written to is anonymous
    edges = np.flatnonzero(np.diff(unchanged.astype(np.int8), prepend=0, append=0))
    return [(first + int(start), first + int(stop)) for start, stop in edges.reshape(-1, 2)]
