"""Packed batches: packing and unpacking, groups of similar length, the context in which a model runs them, and masks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

import frostline.model.packed_layout as layout_module
import frostline.model.packing as packing_module
from frostline.frozen.cut import cut_at
from frostline.model.anatomy import find_layers
from frostline.model.packed_layout import Layout
from frostline.model.packing import ATTENTION, packable, padded_mask
from small_models import small_batch, small_model

ragged = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def layout_of(lengths, padding=0, **options):
    return Layout(torch.tensor(lengths), max(lengths) + padding, **options)


def numbers(*shape):
    return torch.arange(1.0, 1.0 + torch.Size(shape).numel()).view(*shape)


@given(ragged, st.integers(0, 5))
def test_unpack_undoes_pack_and_pads_with_zeros_which_have_no_gradient(lengths, padding):
    layout = layout_of(lengths, padding)
    x = numbers(len(lengths), max(lengths) + padding, 2, 3).requires_grad_()  # [B, S, H, C]
    again, weights, real = layout.unpack(layout.pack(x)), numbers(*x.shape).sqrt(), layout.mask[:, :, None, None]
    assert torch.equal(again, x * real)
    (again * weights).sum().backward()
    assert torch.equal(x.grad, weights * real)


@given(ragged)
def test_pack_repeats_one_row_for_all_examples(lengths):
    """Positions and rotary tables are often [1, S]: the same for each example."""
    layout = layout_of(lengths)
    positions = torch.arange(max(lengths))[None]
    assert layout.pack(positions).tolist()[0] == [n for length in lengths for n in range(length)]


stacks = st.integers(1, 3).flatmap(
    lambda examples: st.lists(st.lists(st.integers(1, 9), min_size=examples, max_size=examples), min_size=1, max_size=4)
)


@given(stacks, st.integers(1, 16), st.integers(0, 5))
def test_each_run_has_its_real_tokens_in_order_filled_up_with_copies_of_its_first_token(runs, multiple, padding):
    """Copies have no gradient."""
    lengths = [length for run in runs for length in run]
    layout = Layout(torch.tensor(lengths), max(lengths) + padding, len(runs), tokens_multiple=multiple)
    x = numbers(len(lengths), max(lengths) + padding, 2)  # [B, S, D]
    packed = layout.pack(x)
    most = max(map(sum, runs))
    assert packed.shape[::2] == (len(runs), 2) and packed.shape[1] % multiple == 0 <= packed.shape[1] - most < multiple
    for run, own, examples in zip(runs, packed, x.split(len(runs[0])), strict=True):
        real = torch.cat([example[:length] for example, length in zip(examples, run, strict=True)])
        assert torch.equal(own[: sum(run)], real) and (own[sum(run) :] == examples[0, 0]).all()
    one = layout_of(lengths, padding)
    assert torch.equal(layout.split_by_run(one.pack(x)), packed)
    packed.requires_grad_()
    again = layout.unpack(packed)
    assert torch.equal(again, one.unpack(one.pack(x)))
    again.sum().backward()
    assert torch.equal(packed.grad, layout.is_real[..., None].expand_as(packed).float())


@given(stacks, st.integers(1, 16))
def test_gather_is_pack_and_undoes_spread(runs, multiple):
    """As GPUs use them. Padding is filled with the example's first token, so that no run reads another one.

    Only real tokens have a gradient, if padding has none.
    """
    lengths = torch.tensor([length for run in runs for length in run])
    layout = Layout(lengths, int(lengths.max()) + 1, len(runs), tokens_multiple=multiple)
    x = numbers(len(lengths), layout.length, 2)
    packed = layout.pack(x).requires_grad_()
    grid = layout.spread(packed)
    for gathered in (layout.gather(x), layout.gather(grid)):
        assert torch.equal(gathered[layout.is_real], packed[layout.is_real])
    (grid * layout.mask[..., None] * x).sum().backward()
    assert torch.equal(packed.grad, packed * layout.is_real[..., None])
    first = grid[:, :1].expand_as(grid)
    assert torch.equal(grid, torch.where(layout.mask[..., None].bool(), x, first))


def state_of(model):
    """The attention implementation, and the modules that have a packing."""
    names = [name for name, module in model.named_modules() if hasattr(module, "frostline_packing")]
    return model.config._attn_implementation, names


@pytest.mark.parametrize("model_type", ["bert", "llama"])
def test_packable_restores_the_model(model_type):
    model = small_model(model_type)
    before = state_of(model)
    with packable(model) as packing:
        assert packing is not None and model.config._attn_implementation == ATTENTION
        assert len(state_of(model)[1]) == len(list(model.modules()))
    assert state_of(model) == before == ("sdpa", [])
    with pytest.raises(ZeroDivisionError), packable(model):
        raise ZeroDivisionError
    assert state_of(model) == before


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "mistral"])
def test_without_a_layout_attention_is_that_of_transformers(model_type):
    model = small_model(model_type)
    batch = small_batch(model)
    with torch.no_grad():
        plain = model(**batch).logits
        with packable(model) as packing:
            assert torch.equal(model(**batch).logits, plain)
            assert packing.calls == 0


LENGTHS = (40, 3, 31, 7, 22, 5, 38, 12, 2, 9, 17, 26)


def result_of(model, lengths):
    """Logits and gradients of a packed batch."""
    batch, anatomy = small_batch(model, lengths), find_layers(model)
    with packable(model) as packing, cut_at(model, anatomy, None, packing=packing) as whole:
        logits = whole(batch)
    model.zero_grad()
    (logits * numbers(*logits.shape).sqrt()).sum().backward()
    return logits.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("examples", [12, 6])  # in groups of two and of one
@pytest.mark.parametrize("model_type", ["bert", "modernbert", "gpt2", "llama"])
def test_groups_of_similar_length_give_the_same_logits_and_gradients(model_type, examples, monkeypatch):
    model = small_model(model_type)
    logits, gradients = result_of(model, LENGTHS[:examples])
    assert not layout_of(LENGTHS[:examples]).groups
    for module in (layout_module, packing_module):
        monkeypatch.setattr(module, "MAX_SHORT", 0)
    monkeypatch.setattr(layout_module, "GROUP_COST", 0)
    assert len(layout_of(LENGTHS[:examples]).groups) == 6
    again, others = result_of(model, LENGTHS[:examples])
    assert (again - logits).abs().max() <= 2e-6 * logits.abs().max()
    assert others.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert (others[name] - gradient).abs().max() <= 1e-5 * max(g.abs().max() for g in gradients.values()), name


@given(st.lists(st.integers(1, 700), min_size=1, max_size=40))
def test_groups_hold_every_example_and_token_once_and_save_pairs(lengths):
    layout = layout_of(lengths)
    if layout.groups:
        examples, tokens = (
            torch.cat([getattr(group, name) for group in layout.groups]) for name in ("examples", "tokens")
        )
        assert sorted(examples.tolist()) == list(range(len(lengths))) and len(layout.groups) > 1
        assert sorted(tokens.tolist()) == list(range(sum(lengths))) and max(lengths) > layout_module.MAX_SHORT
        pairs = sum(len(group.examples) * group.layout.length**2 for group in layout.groups)
        assert pairs < len(lengths) * max(lengths) ** 2
        for group in layout.groups:
            assert group.layout.lengths.tolist() == [lengths[example] for example in group.examples]


def test_a_type_without_the_attention_interface_is_not_packable():
    model = small_model("deberta")  # implements attention itself
    with packable(model) as packing:
        assert packing is None
    assert state_of(model)[1] == []


def test_two_models_do_not_share_a_layout():
    one, two = small_model("bert"), small_model("bert")
    with packable(one) as first, packable(two) as second:
        first.layout = layout_of([3, 2])
        assert second.layout is None
        assert {m.frostline_packing for m in two.modules()} == {second}


@pytest.mark.parametrize("mask_function", [bidirectional_mask_function, causal_mask_function])
def test_devices_have_a_mask_without_being_asked_for_padding(mask_function):
    """A read of the device ``meta`` fails."""
    attention_mask = torch.ones(2, 4, dtype=torch.bool, device="meta")
    given = {"mask_function": mask_function, "attention_mask": attention_mask, "device": "meta"}
    mask = padded_mask(2, 4, 4, **given)
    assert mask.shape == (2, 1, 4, 4) and (mask.stride(2) == 0) == (mask_function is bidirectional_mask_function)


@pytest.mark.parametrize("lengths", [[4, 4], [4, 1]])
def test_a_cpu_has_the_mask_of_transformers(lengths):
    attention_mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    mask, expected = (make(2, 4, 4, attention_mask=attention_mask) for make in (padded_mask, sdpa_mask))
    assert (mask is None and expected is None) or torch.equal(mask, expected)
