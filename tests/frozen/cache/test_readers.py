"""Readers of batches: each batch once, in order, and none on its way at the end."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frostline.frozen import readers
from frostline.frozen.readers import AheadReader, DeviceCopies, DeviceCopy, HostReader, Part, reader_of
from frozen.cached import Cache
from frozen.random_tokens import ragged_tokens
from frozen.recorded_stream import RecordedStream

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def part(cache: Cache) -> Part:
    tokens = ragged_tokens(20)
    return Part.tokens(cache.load(tokens, range(20)), 2, tokens.lengths)


def ahead(part: Part) -> tuple[AheadReader, Any]:
    stream: Any = RecordedStream()
    return AheadReader(part, stream), stream


def test_the_next_batch_is_sent_while_this_one_is_computed_and_only_once(part: Part) -> None:
    reader, stream = ahead(part)
    batches = np.arange(20).reshape(4, 5)
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        assert torch.equal(reader.read(batch), part.read(batch))
        if following is not None:
            reader.prefetch(following)
            reader.prefetch(following)
            assert stream.in_flight == {len(stream.sent) - 1}
    order = [("send", 0), ("receive", 0), *[(what, n) for n in (1, 2, 3) for what in ("send", "receive")]]
    assert stream.events == order and not stream.in_flight
    for sent, batch in zip(stream.sent, batches, strict=True):
        assert torch.equal(sent, part.read(batch))


def test_other_rows_can_be_read_in_between(part: Part) -> None:
    """An evaluation between two steps does not use up the batch of the next step."""
    reader, stream = ahead(part)
    reader.prefetch(np.arange(5))
    assert torch.equal(reader.read(np.arange(7, 12)), part.read(np.arange(7, 12)))
    assert torch.equal(reader.read(np.arange(5)), part.read(np.arange(5)))
    assert [number for what, number in stream.events if what == "receive"] == [1, 0] and len(stream.sent) == 2
    reader.read(np.arange(5))  # a copy is used once, and not kept
    assert len(stream.sent) == 3


def test_a_closed_reader_has_no_copy_on_its_way(part: Part) -> None:
    reader, stream = ahead(part)
    reader.prefetch(np.arange(5))
    reader.close()
    assert not stream.in_flight and stream.events[-1][0] == "finish"
    reader.read(np.arange(5))  # sent again, because the copy was forgotten
    assert len(stream.sent) == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 19), min_size=1, max_size=4)), max_size=8))
def test_whatever_is_prefetched_reads_are_those_of_the_host(part: Part, calls: list[tuple[bool, list[int]]]) -> None:
    reader, _ = ahead(part)
    for only_prefetch, rows in calls:
        if only_prefetch:
            reader.prefetch(np.array(rows))
        else:
            assert torch.equal(reader.read(np.array(rows)), part.read(np.array(rows)))


def test_the_reader_for_a_device(part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "SideStream", RecordedStream)
    copies = DeviceCopies()
    assert isinstance(reader_of(part, CPU, copies), HostReader)
    assert isinstance(reader_of(part, torch.device("meta"), copies), HostReader)
    assert isinstance(reader_of(part, CUDA, copies), AheadReader)
    size = part.read(part.states.rows).nbytes
    copies.keep_within(size - 1)
    assert isinstance(reader_of(part, CUDA, copies), AheadReader)  # too little memory for a copy
    copies.keep_within(size)
    assert isinstance(reader_of(part, torch.device("meta"), copies), DeviceCopy)


def test_a_cpu_reads_the_tensors_of_the_cache(part: Part) -> None:
    rows = np.array([4, 1, 1])
    assert torch.equal(HostReader(part, CPU).read(rows), part.read(rows))
