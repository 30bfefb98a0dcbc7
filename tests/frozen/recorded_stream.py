"""A stand-in for the stream of a GPU that copies batches: it records what is sent, received and still on its way."""

from torch import Tensor


class RecordedStream:
    """Copies at once.

    Attributes:
        events: ``send``, ``receive`` and ``finish``, in order; a copy with its number, counted from 0.
        sent: All tensors that were sent.
        in_flight: The numbers of the copies that were neither received nor waited for.
    """

    def __init__(self, device: object = None) -> None:
        self.events: list[tuple[str, int]] = []
        self.sent: list[Tensor] = []
        self.in_flight: set[int] = set()

    def send(self, x: Tensor) -> tuple[int, Tensor]:
        number = len(self.sent)
        self.sent.append(x)
        self.in_flight.add(number)
        self.events.append(("send", number))
        return number, x.clone()

    def receive(self, sent: tuple[int, Tensor]) -> Tensor:
        number, copy = sent
        self.in_flight.remove(number)
        self.events.append(("receive", number))
        return copy

    def finish(self) -> None:
        self.in_flight.clear()
        self.events.append(("finish", len(self.sent)))
