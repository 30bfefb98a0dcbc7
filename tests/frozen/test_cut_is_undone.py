"""After a cut, the model is unchanged, and no state of one batch reaches the next."""

from contextlib import nullcontext

import pytest
import torch

from frostline.frozen.cut import cut_at
from frostline.model.anatomy import find_layers
from frozen.cut_models import LAYERS, packing_for, states_by_cut
from small_models import small_batch, small_model


@pytest.mark.parametrize("batches", ["padded", "packed"])
@pytest.mark.parametrize("cut", [None, 0, 2, LAYERS])
@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_restored(cut: int | None, batches: str, fails: bool) -> None:
    model = small_model("bert")
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    states = None if cut is None else states_by_cut(model, anatomy, batch)[cut]
    with torch.no_grad():
        before = model(**batch).logits
        with (
            pytest.raises(ZeroDivisionError) if fails else nullcontext(),
            packing_for(model, batches) as packing,
            cut_at(model, anatomy, cut, packing=packing) as upper,
        ):
            upper(batch, states)
            if fails:
                raise ZeroDivisionError
        assert torch.equal(model(**batch).logits, before)
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
        assert "forward" not in vars(module)


def test_a_tap_is_called_from_the_cut_on() -> None:
    model = small_model("bert")
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    state, seen = states_by_cut(model, anatomy, batch)[2], []
    with torch.no_grad(), cut_at(model, anatomy, 2, tap=lambda n, hidden: seen.append(n)) as upper:
        upper(batch, state)
    assert seen == [2, 3, 4]


def test_a_failed_forward_pass_leaves_no_states_for_the_next_batch() -> None:
    model = small_model("bert")
    long, short = small_batch(model), small_batch(model, (5, 3))
    anatomy = find_layers(model, long)
    states = states_by_cut(model, anatomy, long)[2]
    with torch.no_grad(), packing_for(model, "packed") as packing, cut_at(model, anatomy, 2, packing=packing) as upper:
        expected = upper(long, states)
        with pytest.raises(AssertionError, match="not those of this batch"):
            upper(short, states)
        assert packing is not None and packing.layout is None and upper._hidden is None
        assert torch.equal(upper(long, states), expected)


def test_a_capacity_is_not_rounded() -> None:
    """The forward pass over frozen layers computes the same number of tokens in every batch."""
    model = small_model("bert")
    batch, seen = small_batch(model), []
    anatomy, real = find_layers(model, batch), int(batch["attention_mask"].sum())
    capacity = real + 16 - real % 16 - 8  # no multiple of the step
    with (
        torch.no_grad(),
        packing_for(model, "packed") as packing,
        cut_at(model, anatomy, None, packing=packing, tap=lambda n, hidden: seen.append(hidden.shape[1])) as whole,
    ):
        whole(batch, capacity=capacity, examples=capacity // 8)
    assert set(seen) == {capacity}
