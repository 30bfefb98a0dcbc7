"""Dropout with 16 random bits per element: its distribution, gradient, seeds and scope."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from frostline.fast.dropout import LEVELS, Dropout, sdpa_with_dropout
from frostline.frozen.cut import cut_at
from frostline.model.anatomy import find_layers
from frostline.model.packing import packable
from small_models import small_batch, small_model


@given(st.floats(0.001, 0.999), st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(0, 9))
def test_an_element_is_dropped_or_scaled(p, shape, seed):
    x = torch.ones(shape)
    scale = LEVELS / (LEVELS - round(p * LEVELS))
    out = Dropout(seed)(x, p)
    assert out.shape == x.shape
    assert ((out == 0) | (out == torch.tensor(scale))).all()
    assert torch.equal(Dropout(seed)(x, 0.0), x) and not Dropout(seed)(x, 1.0).any()


@pytest.mark.parametrize("p", [0.1, 0.5, 1 / LEVELS, 0.3001])
def test_the_share_of_dropped_elements_is_p(p):
    count = 1 << 20
    dropped = int((Dropout(0)(torch.ones(count), p) == 0).sum())
    assert stats.binomtest(dropped, count, p).pvalue > 1e-4


def test_elements_are_dropped_independently():
    keep = (Dropout(1)(torch.ones(1 << 18), 0.3) != 0).double()
    centred = keep - keep.mean()
    for distance in (1, 2, 3, 4, 5, 64):
        correlation = float((centred[:-distance] * centred[distance:]).mean() / centred.var())
        assert abs(correlation) < 5 / len(keep) ** 0.5, distance
    assert abs(float(keep.view(-1, 4).mean(0).std())) < 0.005  # four elements share one random number


def test_forward_and_gradient_use_the_same_mask():
    x = torch.randn(50, 7, requires_grad=True)
    out = Dropout(3)(x, 0.4)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.allclose(gradient * x, out)
    assert (gradient == 0).any() and (gradient != 0).any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_mask_leaves_elements_unchanged_or_makes_them_zero(dtype, transposed):
    mask = Dropout(2).mask((33, 20), 0.4)
    x = torch.randn(20, 33).t().to(dtype) if transposed else torch.randn(33, 20).to(dtype)
    out = mask.on(x)
    assert out.dtype == dtype and torch.equal(out, torch.where(mask.keep.bool(), x, torch.zeros((), dtype=dtype)))
    assert set(mask.keep.unique().tolist()) == {0, 1} and mask.factor == pytest.approx(1 / 0.6, rel=1e-4)


def test_masks_depend_on_the_seed_and_not_on_torchs_generator():
    x = torch.ones(1000)
    one, two, other = Dropout(5), Dropout(5), Dropout(6)
    first = one(x, 0.5)
    torch.manual_seed(99)
    assert torch.equal(first, two(x, 0.5))
    assert not torch.equal(first, other(x, 0.5))
    assert not torch.equal(first, one(x, 0.5))  # the next mask is different


def test_each_of_several_seeds_draws_the_masks_of_one_part():
    x = torch.ones(3, 7, 5)
    many = Dropout(4, 5, 6)
    for _ in range(2):
        out = many(x, 0.5)
    for seed, part in zip((4, 5, 6), out, strict=True):
        single = Dropout(seed)
        single(x[0], 0.5)
        assert torch.equal(part, single(x[0], 0.5))
    assert many(torch.ones(1, 7), 0.5).shape == (1, 7)  # a shape that does not split into equal parts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_modules_use_it_only_in_train_mode_and_only_while_the_context_is_open(dtype):
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5).eval())
    x = torch.ones(4, 5, dtype=dtype)
    with Dropout(0).replacing_dropout(model):
        out = model(x)
        assert out.dtype == dtype
    assert torch.equal(out, Dropout(0)(x, 0.5))
    assert "forward" not in vars(model[0])


shapes = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(2, 6), st.sampled_from([2, 4]))


@given(shapes, st.booleans(), st.sampled_from(["none", "bool", "float"]), st.sampled_from([None, 0.3]))
def test_attention_without_dropout_equals_that_of_torch(shape, causal, masked, scale):
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
    out = sdpa_with_dropout(query, key, value, dropout_p=0.5, dropout=lambda x, p: x, **given)
    assert torch.allclose(out, F.scaled_dot_product_attention(query, key, value, **given), atol=1e-5)


def test_a_token_that_may_attend_to_nothing_gives_no_nan():
    query, key, value = torch.randn(3, 1, 1, 3, 2)
    query.requires_grad_()
    mask = torch.tensor([[True, True, False], [True, False, True], [False, False, False]])
    out = sdpa_with_dropout(query, key, value, dropout=Dropout(0), dropout_p=0.5, attn_mask=mask)
    (gradient,) = torch.autograd.grad(out.sum(), query)
    assert out.isfinite().all() and gradient.isfinite().all()


@pytest.mark.parametrize("kind", ["bert", "llama", "gpt2"])
def test_a_packed_model_in_train_mode_draws_all_masks_from_the_seed(kind):
    """Forward passes with the same seed are equal although torch's generator differs. Another seed gives other logits."""
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
            with dropout.replacing_dropout(model), torch.no_grad():
                torch.manual_seed(torch_seed)
                return whole(batch)

    assert torch.equal(logits(1, 1), logits(1, 2))
    assert not torch.equal(logits(1, 1), logits(2, 1))
