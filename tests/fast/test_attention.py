"""Attention over packed short examples: results and gradients equal those of attention in the padded grid."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from frostline.fast.attention import HeadGrid, attention, shared_rows
from frostline.fast.dropout import Dropout, sdpa_with_dropout
from frostline.frozen.cut import cut_at
from frostline.model.anatomy import find_layers
from frostline.model.packed_layout import Layout
from frostline.model.packing import packable
from small_models import small_batch, small_model

HEADS, SIZE = 3, 4


def masks(lengths: list[int], kind: str) -> torch.Tensor | None:
    """Attention masks as transformers builds them, ``[B or 1, H or 1, S or 1, S]``."""
    longest = max(lengths)
    real = (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]
    causal = torch.ones(longest, longest, dtype=torch.bool).tril()[None, None]
    additive = torch.zeros(real.shape).masked_fill(~real, torch.finfo(torch.float32).min)
    if_needed = None if len(set(lengths)) == 1 else real
    by_head = -torch.rand(len(lengths), HEADS, longest, longest) + additive
    return {"none": if_needed, "padding": real, "causal": real & causal, "additive": additive, "by head": by_head}[kind]


def packed(lengths: list[int], dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(1, sum(lengths), HEADS, SIZE, generator=generator, dtype=torch.float32).to(dtype).transpose(1, 2)
        for _ in range(3)
    ]


def one_by_one(
    heads: list[torch.Tensor],
    lengths: list[int],
    mask: torch.Tensor | None,
    grid: HeadGrid,
    p: float,
    seed: int,
    scale: float | None,
) -> torch.Tensor:
    """Plain attention of each example by itself, with the part of the grid's dropout mask that belongs to the example."""
    drop = Dropout(seed).mask(grid.shape, p)
    keep_in_grid = drop.keep.view(len(grid.example), HEADS, *grid.shape[1:])
    out, start = [], 0
    for example, length in enumerate(lengths):
        row, column = (grid.example == example).nonzero()[0].tolist()
        keep = keep_in_grid[row, :, column : column + length, column : column + length]
        own = None
        if mask is not None:
            own = mask[example if len(mask) > 1 else 0][:, : length if mask.shape[2] > 1 else 1, :length]
        own_heads = (x[:, :, start : start + length] for x in heads)
        given = {"attn_mask": own, "dropout_p": p, "scale": scale}
        out.append(sdpa_with_dropout(*own_heads, dropout=lambda w, _, keep=keep: w * keep * drop.factor, **given))
        start += length
    return torch.cat(out, 2).transpose(1, 2)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sampled_from(["none", "padding", "causal", "additive", "by head"]),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.integers(0, 99),
    st.integers(0, 5),
    st.sampled_from([None, 0.7]),
)
def test_attention_of_a_packed_batch_equals_that_of_each_example_by_itself(
    lengths: list[int], kind: str, p: float, seed: int, unused: int, scale: float | None
) -> None:
    mask, real = masks(lengths, kind), sum(lengths)
    grid = HeadGrid.with_shared_rows(torch.tensor(lengths), HEADS, real + unused)
    heads = [x.requires_grad_() for x in packed([*lengths, unused], torch.float32, seed)]
    expected_heads = [x.detach()[:, :, :real].clone().requires_grad_() for x in heads]
    whole = attention(*heads, mask, grid, scale=scale, dropout=Dropout(seed), dropout_p=p)
    out, out_unused = whole[:, :real], whole[:, real:]
    assert out_unused.shape[1] == unused and not out_unused.any()
    expected = one_by_one(expected_heads, lengths, mask, grid, p, seed, scale)
    assert out.shape == expected.shape and torch.allclose(out, expected, atol=1e-6)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed))
    ((out * weights).sum() + out_unused.sum()).backward()
    (expected * weights).sum().backward()
    for x, expected_x in zip(heads, expected_heads, strict=True):
        assert torch.allclose(x.grad[:, :, :real], expected_x.grad, atol=1e-5)
        assert not x.grad[:, :, real:].any()


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_short_examples_share_rows(lengths: list[int]) -> None:
    width, shared = max(lengths), shared_rows(lengths)
    occupied = [(row, start + n) for (row, start), length in zip(shared, lengths, strict=True) for n in range(length)]
    assert len(set(occupied)) == len(occupied) and all(0 <= column < width for _, column in occupied)
    used: dict[int, int] = {}
    for (row, _), length in zip(shared, lengths, strict=True):
        used[row] = used.get(row, 0) + length
    assert set(used) == set(range(len(used)))
    emptiest = sorted(used.values())[:2]
    assert len(used) == 1 or sum(emptiest) > width  # no two rows would fit into one


def test_output_and_gradients_have_the_data_type_of_the_input() -> None:
    lengths = [3, 7, 4]
    heads = [x.requires_grad_() for x in packed(lengths, torch.bfloat16, 0)]
    mask, grid = masks(lengths, "padding"), Layout(torch.tensor(lengths), 7).head_grid(HEADS)
    assert len(grid.example) == 2  # three examples share two rows
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(*heads, mask, grid, scale=None)
        out.float().sum().backward()
    assert out.dtype == torch.bfloat16 and all(x.grad.dtype == torch.bfloat16 for x in heads)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sampled_from(["none", "padding", "causal", "additive", "by head"]),
)
def test_attention_of_some_examples_equals_that_of_the_whole_batch(lengths: list[int], kind: str) -> None:
    mask, heads = masks(lengths, kind), packed(lengths, torch.float32, 0)
    whole = attention(*heads, mask, HeadGrid.with_shared_rows(torch.tensor(lengths), HEADS, sum(lengths)), scale=None)
    for example, length in enumerate(lengths):
        grid = HeadGrid.with_own_rows(torch.tensor(lengths), HEADS, torch.tensor([example]), length + 3)
        out, start = attention(*heads, mask, grid, scale=None), sum(lengths[:example])
        assert out.shape == (1, length, HEADS, SIZE)
        assert torch.allclose(out, whole[:, start : start + length], atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "gpt2", "modernbert"])
def test_a_packed_model_gives_the_same_logits_with_and_without_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(name)
    for module in model.modules():
        if hasattr(module, "scaling"):  # not that of torch, as in some types of model
            module.scaling *= 2
    anatomy, batch = find_layers(model), small_batch(model)
    with packable(model) as packing, cut_at(model, anatomy, None, packing=packing) as upper, torch.no_grad():
        logits = upper(batch, None)
        monkeypatch.setenv("FROSTLINE_WITHOUT", "attention")
        plain = upper(batch, None)
    assert torch.allclose(plain, logits, atol=1e-5) and not torch.equal(plain, logits)  # the last bits differ


def test_a_frozen_layer_in_train_mode_uses_dropout() -> None:
    """Its inputs have no gradient, but it is not scoring."""
    model = small_model("bert").train().requires_grad_(False)
    anatomy, batch = find_layers(model), small_batch(model)
    for name, module in model.named_modules():
        if type(module) is torch.nn.Dropout and not name.endswith("attention.self.dropout"):
            module.p = 0.0  # only the dropout of attention weights remains
    outs = []
    for seed in (0, 0, 1):
        with packable(model) as packing, cut_at(model, anatomy, None, packing=packing) as upper:
            packing.dropout = Dropout(seed)
            outs.append(upper(batch, None))
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])
