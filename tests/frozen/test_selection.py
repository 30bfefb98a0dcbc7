"""The selection of hidden states: its size on disk, and the largest part that fits."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.frozen.forward_pass import StateSelection, selection_for
from frostline.model.anatomy import find_layers
from frozen.cached import ALL, Cache
from frozen.random_tokens import ragged_tokens
from small_models import small_model

WIDTH = 64


@pytest.fixture(scope="module")
def bert() -> tuple[Any, Any]:
    model = small_model("bert")
    return model, find_layers(model)


@pytest.mark.parametrize(
    "selection",
    [
        ALL,
        StateSelection((2,), head=False),
        StateSelection((), head=True),
        StateSelection((0, 1, 2, 3, 4), head=False),
        StateSelection((1,), head=True, pooled=(0, 4)),
    ],
)
def test_the_predicted_size_is_the_size_on_disk(
    bert: tuple[Any, Any], tmp_path: Path, selection: StateSelection
) -> None:
    cache, tokens = Cache(tmp_path, *bert), ragged_tokens(10)
    cache.load(tokens, range(10), selection)
    on_disk = sum(file.stat().st_size for shard in cache.shards for file in shard.iterdir())
    extra = on_disk - selection.bytes(10, int(tokens.offsets[-1]), WIDTH)
    assert 0 < extra < 2500  # headers of 128 bytes, and the record
    arrays = [file for shard in cache.shards for file in shard.glob("*.npy")]
    assert extra - 8 == 128 * len(arrays) + sum((shard / "shard.json").stat().st_size for shard in cache.shards)


def largest_part(selection: StateSelection, limit: int, *, width: int = 8) -> StateSelection:
    """The largest part that fits for 10 examples with 100 tokens in total."""
    return selection.largest_part(lambda part: part.bytes(10, 100, width) <= limit)


def test_cuts_farthest_from_the_head_are_dropped_first() -> None:
    selection = StateSelection((1, 3, 5), head=True)
    whole, cut = selection.bytes(10, 100, 8), 100 * 8 * 4
    assert largest_part(selection, whole) == selection
    assert largest_part(selection, whole - 1) == StateSelection((3, 5), head=True)
    assert largest_part(selection, whole - cut - 1) == StateSelection((5,), head=True)
    assert largest_part(selection, 10 * 8 * 4 + 24 * 10) == StateSelection((), head=True)
    assert largest_part(selection, 0) == StateSelection((), head=False)


def test_pooled_vectors_are_dropped_before_a_cut_and_stay_if_no_cut_is_saved() -> None:
    selection, one = StateSelection((1, 3), head=True, pooled=(0, 1, 2)), StateSelection((3,), head=True)
    assert largest_part(selection, selection.bytes(10, 100, 8) - 1) == StateSelection((1, 3), head=True)
    assert largest_part(selection, one.bytes(10, 100, 8)) == one
    without_cuts = StateSelection((), head=True, pooled=(0, 1, 2))
    assert largest_part(selection, one.bytes(10, 100, 8) - 1) == without_cuts  # it takes less than a cut


@given(st.sets(st.integers(0, 12)), st.booleans(), st.integers(0, 10**7), st.integers(1, 99), st.integers(1, 999))
def test_the_largest_part_has_as_many_of_the_last_cuts_as_fit(
    cuts: set[int], head: bool, limit: int, examples: int, tokens: int
) -> None:
    selection = StateSelection(tuple(sorted(cuts)), head)

    def size(part: StateSelection) -> int:
        return part.bytes(examples, tokens, 64)

    part = selection.largest_part(lambda part: size(part) <= limit)
    if part == StateSelection((), head=False):
        assert size(StateSelection((), head)) > limit or not cuts or not head
        assert not cuts or size(StateSelection(selection.cuts[-1:], head)) > limit
        return
    assert part.head == head and part.cuts == selection.cuts[len(cuts) - len(part.cuts) :]
    assert size(part) <= limit
    if part != selection:
        assert size(StateSelection(selection.cuts[len(cuts) - len(part.cuts) - 1 :], head)) > limit


@pytest.mark.parametrize(
    "cuts, reads, selection",
    [
        ((4, 2, 0), "first", StateSelection((0, 2), head=True)),
        ((4, 2, 2), "last", StateSelection((2,), head=True)),
        ((4, 2), "all", StateSelection((2, 4), head=False)),
        ((3, 1), "first", StateSelection((1, 3), head=False)),
        ((4,), "first", StateSelection((), head=True)),
        ((), "first", StateSelection((), head=False)),
    ],
)
def test_selection_for(bert: tuple[Any, Any], cuts: tuple[int, ...], reads: str, selection: StateSelection) -> None:
    assert selection_for(cuts, bert[1], reads) == selection
