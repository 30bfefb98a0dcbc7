"""Read the cached hidden states of batches on the device that computes.

A CPU reads them from the mapped files. A GPU reads them from a copy in its own memory, or from the host, one batch ahead.
"""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from frostline.frozen.batches import Rows
from frostline.frozen.cache.device_copies import DeviceCopies
from frostline.frozen.cache.part import Part
from frostline.model.device import to_device
from frostline.model.side_stream import Sent, SideStream


class Reader(Protocol):
    """Reads the hidden states of batches. The host does not wait for the device."""

    def read(self, rows: Rows) -> Tensor:
        """The vectors ``[1, N, ...]`` of these rows on the device, in the order of the rows."""


class HostReader:
    """Copies each batch when it is read. On a CPU there is nothing to copy."""

    def __init__(self, part: Part, device: torch.device) -> None:
        self._part, self._device = part, device

    def read(self, rows: Rows) -> Tensor:
        return to_device(self._part.read(rows), self._device)


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


def reader_of(part: Part, device: torch.device, copies: DeviceCopies) -> Reader:
    """Reads a part on a device: from a copy there if it fits, else from the host. With CUDA, it can read one batch ahead."""
    if copy := copies.of(part, device):
        return copy
    return AheadReader(part, SideStream(device)) if device.type == "cuda" else HostReader(part, device)
