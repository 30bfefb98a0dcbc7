"""Dropout with masks of our own: its law, its gradient, its seed, and that nothing else changes."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from frostline.fast.dropout import STEPS, Dropout, attention
from frostline.frozen.cut import cut_at
from frostline.model.anatomy import find_layers
from frostline.model.packing import packable
from small_models import small_batch, small_model


@given(st.floats(0.001, 0.999), st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 9))
def test_an_element_is_dropped_or_scaled(p, shape, seed):
    x = torch.ones(shape)
    scale = STEPS / (STEPS - round(p * STEPS))
    out = Dropout(seed)(x, p)
    assert out.shape == x.shape
    assert ((out == 0) | (out == torch.tensor(scale))).all()


@pytest.mark.parametrize("p", [0.1, 0.5, 1 / STEPS, 0.3001])
def test_the_share_dropped_is_p(p):
    count = 1 << 20
    dropped = int((Dropout(0)(torch.ones(count), p) == 0).sum())
    assert stats.binomtest(dropped, count, p).pvalue > 1e-4


def test_elements_are_dropped_each_on_its_own():
    kept = (Dropout(1)(torch.ones(1 << 18), 0.3) != 0).double()
    centred = kept - kept.mean()
    for apart in (1, 2, 3, 4, 5, 64):
        correlation = float((centred[:-apart] * centred[apart:]).mean() / centred.var())
        assert abs(correlation) < 5 / len(kept) ** 0.5, apart
    assert abs(float(kept.view(-1, 4).mean(0).std())) < 0.005  # the four that share one random number


def test_nothing_and_everything_can_be_dropped():
    x = torch.arange(1.0, 9.0)
    assert torch.equal(Dropout(0)(x, 0.0), x)
    assert not Dropout(0)(x, 1.0).any()


def test_the_gradient_takes_the_mask_of_the_forward():
    x = torch.randn(50, 7, requires_grad=True)
    out = Dropout(3)(x, 0.4)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.allclose(gradient * x, out)
    assert (gradient == 0).any() and (gradient != 0).any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("turned", [False, True])
def test_a_mask_keeps_numbers_as_they_are_or_makes_them_zero(dtype, turned):
    mask = Dropout(2).mask((33, 20), 0.4)
    x = torch.randn(20, 33).t().to(dtype) if turned else torch.randn(33, 20).to(dtype)
    out = mask.on(x)
    assert out.dtype == dtype and torch.equal(out, torch.where(mask.kept.bool(), x, torch.zeros((), dtype=dtype)))
    assert set(mask.kept.unique().tolist()) == {0, 1} and mask.factor == pytest.approx(1 / 0.6, rel=1e-4)


def test_the_same_seed_draws_the_same_masks_whatever_torch_draws():
    x = torch.ones(1000)
    one, two, other = Dropout(5), Dropout(5), Dropout(6)
    first = one(x, 0.5)
    torch.manual_seed(99)
    assert torch.equal(first, two(x, 0.5))
    assert not torch.equal(first, other(x, 0.5))
    assert not torch.equal(first, one(x, 0.5))  # the next mask is another


def test_each_of_several_seeds_draws_for_its_own_share():
    x = torch.ones(3, 7, 5)
    many = Dropout(4, 5, 6)
    for _ in range(2):
        out = many(x, 0.5)
    for seed, share in zip((4, 5, 6), out, strict=True):
        alone = Dropout(seed)
        alone(x[0], 0.5)
        assert torch.equal(share, alone(x[0], 0.5))
    assert many(torch.ones(1, 7), 0.5).shape == (1, 7)  # no share for each


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_modules_draw_from_it_only_in_training_and_only_inside(dtype):
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5).eval())
    x = torch.ones(4, 5, dtype=dtype)
    with Dropout(0).instead(model):
        out = model(x)
        assert out.dtype == dtype
    assert torch.equal(out, Dropout(0)(x, 0.5))
    assert "forward" not in vars(model[0])


shapes = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(2, 6), st.sampled_from([2, 4]))


@given(shapes, st.booleans(), st.sampled_from(["none", "bool", "float"]), st.sampled_from([None, 0.3]))
def test_attention_without_dropping_is_torchs_own(shape, causal, masked, scale):
    batch, heads, length, size = shape
    torch.manual_seed(0)
    query = torch.randn(batch, 2 * heads, length, size)
    key, value = torch.randn(2, batch, heads, length, size)
    mask = None
    if masked != "none" and not causal:
        mask = torch.rand(batch, 1, length, length) < 0.7
        mask[..., 0] = True
        mask = mask if masked == "bool" else torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    given = {"attn_mask": mask, "is_causal": causal, "scale": scale, "enable_gqa": True}
    ours = attention(query, key, value, dropout_p=0.5, dropout=lambda x, p: x, **given)
    assert torch.allclose(ours, F.scaled_dot_product_attention(query, key, value, **given), atol=1e-5)


def test_attention_drops_what_it_should():
    """The mean over many masks is attention without dropout."""
    query, key, value = torch.randn(3, 1, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    dropout = Dropout(0)
    many = torch.stack([attention(query, key, value, dropout=dropout, dropout_p=0.3) for _ in range(3000)])
    assert torch.allclose(many.mean(0), F.scaled_dot_product_attention(query, key, value), atol=0.08)
    assert many.std(0).min() > 0


def test_a_row_that_sees_nothing_gives_no_nan():
    query, key, value = torch.randn(3, 1, 1, 3, 2)
    query.requires_grad_()
    mask = torch.tensor([[True, True, False], [True, False, True], [False, False, False]])
    out = attention(query, key, value, dropout=Dropout(0), dropout_p=0.5, attn_mask=mask)
    (gradient,) = torch.autograd.grad(out.sum(), query)
    assert out.isfinite().all() and gradient.isfinite().all()


@pytest.mark.parametrize("kind", ["bert", "llama", "gpt2"])
def test_a_packed_model_in_training_draws_all_its_masks_from_the_seed(kind):
    """Two trainings with one seed are equal though torch's generator differs; another seed gives other logits."""
    model = small_model(kind).train()
    for name in ("attention_dropout", "attn_pdrop"):
        for module in model.modules():
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.3)
    batch = small_batch(model, (7, 3, 5))

    def logits(seed, torch_seed):
        anatomy = find_layers(model, batch)
        model.train()
        dropout = Dropout(seed)
        with packable(model) as packing, cut_at(model, anatomy, None, packing=packing) as whole:
            packing.dropout = dropout
            with dropout.instead(model), torch.no_grad():
                torch.manual_seed(torch_seed)
                return whole(batch)

    assert torch.equal(logits(1, 1), logits(1, 2))
    assert not torch.equal(logits(1, 1), logits(2, 1))
