"""Copies from the host to a CUDA GPU while the GPU computes."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sent:
    """A copy on its way: the tensor on the device, and the event after which it is complete."""

    tensor: Tensor
    complete: torch.cuda.Event


class SideStream:
    """A stream for copies alone. The host never waits for them in :meth:`send` and :meth:`receive`."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def send(self, x: Tensor) -> Sent:
        """Begin to copy a tensor of the host, from pinned memory."""
        with torch.cuda.stream(self._stream):
            copy = x.pin_memory().to(self._device, non_blocking=True)
            return Sent(copy, self._stream.record_event())

    def receive(self, sent: Sent) -> Tensor:
        """The copy, for the stream that computes. That stream waits for it; its memory is kept until that stream has used it."""
        computing = torch.cuda.current_stream(self._device)
        computing.wait_event(sent.complete)
        sent.tensor.record_stream(computing)
        return sent.tensor

    def finish(self) -> None:
        """Wait until no copy is on its way."""
        self._stream.synchronize()
