"""Readers of batches: each batch once, in order, and none on its way at the end.

- Copies of hidden states on a device have the rows of the cache in the order of the batch. They stay within a limit.
- The parts of cached hidden states.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frostline.frozen import readers
from frostline.frozen import readers as device_copies
from frostline.frozen.forward_pass import StateSelection
from frostline.frozen.readers import AheadReader, DeviceCopies, DeviceCopy, HostReader, Part, reader_of
from frozen.passes import Cache, RecordedStream, ragged_tokens
from training.stand_in import META, StandIn

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


HOST = torch.device("cpu")
CACHED = np.array([17, 2, 3, 5, 0, 11, 8, 19, 13, 4])  # some rows of the table, in no order


@pytest.fixture
def parts(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """All parts of hidden states in several shards. They are copied a few rows at a time."""
    monkeypatch.setattr("frostline.frozen.hidden_states.SHARD_ROWS", 4)
    monkeypatch.setattr(device_copies, "COPIED_ROWS", 3)
    tokens = ragged_tokens(20)
    states = cache.load(tokens, CACHED, StateSelection((1, 2), head=True))
    tables = [Part.tokens(states, cut, tokens.lengths) for cut in (1, 2)]
    return [*tables, Part.head(states, tokens.lengths)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(CACHED.tolist()), min_size=1, max_size=12))
def test_a_copy_has_the_same_rows_in_the_same_order(parts: list[Part], rows: Sequence[int]) -> None:
    """In every part, also of repeated rows. The memory of this machine stands in for that of a GPU."""
    for part in parts:
        copy = DeviceCopy(part, HOST)
        assert torch.equal(copy.read(np.array(rows)), part.read(np.array(rows)))


def test_a_copy_is_on_its_device_and_its_reads_only_send_positions(parts: list[Part]) -> None:
    for part in parts:
        with StandIn() as watched:
            copy = DeviceCopy(part, META)
            expected, watched.phase = part.read(CACHED[:4]), "read"
            found = copy.read(CACHED[:4])
        assert found.device == META and (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert not watched.misplaced and not watched.reads
        assert watched.operations["read"] == 2  # positions are copied, vectors are looked up


def test_rows_that_are_not_cached_cannot_be_read(parts: list[Part]) -> None:
    with pytest.raises(AssertionError, match="were not copied"):
        DeviceCopy(parts[0], HOST).read(np.array([1]))


def size_of(part: Part) -> int:
    return part.read(part.states.rows).nbytes


def test_copies_stay_within_a_limit(parts: list[Part]) -> None:
    """Both parts of all tokens have the same size."""
    one, other, head = parts
    copies = DeviceCopies()
    assert copies.of(one, HOST) is None  # at first nothing is copied
    copies.keep_within(size_of(one) - 1)
    assert copies.of(one, HOST) is None and copies.of(head, HOST) is not None and copies.bytes == size_of(head)
    copies.keep_within(size_of(one))
    first = copies.of(one, HOST)  # instead of the head's
    assert first is not None and copies.bytes == size_of(one) and copies.of(one, HOST) is first
    copies.keep_within(2 * size_of(one))
    second = copies.of(other, HOST)
    assert copies.of(one, HOST) is first and copies.of(other, HOST) is second and copies.bytes == 2 * size_of(one)
    assert copies.of(one, HOST) is first
    copies.keep_within(size_of(one) + 1)
    assert copies.bytes == size_of(one) and copies.of(one, HOST) is first  # the other one was not asked for longer
    copies.keep_within(0)
    assert copies.bytes == 0 and copies.of(one, HOST) is None


def test_after_memory_ran_out_nothing_is_copied(parts: list[Part]) -> None:
    copies = DeviceCopies()
    copies.keep_within(1 << 30)
    assert copies.of(parts[0], HOST) is not None
    assert copies.refuse() and not copies.refuse()
    copies.keep_within(1 << 30)
    assert copies.bytes == 0 and copies.of(parts[0], HOST) is None


def test_other_hidden_states_are_copied_anew(parts: list[Part], cache: Cache) -> None:
    tokens, copies = ragged_tokens(20), DeviceCopies()
    copies.keep_within(1 << 30)
    old = copies.of(parts[0], HOST)
    new = copies.of(Part.tokens(cache.load(tokens, range(20)), 1, tokens.lengths), HOST)
    assert old is not None and new is not None and new is not old and copies.bytes == new.bytes
    new.read(np.array([1]))


def test_a_part_reads_what_its_states_hold(cache: Cache) -> None:
    tokens, rows = ragged_tokens(9), np.array([3, 8, 0])
    states = cache.load(tokens, range(9), StateSelection((1, 2), head=True))
    parts = [Part.tokens(states, 2, tokens.lengths), Part.head(states, tokens.lengths)]
    assert [part.name for part in parts] == ["tokens-2", "head"]
    expected = (states.tokens(2, rows), states.head(rows))
    for part, vectors in zip(parts, expected, strict=True):
        assert torch.equal(part.read(rows), vectors) and part.counts[rows].sum() == vectors.shape[1]
