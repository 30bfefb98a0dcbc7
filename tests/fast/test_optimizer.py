"""Steps, norms and clipping, against torch's own on dense gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from frostline.fast.optimizer import AdamW, clear_gradients, clip, gradient_of, total_norm
from frostline.fast.sparse_gradients import SparseGradient

SHAPES = [(40, 24), (24,), (7, 130), (1, 1)]
TABLE = 2  # the parameter whose gradient is held for the rows that were read
READ = torch.tensor([5, 0, 3])


def parameters_of(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=draw)) for shape in SHAPES]


def with_gradients(parameters, seed, scale=1.0):
    """Give each parameter a gradient, the table one of three rows; gives the same gradients as dense tensors."""
    draw = torch.Generator().manual_seed(seed)
    dense = [torch.randn(shape, generator=draw) * scale for shape in SHAPES]
    rows = dense[TABLE][READ]
    dense[TABLE] = torch.zeros(SHAPES[TABLE]).index_copy(0, READ, rows)
    for parameter, gradient in zip(parameters, dense, strict=True):
        held = vars(parameter).get("sparse_gradient")
        if held is None:
            parameter.grad = gradient.clone()
        else:
            held.read(READ)
            held.add(READ, rows, None)
    return dense


def groups(parameters):
    return [
        {"params": [p for p in parameters if (p.dim() > 1) == decays], "lr": 0.01, "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_steps_are_torchs_own(sparse, limit):
    mine, theirs = parameters_of(), parameters_of()
    if sparse:
        SparseGradient(mine[TABLE])
    how = {"betas": (0.9, 0.99), "eps": 1e-6}
    optimizer, other = AdamW(groups(mine), **how), torch.optim.AdamW(groups(theirs), **how, fused=True)
    for step in range(5):
        for parameter, gradient in zip(theirs, with_gradients(mine, step), strict=True):
            parameter.grad = gradient
        norm = total_norm(mine)
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(theirs, limit))
        clip(mine, limit, norm)
        optimizer.step()
        other.step()
        optimizer.flush()
        for p, q in zip(mine, theirs, strict=True):
            torch.testing.assert_close(p, q)
            assert sparse or torch.equal(p, q)
            assert gradient_of(p) is None


@pytest.mark.parametrize(
    "way", [clear_gradients, lambda parameters: AdamW(groups(parameters), betas=(0.9, 0.9), eps=1).zero_grad()]
)
def test_cleared_gradients_are_gone(way):
    parameters = parameters_of()
    SparseGradient(parameters[TABLE])
    with_gradients(parameters, 0)
    way(parameters)
    assert all(gradient_of(p) is None for p in parameters)
    before = [p.detach().clone() for p in parameters]
    AdamW(groups(parameters), betas=(0.9, 0.99), eps=1e-6).step()
    assert all(torch.equal(p, q) for p, q in zip(parameters, before, strict=True))


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.floats(1e-3, 1e3))
def test_clipped_gradients_are_as_long_as_the_limit_at_most(seed, limit, scale):
    parameters = parameters_of()
    SparseGradient(parameters[TABLE])
    with_gradients(parameters, seed, scale)
    norm = float(total_norm(parameters))
    clip(parameters, limit, torch.tensor(norm))
    assert float(total_norm(parameters)) == pytest.approx(min(norm, limit), rel=1e-4)


@pytest.mark.parametrize("number", range(len(SHAPES)))
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_one_value_that_is_not_finite_shows_in_the_norm(number, wrong):
    parameters = parameters_of()
    SparseGradient(parameters[TABLE])
    with_gradients(parameters, 0)
    gradient_of(parameters[number]).view(-1)[0] = wrong
    assert not torch.isfinite(total_norm(parameters))
