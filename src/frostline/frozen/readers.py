"""Copies of cached hidden states in the memory of a GPU, as far as they fit beside training. A CPU reads the mapped files."""

import torch

from frostline.frozen.hidden_states import HiddenStates


class DeviceCopies:
    """Copies of hidden states on a device that together fit into a limit. The one that has not been asked for longest is dropped.

    A name is that of vectors in :class:`HiddenStates`, such as ``tokens-2``.
    """

    def __init__(self) -> None:
        self._limit, self._refused = 0, False
        self._copies: dict[str, tuple[HiddenStates, HiddenStates, int]] = {}  # what was copied, the copy, its bytes

    @property
    def bytes(self) -> int:
        """The memory of all copies."""
        return sum(size for _, _, size in self._copies.values())

    def keep_within(self, limit: int) -> None:
        """Let copies take at most ``limit`` bytes. At first it is 0, so nothing is copied."""
        self._limit = 0 if self._refused else max(0, limit)
        self._drop_for(0)

    def refuse(self) -> bool:
        """Drop all copies, and make no more. Returns whether any could be made until now."""
        had = self._limit > 0
        self._refused = True
        self.keep_within(0)
        return had

    def of(self, states: HiddenStates, name: str, device: torch.device) -> HiddenStates | None:
        """The copy of the vectors of a name; None if it does not fit."""
        if not self._limit:
            return None
        copied = self._copies.pop(name, None)
        if copied is None or copied[0] is not states:
            copied = None  # its memory is free before another copy is made
            one = states.read(name, states.rows[:1])[0]
            needed = int(states.counts(name, states.rows).sum()) * one.nbytes
            if needed > self._limit:
                return None
            self._drop_for(needed)
            copied = states, states.copied(name, device), needed
        self._copies[name] = copied
        return copied[1]

    def _drop_for(self, needed: int) -> None:
        """Drop copies until this many bytes fit, too."""
        while self._copies and self.bytes + needed > self._limit:
            del self._copies[next(iter(self._copies))]
