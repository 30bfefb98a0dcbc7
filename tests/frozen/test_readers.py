"""Readers give each batch once, in order. Copies of hidden states on a device have the same rows, and stay within a limit."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frostline.frozen import readers
from frostline.frozen.forward_pass import StateSelection
from frostline.frozen.hidden_states import HiddenStates
from frostline.frozen.readers import DeviceCopies, Reader, reader_of
from frozen.passes import Cache, RecordedStream, ragged_tokens
from training.stand_in import META, StandIn

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
CACHED = np.array([17, 2, 3, 5, 0, 11, 8, 19, 13, 4])  # some rows of the table, in no order
NAMES = ("tokens-1", "tokens-2", "head")


@pytest.fixture
def states(cache: Cache, small_shards: None, monkeypatch: pytest.MonkeyPatch) -> HiddenStates:
    """Hidden states in several shards. They are copied a few rows at a time."""
    monkeypatch.setattr("frostline.frozen.hidden_states.COPIED_ROWS", 3)
    return cache.load(ragged_tokens(20), CACHED, StateSelection((1, 2), head=True))


def ahead(states: HiddenStates) -> tuple[Reader, Any]:
    stream: Any = RecordedStream()
    return Reader(states, "tokens-2", CPU, stream), stream


def test_the_next_batch_is_sent_while_this_one_is_computed_and_only_once(states: HiddenStates) -> None:
    reader, stream = ahead(states)
    batches = CACHED.reshape(5, 2)
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        assert torch.equal(reader.read(batch), states.tokens(2, batch))
        if following is not None:
            reader.prefetch(following)
            reader.prefetch(following)
            assert stream.in_flight == {len(stream.sent) - 1}
    order = [("send", 0), ("receive", 0), *[(what, n) for n in (1, 2, 3, 4) for what in ("send", "receive")]]
    assert stream.events == order and not stream.in_flight


def test_a_closed_reader_has_no_copy_on_its_way(states: HiddenStates) -> None:
    reader, stream = ahead(states)
    reader.prefetch(CACHED[:5])
    reader.close()
    assert not stream.in_flight and stream.events[-1][0] == "finish"
    reader.read(CACHED[:5])  # sent again, because the copy was forgotten
    assert len(stream.sent) == 2


some_rows = st.lists(st.sampled_from(CACHED.tolist()), min_size=1, max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.booleans(), some_rows), max_size=8))
def test_whatever_is_prefetched_reads_are_those_of_the_host(
    states: HiddenStates, calls: list[tuple[bool, list[int]]]
) -> None:
    reader, _ = ahead(states)
    for only_prefetch, rows in calls:
        if only_prefetch:
            reader.prefetch(np.array(rows))
        else:
            assert torch.equal(reader.read(np.array(rows)), states.tokens(2, np.array(rows)))


def size_of(states: HiddenStates, name: str) -> int:
    return states.read(name, states.rows).nbytes


def test_the_reader_for_a_device(states: HiddenStates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "SideStream", RecordedStream)
    copies, size = DeviceCopies(), size_of(states, "tokens-2")
    for device, limit, streams in ((CPU, 0, False), (META, 0, False), (CUDA, 0, True), (CUDA, size - 1, True)):
        copies.keep_within(limit)  # too little memory for a copy
        assert (reader_of(states, "tokens-2", device, copies).stream is not None) == streams and not copies.bytes
    copies.keep_within(size)
    assert reader_of(states, "tokens-2", META, copies).stream is None and copies.bytes == size


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some_rows)
def test_a_copy_has_the_same_rows_in_the_same_order(states: HiddenStates, rows: Sequence[int]) -> None:
    """For every name, also of repeated rows. The memory of this machine stands in for that of a GPU."""
    for name in NAMES:
        copy = Reader(states.copied(name, CPU), name, CPU)
        assert torch.equal(copy.read(np.array(rows)), states.read(name, np.array(rows))[None])


def test_a_copy_is_on_its_device_and_its_reads_only_send_positions(states: HiddenStates) -> None:
    for name in NAMES:
        with StandIn() as watched:
            copy = states.copied(name, META)
            expected, watched.phase = states.read(name, CACHED[:4]), "read"
            found = copy.read(name, CACHED[:4])
        assert found.device == META and (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert not watched.misplaced and not watched.reads
        assert watched.operations["read"] == 2  # positions are copied, vectors are looked up


def test_rows_that_are_not_cached_cannot_be_read(states: HiddenStates) -> None:
    for one in (states, states.copied("head", CPU)):
        with pytest.raises(AssertionError, match="were not loaded"):
            one.head(np.array([1]))


def test_copies_stay_within_a_limit(states: HiddenStates) -> None:
    """Both names of all tokens have the same size."""
    one, head, copies = size_of(states, "tokens-1"), size_of(states, "head"), DeviceCopies()

    def of(name: str) -> HiddenStates | None:
        return copies.of(states, name, CPU)

    assert of("tokens-1") is None  # at first nothing is copied
    copies.keep_within(one - 1)
    assert of("tokens-1") is None and of("head") is not None and copies.bytes == head
    copies.keep_within(one)
    first = of("tokens-1")  # instead of the head's
    assert first is not None and copies.bytes == one and of("tokens-1") is first
    copies.keep_within(2 * one)
    second = of("tokens-2")
    assert of("tokens-1") is first and of("tokens-2") is second and copies.bytes == 2 * one
    assert of("tokens-1") is first
    copies.keep_within(one + 1)
    assert copies.bytes == one and of("tokens-1") is first  # the other one was not asked for longer
    assert copies.refuse() and not copies.refuse()  # memory ran out
    copies.keep_within(1 << 30)
    assert copies.bytes == 0 and of("tokens-1") is None


def test_other_hidden_states_are_copied_anew(states: HiddenStates, cache: Cache) -> None:
    copies = DeviceCopies()
    copies.keep_within(1 << 30)
    old = copies.of(states, "tokens-1", CPU)
    new = copies.of(cache.load(ragged_tokens(20), range(20)), "tokens-1", CPU)
    assert old is not None and new is not None and new is not old
    new.tokens(1, np.array([1]))
