"""What a run trains: the last k layers, everything, or modules that are given by name.

Settings hold it as a ``Tune``. Tables, files and messages print its name: ``last 2``, ``all`` or ``named``. Imports no torch,
because settings are read without it.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

Tune = Annotated[int, Field(ge=0)] | Literal["all", "named"]

FULL: Final = "all"  # full fine-tuning: every layer and the embeddings
NAMED: Final = "named"  # the modules of ``--tune-modules``, and the classifier head
LAST = "last "  # before a number of layers


def name_of(tune: Tune) -> str:
    """The printed name: ``last 2``, ``all`` or ``named``."""
    return f"{LAST}{tune}" if isinstance(tune, int) else tune


def k_of(name: str) -> int | None:
    """The number of last layers that a printed name stands for; None for ``all`` and ``named``, which have none."""
    return None if name in (FULL, NAMED) else int(name.removeprefix(LAST))


def is_k(name: str) -> bool:
    """Whether a printed name can be recommended as k: a number of last layers, or full fine-tuning."""
    return name != NAMED


def sort_key(name: str) -> tuple[bool, bool, int]:
    """The order of printed names: 0, 1, ..., full fine-tuning, named modules."""
    return name == NAMED, name == FULL, k_of(name) or 0
