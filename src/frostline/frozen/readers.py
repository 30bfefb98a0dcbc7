"""Read the cached hidden states of batches on the device that computes.

A CPU reads them from the mapped files. A GPU reads them from a copy in its own memory if it fits beside training, or from the
host, one batch ahead on a stream of its own.
"""

import numpy as np
import torch
from torch import Tensor

from frostline.frozen.forward_pass import Rows
from frostline.frozen.hidden_states import HiddenStates
from frostline.model.device import to_device


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


class Reader:
    """Reads the vectors of one name on a device. With a stream for copies, it can read one batch ahead.

    Attributes:
        stream: Copies a batch while the device computes another one. None: on a CPU, or if the vectors are on the device.
    """

    def __init__(self, states: HiddenStates, name: str, device: torch.device, stream: SideStream | None = None) -> None:
        self.stream, self._states, self._name, self._device = stream, states, name, device
        self._next: tuple[Rows, Sent] | None = None

    def read(self, rows: Rows) -> Tensor:
        """``[1, N, ...]``, in the order of the rows. The host does not wait for the device."""
        if self.stream is None:
            return to_device(self._states.read(self._name, rows)[None], self._device)
        if self._next is None or not np.array_equal(self._next[0], rows):
            return self.stream.receive(self._sent(self.stream, rows))
        (_, sent), self._next = self._next, None
        return self.stream.receive(sent)

    def prefetch(self, rows: Rows) -> None:
        """Begin to copy these rows, if there is a stream. Other rows may be read before them."""
        if self.stream and (self._next is None or not np.array_equal(self._next[0], rows)):
            self._next = rows, self._sent(self.stream, rows)

    def close(self) -> None:
        """Wait until no copy is on its way, and forget a batch that was not read."""
        if self.stream:
            self.stream.finish()
        self._next = None

    def _sent(self, stream: SideStream, rows: Rows) -> Sent:
        return stream.send(self._states.read(self._name, rows)[None])


def reader_of(states: HiddenStates, name: str, device: torch.device, copies: DeviceCopies) -> Reader:
    """Reads the vectors of a name on a device: from a copy there if it fits, else from the host, with CUDA one batch ahead."""
    if copy := copies.of(states, name, device):
        return Reader(copy, name, device)
    return Reader(states, name, device, SideStream(device) if device.type == "cuda" else None)
