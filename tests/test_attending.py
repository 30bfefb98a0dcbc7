"""Attention of packed short texts, written out: the numbers and gradients of the padded grid."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import frostline.packing as packing_module
from frostline.attending import Places, attend, bias_of
from frostline.cut import cut_at
from frostline.dropout import Dropout, attention
from frostline.layers import find_layers
from frostline.packing import Layout, packable
from small_models import small_batch, small_model

HEADS, SIZE = 3, 4


def masks(lengths: list[int], kind: str) -> torch.Tensor | None:
    """As transformers builds them, ``[B or 1, 1, S or 1, S]``."""
    longest = max(lengths)
    seen = (torch.arange(longest) < torch.tensor(lengths)[:, None])[:, None, None]
    causal = torch.ones(longest, longest, dtype=torch.bool).tril()[None, None]
    additive = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    whole = None if len(set(lengths)) == 1 else seen
    return {"none": whole, "padding": seen, "causal": seen & causal, "additive": additive}[kind]


def packed(lengths: list[int], dtype: torch.dtype, seed: int) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return [
        torch.randn(1, sum(lengths), HEADS, SIZE, generator=made, dtype=torch.float32).to(dtype).transpose(1, 2)
        for _ in range(3)
    ]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sampled_from(["none", "padding", "causal", "additive"]),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.sampled_from([None, 0.7]),
    st.integers(0, 99),
)
def test_it_is_the_attention_of_the_grid(
    lengths: list[int], kind: str, p: float, scale: float | None, seed: int
) -> None:
    layout, mask = Layout(torch.tensor(lengths), max(lengths)), masks(lengths, kind)
    ours = [x.requires_grad_() for x in packed(lengths, torch.float32, seed)]
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    places = Places.of(layout.index, len(lengths), max(lengths), HEADS)
    out = attend(
        *ours,
        bias_of(mask, len(lengths), HEADS),
        places,
        scale=scale,
        dropout=Dropout(seed),
        dropped=p,
    )
    grid = [layout.unpack(x.transpose(1, 2)).transpose(1, 2) for x in theirs]
    told = attention(*grid, attn_mask=mask, dropout=Dropout(seed), dropout_p=p, scale=scale)
    wanted = layout.pack(told.transpose(1, 2))
    assert out.shape == wanted.shape and torch.allclose(out, wanted, atol=1e-6)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed))
    (out * weights).sum().backward()
    (wanted * weights).sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-5)


def test_short_numbers_come_back_as_they_were_given() -> None:
    lengths = [3, 7, 5]
    layout = Layout(torch.tensor(lengths), 7)
    heads = [x.requires_grad_() for x in packed(lengths, torch.bfloat16, 0)]
    places = Places.of(layout.index, 3, 7, HEADS)
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(
            *heads, bias_of(masks(lengths, "padding"), 3, HEADS), places, scale=None, dropout=None, dropped=0.0
        )
        out.float().sum().backward()
    assert out.dtype == torch.bfloat16 and all(x.grad.dtype == torch.bfloat16 for x in heads)


@pytest.mark.parametrize(("name", "used"), [("bert", True), ("roberta", True), ("gpt2", True), ("modernbert", True)])
def test_models_that_are_trained_go_this_way(name: str, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    short = packing_module._short
    monkeypatch.setattr(packing_module, "_short", lambda *args, **more: (calls.append(1), short(*args, **more))[1])
    model = small_model(name)
    anatomy, batch = find_layers(model), small_batch(model)
    with packable(model) as packing, cut_at(model, anatomy, None, packing=packing) as upper:
        upper(batch, None).sum().backward()
        trained = len(calls)
        with torch.no_grad():
            upper(batch, None)
    assert bool(trained) == used and len(calls) == trained  # what is only scored goes torch's way
