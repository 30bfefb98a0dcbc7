"""Checkpoints: the state of a run in the middle of its training, from which it continues to a bitwise identical result.

A state is a tree of dictionaries and lists. Its leaves are tensors, arrays, numbers, strings and None.
:mod:`frostline.sweep.results.tensor_files` writes it to a file.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

State = dict[str, Any]


class Stateful(Protocol):
    """Something that changes during training."""

    def state(self) -> State:
        """The present state. Its tensors are not copied."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""


class Checkpoints(Protocol):
    """Keeps states of one run, or of a stack of runs."""

    def load(self) -> State | None:
        """The last state that was kept; None if there is none."""

    def after_step(self, state: Callable[[], State]) -> None:
        """Called after each step. ``state`` returns the present state, to keep it if it is time."""


class NoCheckpoints:
    """Keeps nothing."""

    def load(self) -> None:
        return None

    def after_step(self, state: Callable[[], State]) -> None: ...


NONE = NoCheckpoints()
