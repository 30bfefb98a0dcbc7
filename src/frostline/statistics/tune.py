"""What a run trains: the last k layers, everything, modules that are given by name, or another way to tune.

Settings hold it as a ``Tune``. Tables, files and messages print its name: ``last 2``, ``all``, ``named`` or that of the way, such
as ``lora-2``. Imports no torch, because settings are read without it.
"""

import re
from typing import Annotated, Final

from pydantic import Field

Tune = Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern="^[a-z][a-z0-9-]*$")]

FULL: Final = "all"  # full fine-tuning: every layer and the embeddings
NAMED: Final = "named"  # the modules of ``--tune-modules``, and the classifier head
LAST = "last "  # before a number of layers


def name_of(tune: Tune) -> str:
    """The printed name: ``last 2``, ``all``, ``named`` or that of a way."""
    return f"{LAST}{tune}" if isinstance(tune, int) else tune


def k_of(name: str) -> int | None:
    """The number of last layers that a printed name stands for; None for ``all``, ``named`` and ways, which have none."""
    number = name.removeprefix(LAST)
    return int(number) if number.isdecimal() else None


def is_k(name: str) -> bool:
    """Whether a printed name stands for a number of last layers, or for full fine-tuning."""
    return name == FULL or k_of(name) is not None


def tune_of(name: str) -> Tune:
    """What a name stands for: ``last-2`` is k = 2, ``head`` is k = 0, ``full`` is ``all``; other names stay as they are."""
    if found := re.fullmatch("last-([0-9]+)", name):
        return int(found[1])
    return 0 if name == "head" else FULL if name == "full" else name


def is_way(tune: Tune) -> bool:
    """Whether this is the name of a way to tune (:mod:`frostline.training.ways`)."""
    return isinstance(tune, str) and not is_k(tune) and tune != NAMED


def sort_key(name: str) -> tuple[bool, bool, bool, int, str]:
    """The order of printed names: 0, 1, ..., full fine-tuning, ways, named modules."""
    return name == NAMED, is_way(name), name == FULL, k_of(name) or 0, name
