"""Garbage collection without the objects that outlive all runs."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from frostline.fast.switch import enabled


@contextmanager
def objects_frozen() -> Iterator[None]:
    """While the context is open, the collector leaves all objects alone that exist now.

    A collection writes to every object that it visits. In a forked worker each such write would copy a page that the
    processes share. In a nested context, objects that were created since are added.
    """
    outermost = not gc.get_freeze_count()
    gc.collect()
    if enabled("garbage_collection"):
        gc.freeze()
    try:
        yield
    finally:
        if outermost:
            gc.unfreeze()
