"""Read the cached hidden states of batches on the device that computes.

A CPU reads them from the mapped files. A GPU reads them from a copy in its own memory if it fits beside training, or from the
host, one batch ahead on a stream of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.frozen.forward_pass import Rows
from frostline.frozen.hidden_states import HiddenStates
from frostline.model.device import to_device
from frostline.model.tokens import flat_positions


@dataclass(frozen=True)
class Part:
    """The cached hidden states of one kind, for example those of all tokens after two layers.

    Attributes:
        name: The kind. No other part of the same hidden states has this name.
        states: Where they are cached.
        read: The vectors ``[1, N, ...]`` of some rows on the host, in the order of the rows.
        counts: How many vectors each row of the token table has.
    """

    name: str
    states: HiddenStates
    read: Callable[[Rows], Tensor]
    counts: NDArray[np.int64]

    @classmethod
    def tokens(cls, states: HiddenStates, cut: int, lengths: NDArray[np.int64]) -> Self:
        """``[1, T, D]``, of all tokens after ``cut`` layers. ``lengths`` are the tokens of each row of the table."""
        return cls(f"tokens-{cut}", states, partial(states.tokens, cut), lengths)

    @classmethod
    def head(cls, states: HiddenStates, lengths: NDArray[np.int64]) -> Self:
        """``[1, B, D]``, of the token that the head reads."""
        return cls("head", states, states.head, np.ones_like(lengths))


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
        self.bytes = self._vectors.nbytes
        for start in range(0, len(rows), COPIED_ROWS):
            some = part.read(rows[start : start + COPIED_ROWS])
            self._vectors[:, self._offsets[start] :][:, : some.shape[1]].copy_(some)

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
            cached = part.states.rows
            one = part.read(cached[:1])[:, 0]
            needed = int(part.counts[cached].sum()) * one.numel() * one.element_size()
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


Sent = tuple[Tensor, torch.cuda.Event]  # a copy on its way, and the event after which it is complete


class SideStream:
    """A stream for copies alone. The host never waits for them in :meth:`send` and :meth:`receive`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(self, x: Tensor) -> Sent:
        """Begin to copy a tensor of the host, from pinned memory."""
        with torch.cuda.stream(self._stream):
            return x.pin_memory().to(self._device, non_blocking=True), self._stream.record_event()

    def receive(self, sent: Sent) -> Tensor:
        """The copy, for the stream that computes. That stream waits for it; its memory is kept until that stream has used it."""
        copy, complete = sent
        computing = torch.cuda.current_stream(self._device)
        computing.wait_event(complete)
        copy.record_stream(computing)
        return copy

    def finish(self) -> None:
        """Wait until no copy is on its way."""
        self._stream.synchronize()


@dataclass(frozen=True)
class HostReader:
    """Copies each batch when it is read. On a CPU there is nothing to copy."""

    part: Part
    device: torch.device

    def read(self, rows: Rows) -> Tensor:
        return to_device(self.part.read(rows), self.device)


class AheadReader:
    """Copies the next batch while the device computes this one."""

    def __init__(self, part: Part, stream: SideStream) -> None:
        self._part, self._stream = part, stream
        self._next: tuple[Rows, Sent] | None = None

    def read(self, rows: Rows) -> Tensor:
        if self._next is None or not np.array_equal(self._next[0], rows):
            return self._stream.receive(self._stream.send(self._part.read(rows)))
        (_, sent), self._next = self._next, None
        return self._stream.receive(sent)

    def prefetch(self, rows: Rows) -> None:
        """Begin to copy these rows. Other rows may be read before them."""
        if self._next is None or not np.array_equal(self._next[0], rows):
            self._next = rows, self._stream.send(self._part.read(rows))

    def close(self) -> None:
        """Wait until no copy is on its way, and forget a batch that was not read."""
        self._stream.finish()
        self._next = None


Reader = DeviceCopy | HostReader | AheadReader


def reader_of(part: Part, device: torch.device, copies: DeviceCopies) -> Reader:
    """Reads the vectors ``[1, N, ...]`` of a part on a device, in the order of the rows. The host does not wait for the device.

    They are read from a copy there if it fits, else from the host. With CUDA, it can read one batch ahead.
    """
    if copy := copies.of(part, device):
        return copy
    return AheadReader(part, SideStream(device)) if device.type == "cuda" else HostReader(part, device)
