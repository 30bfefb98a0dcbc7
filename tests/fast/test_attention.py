"""Attention of packed short texts, written out: the numbers and gradients of the padded grid."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import frostline.model.packing as packing_module
from frostline.fast.attention import Places, attend, attended, shared_rows
from frostline.fast.dropout import Dropout, attention
from frostline.frozen.cut import cut_at
from frostline.model.anatomy import find_layers
from frostline.model.packed_layout import Layout
from frostline.model.packing import packable
from small_models import small_batch, small_model

HEADS, SIZE = 3, 4


def masks(lengths: list[int], kind: str) -> torch.Tensor | None:
    """As transformers builds them, ``[B or 1, 1, S or 1, S]``."""
    longest = max(lengths)
    seen = (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]
    causal = torch.ones(longest, longest, dtype=torch.bool).tril()[None, None]
    additive = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    whole = None if len(set(lengths)) == 1 else seen
    by_head = -torch.rand(len(lengths), HEADS, longest, longest) + additive
    return {"none": whole, "padding": seen, "causal": seen & causal, "additive": additive, "by head": by_head}[kind]


def packed(lengths: list[int], dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return [
        torch.randn(1, sum(lengths), HEADS, SIZE, generator=made, dtype=torch.float32).to(dtype).transpose(1, 2)
        for _ in range(3)
    ]


def text_by_text(
    heads: list[torch.Tensor], lengths: list[int], mask: torch.Tensor | None, places: Places, p: float, seed: int
) -> torch.Tensor:
    """Each text's attention alone, by torch's plain path, with the masks of dropout that the grid draws for it."""
    mask_of = Dropout(seed).mask(places.shape, p)
    drawn = mask_of.kept.view(len(places.text), HEADS, *places.shape[1:])
    out, start = [], 0
    for text, length in enumerate(lengths):
        row, column = (places.text == text).nonzero()[0].tolist()
        kept = drawn[row, :, column : column + length, column : column + length]
        own = None
        if mask is not None:
            own = mask[text if len(mask) > 1 else 0][:, : length if mask.shape[2] > 1 else 1, :length]
        query, key, value = (x[:, :, start : start + length] for x in heads)
        out.append(
            attention(
                query, key, value, attn_mask=own, dropout_p=p, dropout=lambda w, _, kept=kept: w * kept * mask_of.factor
            )
        )
        start += length
    return torch.cat(out, 2).transpose(1, 2)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sampled_from(["none", "padding", "causal", "additive", "by head"]),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.integers(0, 99),
    st.integers(0, 5),
)
def test_each_text_is_attended_to_as_if_it_were_alone(
    lengths: list[int], kind: str, p: float, seed: int, empty: int
) -> None:
    mask, real = masks(lengths, kind), sum(lengths)
    places = Places.shared(torch.tensor(lengths), HEADS, real + empty)
    ours = [x.requires_grad_() for x in packed([*lengths, empty], torch.float32, seed)]
    theirs = [x.detach()[:, :, :real].clone().requires_grad_() for x in ours]
    whole = attend(*ours, mask, places, scale=None, dropout=Dropout(seed), dropped=p)
    out, behind = whole[:, :real], whole[:, real:]
    assert behind.shape[1] == empty and not behind.any()
    wanted = text_by_text(theirs, lengths, mask, places, p, seed)
    assert out.shape == wanted.shape and torch.allclose(out, wanted, atol=1e-6)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed))
    ((out * weights).sum() + behind.sum()).backward()
    (wanted * weights).sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one.grad[:, :, :real], other.grad, atol=1e-5)
        assert not one.grad[:, :, real:].any()


@pytest.mark.parametrize("scale", [None, 0.7])
def test_it_is_the_attention_of_the_padded_grid(scale: float | None) -> None:
    lengths = [3, 9, 4, 2]
    layout, mask = Layout(torch.tensor(lengths), 9), masks(lengths, "padding")
    heads = packed(lengths, torch.float32, 0)
    out = attend(*heads, mask, layout.places_of(HEADS), scale=scale, dropout=None, dropped=0.0)
    grid = [layout.unpack(x.transpose(1, 2)).transpose(1, 2) for x in heads]
    told = torch.nn.functional.scaled_dot_product_attention(*grid, attn_mask=mask, scale=scale)
    assert torch.allclose(out, layout.pack(told.transpose(1, 2)), atol=1e-6)
    assert len(layout.places_of(HEADS).text) == 2  # not 4


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_rows_are_shared_where_there_is_room(lengths: list[int]) -> None:
    width, shared = max(lengths), shared_rows(lengths)
    taken = [(row, start + n) for (row, start), length in zip(shared, lengths, strict=True) for n in range(length)]
    assert len(set(taken)) == len(taken) and all(0 <= column < width for _, column in taken)
    used = [sum(n for n, (at, _) in zip(lengths, shared, strict=True) if at == row) for row, _ in shared]
    rows = dict(zip((row for row, _ in shared), used, strict=True))
    assert set(rows) == set(range(len(rows)))
    fullest = sorted(rows.values())
    assert len(rows) == 1 or fullest[0] + fullest[1] > width  # no two rows would fit into one


def test_a_mask_is_worked_out_once_for_all_layers() -> None:
    lengths = [3, 9, 4, 2]
    places, mask = Places.shared(torch.tensor(lengths), HEADS, sum(lengths)), masks(lengths, "padding")
    assert places.bias(mask) is places.bias(mask) and places.bias(mask) is not places.bias(masks(lengths, "causal"))


def test_short_numbers_come_back_as_they_were_given() -> None:
    lengths = [3, 7, 5]
    heads = [x.requires_grad_() for x in packed(lengths, torch.bfloat16, 0)]
    mask, places = masks(lengths, "padding"), Places.shared(torch.tensor(lengths), HEADS, sum(lengths))
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(*heads, mask, places, scale=None, dropout=None, dropped=0.0)
        out.float().sum().backward()
    assert out.dtype == torch.bfloat16 and all(x.grad.dtype == torch.bfloat16 for x in heads)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sampled_from(["none", "padding", "causal", "additive", "by head"]),
)
def test_scoring_is_training_without_dropout(lengths: list[int], kind: str) -> None:
    mask, heads = masks(lengths, kind), packed(lengths, torch.float32, 0)
    places = Places.shared(torch.tensor(lengths), HEADS, sum(lengths))
    learned = attend(*heads, mask, places, scale=None, dropout=None, dropped=0.0)
    assert torch.equal(attended(*heads, mask, places, scale=None), learned)
    for text, length in enumerate(lengths):
        alone = Places.alone(torch.tensor(lengths), HEADS, torch.tensor([text]), length + 3)
        start = sum(lengths[:text])
        out = attended(*heads, mask, alone, scale=None)
        assert out.shape == (1, length, HEADS, SIZE)
        assert torch.allclose(out, learned[:, start : start + length], atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2", "modernbert"])
def test_short_texts_go_this_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    short = packing_module._short
    monkeypatch.setattr(packing_module, "_short", lambda *args, **more: (calls.append(1), short(*args, **more))[1])
    model = small_model(name)
    anatomy, batch = find_layers(model), small_batch(model)
    with packable(model) as packing, cut_at(model, anatomy, None, packing=packing) as upper:
        upper(batch, None).sum().backward()
        assert len(calls) == anatomy.count
        with torch.no_grad():
            upper(batch, None)
        assert len(calls) == 2 * anatomy.count
        monkeypatch.setattr(packing_module, "SCORED", 40)
        with torch.no_grad():
            upper(batch, None)
        assert len(calls) == 2 * anatomy.count  # longer ones that are only scored go torch's way


def test_switched_off_short_texts_go_torchs_way(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("bert")
    anatomy, batch = find_layers(model), small_batch(model)
    with packable(model) as packing, cut_at(model, anatomy, None, packing=packing) as upper:
        ours = upper(batch, None)
        monkeypatch.setenv("FROSTLINE_WITHOUT", "attention")
        monkeypatch.setattr(packing_module, "_short", lambda *args, **more: 1 / 0)
        assert torch.allclose(upper(batch, None), ours, atol=1e-5)


@pytest.mark.parametrize("p", [0.2, 1.0])
def test_without_our_dropout_torch_draws_the_masks(p: float) -> None:
    lengths = [9] * 40
    heads, places = packed(lengths, torch.float32, 0), Places.shared(torch.tensor(lengths), HEADS, sum(lengths))
    ones = torch.ones_like(heads[2])
    outs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outs.append(attend(*heads[:2], ones, None, places, scale=None, dropout=None, dropped=p))
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2]) == (p == 1)
    assert float(outs[0].mean()) == pytest.approx(float(p < 1), abs=0.05)


def test_what_is_frozen_but_drops_does_drop() -> None:
    """Nothing below has a gradient, so it looks like scoring."""
    model = small_model("bert").train().requires_grad_(False)
    anatomy, batch = find_layers(model), small_batch(model)
    for name, module in model.named_modules():
        if type(module) is torch.nn.Dropout and not name.endswith("attention.self.dropout"):
            module.p = 0.0  # only that of attention's weights is left
    outs = []
    for seed in (0, 0, 1):
        with packable(model) as packing, cut_at(model, anatomy, None, packing=packing) as upper:
            packing.dropout = Dropout(seed)
            outs.append(upper(batch, None))
    assert torch.equal(outs[0], outs[1]) and not torch.equal(outs[0], outs[2])
