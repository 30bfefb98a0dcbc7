"""Copies of hidden states on a device have the rows of the cache in the order of the batch. They stay within a limit."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frostline.frozen import readers as device_copies
from frostline.frozen.forward_pass import StateSelection
from frostline.frozen.readers import DeviceCopies, DeviceCopy, Part
from frozen.cached import Cache
from frozen.random_tokens import ragged_tokens
from training.stand_in import META, StandIn

CPU = torch.device("cpu")
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
        copy = DeviceCopy(part, CPU)
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
        DeviceCopy(parts[0], CPU).read(np.array([1]))


def size_of(part: Part) -> int:
    return part.read(part.states.rows).nbytes


def test_copies_stay_within_a_limit(parts: list[Part]) -> None:
    """Both parts of all tokens have the same size."""
    one, other, head = parts
    copies = DeviceCopies()
    assert copies.of(one, CPU) is None  # at first nothing is copied
    copies.keep_within(size_of(one) - 1)
    assert copies.of(one, CPU) is None and copies.of(head, CPU) is not None and copies.bytes == size_of(head)
    copies.keep_within(size_of(one))
    first = copies.of(one, CPU)  # instead of the head's
    assert first is not None and copies.bytes == size_of(one) and copies.of(one, CPU) is first
    copies.keep_within(2 * size_of(one))
    second = copies.of(other, CPU)
    assert copies.of(one, CPU) is first and copies.of(other, CPU) is second and copies.bytes == 2 * size_of(one)
    assert copies.of(one, CPU) is first
    copies.keep_within(size_of(one) + 1)
    assert copies.bytes == size_of(one) and copies.of(one, CPU) is first  # the other one was not asked for longer
    copies.keep_within(0)
    assert copies.bytes == 0 and copies.of(one, CPU) is None


def test_after_memory_ran_out_nothing_is_copied(parts: list[Part]) -> None:
    copies = DeviceCopies()
    copies.keep_within(1 << 30)
    assert copies.of(parts[0], CPU) is not None
    assert copies.refuse() and not copies.refuse()
    copies.keep_within(1 << 30)
    assert copies.bytes == 0 and copies.of(parts[0], CPU) is None


def test_other_hidden_states_are_copied_anew(parts: list[Part], cache: Cache) -> None:
    tokens, copies = ragged_tokens(20), DeviceCopies()
    copies.keep_within(1 << 30)
    old = copies.of(parts[0], CPU)
    new = copies.of(Part.tokens(cache.load(tokens, range(20)), 1, tokens.lengths), CPU)
    assert old is not None and new is not None and new is not old and copies.bytes == new.bytes
    new.read(np.array([1]))
