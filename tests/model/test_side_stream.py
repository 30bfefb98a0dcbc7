"""The order of the calls that copy on a stream of their own. No test machine has a GPU, so torch.cuda is replaced."""

from contextlib import contextmanager

import pytest
import torch

from frostline.frozen.readers import SideStream

CUDA = torch.device("cuda")


@pytest.fixture
def calls(monkeypatch):
    found = []

    class Stream:
        def __init__(self, device=None, name="side"):
            self.name = name

        def record_event(self):
            found.append(f"record event on {self.name}")
            return f"event of {self.name}"

        def wait_event(self, event):
            found.append(f"{self.name} waits for {event}")

        def synchronize(self):
            found.append(f"host waits for {self.name}")

    @contextmanager
    def on(stream):
        found.append(f"begin {stream.name}")
        yield
        found.append(f"end {stream.name}")

    def copied(x, device, non_blocking=False):
        found.append(f"copy to {device}, non_blocking={non_blocking}")
        return x

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream(name="main"))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x: found.append("pin") or x)
    monkeypatch.setattr(torch.Tensor, "to", copied)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda x, stream: found.append(f"used by {stream.name}"))
    return found


def test_only_the_device_waits_for_a_copy(calls):
    """The copy is pinned and asynchronous, and its memory is not reused before the computing stream has read it."""
    stream, x = SideStream(CUDA), torch.ones(2)
    sent = stream.send(x)
    assert calls == ["begin side", "pin", "copy to cuda, non_blocking=True", "record event on side", "end side"]
    calls.clear()
    assert stream.receive(sent) is x
    assert calls == ["main waits for event of side", "used by main"]


def test_the_host_can_wait_at_the_end(calls):
    SideStream(CUDA).finish()
    assert calls == ["host waits for side"]
