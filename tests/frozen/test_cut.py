"""The cut model gives the same results as the uncut model, bitwise identical if the shapes are the same, and changes nothing."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch

import frostline.frozen.cut as cut_module
from frostline.frozen.cut import cut_at, hidden_states_by_cut
from frostline.model.anatomy import find_layers
from frostline.model.ways import Way
from frozen.passes import (
    LAYERS,
    largest_difference,
    logits_and_gradients,
    packing_for,
    states_by_cut,
    train_only,
)
from small_models import small, small_batch, small_model


@pytest.mark.parametrize("model_type", ["bert", "distilbert", "gpt2", "llama", "modernbert"])
def test_the_cut_model_equals_the_uncut_model(model_type: str) -> None:
    model, batch, anatomy = small(model_type)  # ragged, longer than the sliding windows
    states = states_by_cut(model, anatomy, batch)
    for cut in range(LAYERS + 1):
        trained = train_only(model, Way(tune=LAYERS - cut).parameters(anatomy))
        logits, gradients = logits_and_gradients(model(**batch).logits, trained)
        with cut_at(model, anatomy, cut) as upper:
            padded, padded_gradients = logits_and_gradients(upper(batch, states[cut]), trained)
        assert torch.equal(padded, logits), cut
        for name, gradient in gradients.items():
            assert torch.equal(padded_gradients[name], gradient), (cut, name)
        with packing_for(model, "packed") as packing, cut_at(model, anatomy, cut, packing=packing) as upper:
            packed, packed_gradients = logits_and_gradients(upper(batch, states[cut]), trained)
            assert bool(packing.calls) == (cut < LAYERS)
        assert largest_difference([packed], [logits]) < 1e-6, cut
        assert largest_difference(packed_gradients.values(), gradients.values()) < 1e-6, cut
    trained = train_only(model, Way(tune="full").parameters(anatomy))
    logits, gradients = logits_and_gradients(model(**batch).logits, trained)
    for batches in ("padded", "packed"):
        with packing_for(model, batches) as packing, cut_at(model, anatomy, None, packing=packing) as whole:
            others, other_gradients = logits_and_gradients(whole(batch), trained)
        assert largest_difference([others], [logits]) < 1e-6
        assert largest_difference(other_gradients.values(), gradients.values()) < 1e-6


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "llama"])
def test_hidden_states_by_cut_equal_the_hidden_states_of_transformers(model_type: str) -> None:
    model, batch, anatomy = small(model_type)
    mask = batch["attention_mask"].bool()
    with torch.no_grad():
        plain = model(**batch, output_hidden_states=True).hidden_states
    seen = hidden_states_by_cut(model, anatomy, batch)
    assert list(seen) == [0, 1, 2, 3, 4]
    for n in range(LAYERS):
        assert torch.equal(seen[n][0], plain[n][mask])
    last = seen[LAYERS][0]
    if model_type == "llama":  # the last hidden states of transformers are after the final norm
        last = model.model.norm(last)
    if model_type == "gpt2":
        last = model.transformer.ln_f(last)
    assert torch.equal(last, plain[LAYERS][mask])
    with packing_for(model, "packed") as packing:
        packed = states_by_cut(model, anatomy, batch, packing)
    assert all(largest_difference([packed[n]], [seen[n]]) < 1e-6 for n in seen)


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "llama", "modernbert"])
def test_rounding_the_number_of_tokens_up_changes_no_result(model_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits and gradients stay the same."""
    found: list[tuple[torch.Tensor, dict[str, Any]]] = []
    for step in (1, 16):
        monkeypatch.setattr(cut_module, "TOKENS_MULTIPLE", step)
        model, batch, anatomy = small(model_type, (20, 18, 7, 3))
        with packing_for(model, "packed") as packing, cut_at(model, anatomy, None, packing=packing) as whole:
            logits = whole(batch)
            logits.square().sum().backward()
        found.append((logits.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    (logits, gradients), (other_logits, other_gradients) = found
    assert gradients.keys() == other_gradients.keys() and largest_difference([logits], [other_logits]) < 1e-6
    assert largest_difference(gradients.values(), [other_gradients[name] for name in gradients]) < 1e-5


@pytest.mark.parametrize("before", [False, True])
def test_attention_of_cudnn_which_prepares_each_shape_anew_is_off_while_a_model_is_cut(before: bool) -> None:
    model = small_model("bert")
    torch.backends.cuda.enable_cudnn_sdp(before)
    try:
        with cut_at(model, find_layers(model), 1):
            assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.cudnn_sdp_enabled() == before
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


@pytest.mark.parametrize(
    ("cut", "batches", "fails"),
    [
        (None, "packed", True),
        (None, "padded", False),
        (2, "packed", False),
        (2, "padded", True),
        (LAYERS, "packed", True),
    ],
)
def test_a_tap_is_called_from_the_cut_on_and_the_model_is_restored(cut: int | None, batches: str, fails: bool) -> None:
    model, batch, anatomy = small("bert")
    states, seen = None if cut is None else states_by_cut(model, anatomy, batch)[cut], list[int]()
    with torch.no_grad():
        before = model(**batch).logits
        with (
            pytest.raises(ZeroDivisionError) if fails else nullcontext(),
            packing_for(model, batches) as packing,
            cut_at(model, anatomy, cut, packing=packing, tap=lambda n, hidden: seen.append(n)) as upper,
        ):
            upper(batch, states)
            if fails:
                raise ZeroDivisionError
        assert torch.equal(model(**batch).logits, before)
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
        assert "forward" not in vars(module)
    assert seen == ([] if cut == LAYERS else [*range(cut or 0, LAYERS + 1)])


def test_a_failed_forward_pass_leaves_no_states_for_the_next_batch() -> None:
    model, long, anatomy = small("bert")
    short = small_batch(model, (5, 3))
    states = states_by_cut(model, anatomy, long)[2]
    with torch.no_grad(), packing_for(model, "packed") as packing, cut_at(model, anatomy, 2, packing=packing) as upper:
        expected = upper(long, states)
        with pytest.raises(AssertionError, match="not those of this batch"):
            upper(short, states)
        assert packing is not None and packing.layout is None and upper._hidden is None
        assert torch.equal(upper(long, states), expected)


def test_a_capacity_is_not_rounded() -> None:
    """The forward pass over frozen layers computes the same number of tokens in every batch."""
    model, batch, anatomy = small("bert")
    seen, real = [], int(batch["attention_mask"].sum())
    capacity = real + 16 - real % 16 - 8  # no multiple of the step
    with (
        torch.no_grad(),
        packing_for(model, "packed") as packing,
        cut_at(model, anatomy, None, packing=packing, tap=lambda n, hidden: seen.append(hidden.shape[1])) as whole,
    ):
        whole(batch, capacity=capacity, examples=capacity // 8)
    assert set(seen) == {capacity}
