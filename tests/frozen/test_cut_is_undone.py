"""A cut leaves nothing behind: on the model, between batches, or in the number of tokens."""

from contextlib import nullcontext

import pytest
import torch

from frostline.frozen.cut import cut_at
from frostline.model.anatomy import find_layers
from frozen.cut_models import LAYERS, batches_of, states_by_cut
from small_models import small_batch, small_model


@pytest.mark.parametrize("path", ["padded", "packed"])
@pytest.mark.parametrize("cut", [None, 0, 2, LAYERS])
@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_undone(cut: int | None, path: str, fails: bool) -> None:
    model = small_model("bert")
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    states = None if cut is None else states_by_cut(model, anatomy, batch)[cut]
    with torch.no_grad():
        before = model(**batch).logits
        with (
            pytest.raises(ZeroDivisionError) if fails else nullcontext(),
            batches_of(model, path) as packing,
            cut_at(model, anatomy, cut, packing=packing) as upper,
        ):
            upper(batch, states)
            if fails:
                raise ZeroDivisionError
        assert torch.equal(model(**batch).logits, before)
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
        assert "forward" not in vars(module)


def test_taps_of_a_cut_model_begin_at_the_cut() -> None:
    model = small_model("bert")
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    state, seen = states_by_cut(model, anatomy, batch)[2], []
    with torch.no_grad(), cut_at(model, anatomy, 2, tap=lambda n, hidden: seen.append(n)) as upper:
        upper(batch, state)
    assert seen == [2, 3, 4]


def test_a_failed_forward_leaves_no_states_for_the_next_batch() -> None:
    model = small_model("bert")
    long, short = small_batch(model), small_batch(model, (5, 3))
    anatomy = find_layers(model, long)
    states = states_by_cut(model, anatomy, long)[2]
    with torch.no_grad(), batches_of(model, "packed") as packing, cut_at(model, anatomy, 2, packing=packing) as upper:
        wanted = upper(long, states)
        with pytest.raises(AssertionError, match="not those of this batch"):
            upper(short, states)
        assert packing is not None and packing.layout is None and upper._hidden is None
        assert torch.equal(upper(long, states), wanted)


def test_a_capacity_is_not_rounded() -> None:
    """A forward pass computes the same number of tokens in every batch, however many are real."""
    model = small_model("bert")
    batch, seen = small_batch(model), []
    anatomy, real = find_layers(model, batch), int(batch["attention_mask"].sum())
    capacity = real + 16 - real % 16 - 8  # no multiple of the step
    with (
        torch.no_grad(),
        batches_of(model, "packed") as packing,
        cut_at(model, anatomy, None, packing=packing, tap=lambda n, hidden: seen.append(hidden.shape[1])) as whole,
    ):
        whole(batch, capacity=capacity, examples=capacity // 8)
    assert set(seen) == {capacity}
