"""Copies of cached hidden states in the memory of a GPU, as many as fit beside training."""

import numpy as np
import torch
from torch import Tensor

from frostline.frozen.batches import Rows
from frostline.frozen.cache.part import Part
from frostline.model.device import to_device
from frostline.model.tokens import flat_positions

COPIED_ROWS = 1024  # that are copied to a device at once


class DeviceCopy:
    """A copy of all vectors of a part in the memory of a device. A read sends only positions there."""

    def __init__(self, part: Part, device: torch.device) -> None:
        self.part, self._device, rows = part, device, part.states.rows
        self._offsets = np.concatenate([[0], np.cumsum(part.counts[rows])])
        self._place = np.full(len(part.counts), -1)  # of each row of the table
        self._place[rows] = np.arange(len(rows))
        one = part.read(rows[:1])
        self._vectors = torch.empty((1, int(self._offsets[-1]), *one.shape[2:]), dtype=one.dtype, device=device)
        for start in range(0, len(rows), COPIED_ROWS):
            some = part.read(rows[start : start + COPIED_ROWS])
            self._vectors[:, self._offsets[start] :][:, : some.shape[1]].copy_(some)

    @property
    def bytes(self) -> int:
        return self._vectors.nbytes

    def read(self, rows: Rows) -> Tensor:
        """The vectors ``[1, N, ...]`` of these rows on the device, in the order of the rows."""
        places = self._place[rows]
        assert (places >= 0).all(), "hidden states of these rows were not copied"
        positions = torch.from_numpy(flat_positions(self._offsets, places))
        return self._vectors.index_select(1, to_device(positions, self._device))


class DeviceCopies:
    """Copies that together fit into a limit. The one that has not been asked for longest is dropped first."""

    def __init__(self) -> None:
        self._limit, self._refused = 0, False
        self._copies: dict[str, DeviceCopy] = {}

    @property
    def bytes(self) -> int:
        """The memory of all copies."""
        return sum(copy.bytes for copy in self._copies.values())

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

    def of(self, part: Part, device: torch.device) -> DeviceCopy | None:
        """The copy of a part; None if it does not fit."""
        if not self._limit:
            return None
        own = self._copies.pop(part.name, None)
        if own is None or own.part.states is not part.states:
            own = None  # its memory is free before another copy is made
            needed = _bytes(part)
            if needed > self._limit:
                return None
            self._drop_for(needed)
            own = DeviceCopy(part, device)
        self._copies[part.name] = own
        return own

    def _drop_for(self, needed: int) -> None:
        """Drop copies until this many bytes fit, too."""
        while self._copies and self.bytes + needed > self._limit:
            del self._copies[next(iter(self._copies))]


def _bytes(part: Part) -> int:
    """The size of a copy of a part."""
    rows = part.states.rows
    one = part.read(rows[:1])[:, 0]
    return int(part.counts[rows].sum()) * one.numel() * one.element_size()
