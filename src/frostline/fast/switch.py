"""One switch for all speed-ups, so that tests and benchmarks can compare each with the plain path; and the smallest of them.

``FROSTLINE_PLAIN=1`` in the environment turns every speed-up off. ``FROSTLINE_WITHOUT=attention,dropout`` turns off some.
The code of torch and transformers runs instead. Results agree within float rounding, with one exception: without
``dropout``, ``attention`` or ``packing``, other random numbers decide which elements dropout drops. Their distribution is
the same.

The environment is read each time a speed-up could be used. A test can therefore change it, and forked workers inherit it.
"""

import ctypes
import gc
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch import nn

from frostline import FrostlineError
from frostline.data.wording import did_you_mean

SPEED_UPS = {
    "attention": "attention over packed short examples, with a hand-written backward pass",
    "dropout": "dropout masks with sixteen random bits per element",
    "sparse_gradients": "optimizer steps update only those rows of embedding tables that were read",
    "last_layer": "the last layer is computed for the head's token only",
    "packing": "batches without padding",
    "malloc": "the process keeps freed memory between runs",
    "garbage_collection": "the garbage collector ignores objects that outlive all runs",
    "workers": "several runs at once, each in a forked process with one thread",
}


def enabled(name: str) -> bool:
    """Whether the speed-up with this name is on.

    Raises:
        FrostlineError: ``FROSTLINE_WITHOUT`` contains an unknown name.
    """
    assert name in SPEED_UPS, name
    off = [part for one in os.environ.get("FROSTLINE_WITHOUT", "").split(",") if (part := one.strip())]
    for unknown in (one for one in off if one not in SPEED_UPS):
        raise FrostlineError(
            f"FROSTLINE_WITHOUT={unknown} names no speed-up{did_you_mean(unknown, SPEED_UPS)}: choose from "
            f"{', '.join(SPEED_UPS)}."
        )
    return os.environ.get("FROSTLINE_PLAIN", "0") in ("", "0") and name not in off


@contextmanager
def forwards_replaced(forwards: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """While the context is open, each module runs the given function as its forward. Contexts can be nested."""
    before = {module: vars(module).get("forward") for module in forwards}
    for module, forward in forwards.items():
        module.forward = forward
    try:
        yield
    finally:
        for module, old in before.items():
            if old is None:
                del module.forward
            else:
                module.forward = old


@contextmanager
def objects_frozen() -> Iterator[None]:
    """While the context is open, the garbage collector ignores all objects that existed when it was opened.

    A collection writes to every object that it visits. In a forked worker, each such write would copy a memory page that
    it shares with other processes. A nested context adds the objects that were created in the meantime.
    """
    if not enabled("garbage_collection"):
        yield
        return
    outermost = not gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if outermost:
            gc.unfreeze()


class Mallinfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``: statistics of its heap."""

    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

    @property
    def in_use(self) -> int:
        """Bytes in use: in the heap, and in large blocks that are mapped individually."""
        return int(self.uordblks + self.hblkhd)


@cache
def glibc() -> ctypes.CDLL | None:
    """The C library of this process; None if it is not glibc, or a version without ``mallinfo2``."""
    libc = ctypes.CDLL("libc.so.6") if platform.libc_ver()[0] == "glibc" else None
    if libc is None or not hasattr(libc, "mallinfo2"):
        return None
    libc.mallinfo2.restype = Mallinfo
    return libc


LARGE = 4 << 20  # bytes: larger blocks may be mapped individually, outside of the heap
DEFAULT = 32 << 20  # bytes: the highest value of glibc's dynamic threshold, which becomes static once mallopt sets it
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # mallopt's numbers for its parameters


@contextmanager
def memory_reused(*, release_large: bool = False) -> Iterator[None]:
    """While the context is open, the process keeps freed memory, and the garbage collector ignores existing objects.

    By default glibc releases large freed blocks to the operating system. The next training step has to request them again,
    page by page.

    Args:
        release_large: Release large freed blocks to the operating system nevertheless. A heap that holds both large and small
            blocks fragments, so it takes more memory.
    """
    libc = glibc() if enabled("malloc") else None

    def set_options(*, keep: bool, map_large: bool) -> None:
        if libc:
            libc.mallopt(TRIM_THRESHOLD, 2**31 - 1 if keep else 2 * DEFAULT)
            libc.mallopt(MMAP_MAX, 65536 if map_large else 0)
            libc.mallopt(MMAP_THRESHOLD, LARGE if keep else DEFAULT)

    with objects_frozen():
        set_options(keep=True, map_large=release_large)
        try:
            yield
        finally:
            set_options(keep=False, map_large=True)
            release_freed_memory()


def release_freed_memory() -> None:
    """Release freed memory to the operating system."""
    if enabled("malloc") and (libc := glibc()):
        libc.malloc_trim(0)
