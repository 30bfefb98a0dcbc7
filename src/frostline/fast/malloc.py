"""Settings of glibc's heap for many short trainings in one process.

By default glibc returns large freed blocks to the operating system, and the next step asks for them anew, page by page.
While runs go on, freed memory stays with the process.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from frostline.fast.garbage_collection import objects_frozen
from frostline.fast.glibc import glibc
from frostline.fast.switch import enabled

LARGE = 4 << 20  # bytes from which a block may be mapped by itself
DEFAULT = 32 << 20  # the value that glibc's dynamic limit reaches once large blocks were freed; once set, it is static
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # numbers of mallopt's parameters


@contextmanager
def memory_reused(*, release_large: bool = False) -> Iterator[None]:
    """While the context is open, freed memory stays with the process and existing objects are not searched for garbage.

    Args:
        release_large: Return large blocks to the operating system all the same. A heap with both large and small blocks
            never fills its gaps, so it takes more memory.
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
    """Return freed memory to the operating system."""
    if (libc := glibc()) and enabled("malloc"):
        libc.malloc_trim(0)


def _set_options(*, keep: bool, map_large: bool) -> None:
    if libc := glibc():
        libc.mallopt(TRIM_THRESHOLD, 2**31 - 1 if keep else 2 * DEFAULT)
        libc.mallopt(MMAP_MAX, 65536 if map_large else 0)
        libc.mallopt(MMAP_THRESHOLD, LARGE if keep else DEFAULT)
