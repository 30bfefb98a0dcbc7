"""Exclude objects that outlive all runs from garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from frostline.fast.switch import enabled


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
