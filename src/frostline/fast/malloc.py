"""Options of glibc's heap for many short trainings in one process.

By default glibc releases large freed blocks to the operating system. The next training step has to request them again, page by
page. With these options the process keeps freed memory while runs are trained.

Access to glibc, which reports the size of its heap (``mallinfo2``) and has options for it (``mallopt``).
"""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from frostline.fast.garbage_collection import objects_frozen
from frostline.fast.switch import enabled

FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class Mallinfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``: statistics of its heap."""

    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]

    @property
    def in_use(self) -> int:
        """Bytes in use: in the heap, and in large blocks that are mapped individually."""
        return int(self.uordblks + self.hblkhd)


@cache
def glibc() -> ctypes.CDLL | None:
    """The C library of this process; None if it is not glibc, or a version without ``mallinfo2``."""
    if platform.libc_ver()[0] != "glibc":
        return None
    libc = ctypes.CDLL("libc.so.6")
    if not hasattr(libc, "mallinfo2"):
        return None
    libc.mallinfo2.restype = Mallinfo
    return libc


LARGE = 4 << 20  # bytes: larger blocks may be mapped individually, outside of the heap
DEFAULT = 32 << 20  # bytes: the highest value of glibc's dynamic threshold, which becomes static once mallopt sets it
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # mallopt's numbers for its parameters


@contextmanager
def memory_reused(*, release_large: bool = False) -> Iterator[None]:
    """While the context is open, the process keeps freed memory, and the garbage collector ignores existing objects.

    Args:
        release_large: Release large freed blocks to the operating system nevertheless. A heap that holds both large and small
            blocks fragments, so it takes more memory.
    """
    with objects_frozen():
        if not enabled("malloc"):
            yield
            return
        _set_options(keep=True, map_large=release_large)
        try:
            yield
        finally:
            _set_options(keep=False, map_large=True)
            release_freed_memory()


def release_freed_memory() -> None:
    """Release freed memory to the operating system."""
    if (libc := glibc()) and enabled("malloc"):
        libc.malloc_trim(0)


def _set_options(*, keep: bool, map_large: bool) -> None:
    if libc := glibc():
        libc.mallopt(TRIM_THRESHOLD, 2**31 - 1 if keep else 2 * DEFAULT)
        libc.mallopt(MMAP_MAX, 65536 if map_large else 0)
        libc.mallopt(MMAP_THRESHOLD, LARGE if keep else DEFAULT)
