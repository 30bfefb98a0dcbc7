"""Gradients kept in short numbers, against the same in fp32 by torch's own ways."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from frostline.fast.bf16_gradients import Form, hold_bf16_gradient
from frostline.fast.optimizer import AdamW, clear_gradients, clip, gradient_of, total_norm

SHAPES = [(40, 24), (24,), (7, 130), (1, 1)]


def parameters_of(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=draw)) for shape in SHAPES]


def gradients_of(seed):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw).bfloat16() for shape in SHAPES]


def groups(parameters):
    return [
        {"params": [p for p in parameters if (p.dim() > 1) == decays], "lr": 0.01, "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]


@pytest.mark.parametrize("short", [{0, 1, 2, 3}, {0, 2}, set()])
@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_steps_are_torchs_own_on_wide_gradients(short, limit):
    mine, theirs = parameters_of(), parameters_of()
    how = {"betas": (0.9, 0.99), "eps": 1e-6}
    optimizer, other = AdamW(groups(mine), **how), torch.optim.AdamW(groups(theirs), **how, fused=True)
    for step in range(5):
        for n, (p, q, gradient) in enumerate(zip(mine, theirs, gradients_of(step), strict=True)):
            q.grad = gradient.float()
            if n in short:
                hold_bf16_gradient(p, gradient)
            else:
                p.grad = gradient.float()
        norm = total_norm(mine)
        assert torch.equal(norm, nn.utils.clip_grad_norm_(theirs, limit))
        clip(mine, limit, norm)
        for p, q in zip(mine, theirs, strict=True):
            assert torch.equal(gradient_of(p), q.grad)
        optimizer.step()
        other.step()
        for p, q in zip(mine, theirs, strict=True):
            assert torch.equal(p, q) and gradient_of(p) is None


def test_those_that_are_used_twice_are_added_in_fp32():
    (parameter, *_), (gradient, *_) = parameters_of(), gradients_of(0)
    small = gradient * 2**-12  # lost beside the other in bf16
    hold_bf16_gradient(parameter, gradient)
    hold_bf16_gradient(parameter, small)
    wanted = gradient.float() + small.float()
    assert torch.equal(gradient_of(parameter), wanted) and not torch.equal(wanted.bfloat16().float(), wanted)
    parameter.grad = torch.ones_like(parameter)  # by a way that hands nothing in
    assert torch.equal(gradient_of(parameter), 1 + wanted)
    assert torch.equal(total_norm([parameter]), torch.linalg.vector_norm(1 + wanted))
    AdamW([{"params": [parameter], "lr": 0.1, "weight_decay": 0.0}], betas=(0.9, 0.99), eps=1e-8).step()
    (other, *_) = parameters_of()
    other.grad = 1 + wanted
    torch.optim.AdamW([other], lr=0.1, weight_decay=0.0, betas=(0.9, 0.99), fused=True).step()
    assert torch.equal(parameter, other)


@pytest.mark.parametrize(
    "way", [clear_gradients, lambda parameters: AdamW(groups(parameters), betas=(0.9, 0.9), eps=1).zero_grad()]
)
def test_what_is_dropped_is_gone(way):
    parameters = parameters_of()
    for parameter, gradient in zip(parameters, gradients_of(0), strict=True):
        hold_bf16_gradient(parameter, gradient)
    way(parameters)
    assert all(gradient_of(p) is None for p in parameters)
    before = [p.detach().clone() for p in parameters]
    AdamW(groups(parameters), betas=(0.9, 0.99), eps=1e-6).step()
    assert all(torch.equal(p, q) for p, q in zip(parameters, before, strict=True))


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_clipped_gradients_are_as_long_as_the_limit_at_most(seed, limit):
    parameters = parameters_of()
    for parameter, gradient in zip(parameters, gradients_of(seed), strict=True):
        hold_bf16_gradient(parameter, gradient)
    norm = float(total_norm(parameters))
    clip(parameters, limit, torch.tensor(norm))
    assert float(total_norm(parameters)) == pytest.approx(min(norm, limit), rel=1e-5)


def test_a_gradient_that_is_not_finite_shows_in_the_norm():
    parameters = parameters_of()
    for parameter, gradient in zip(parameters, gradients_of(0), strict=True):
        hold_bf16_gradient(parameter, gradient)
    hold_bf16_gradient(parameters[2], torch.full(SHAPES[2], torch.inf))
    assert not torch.isfinite(total_norm(parameters))


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_one_number_of_many_rows_that_is_not_finite_shows_in_the_norm(wrong):
    parameter, gradient = nn.Parameter(torch.zeros(300, 64)), torch.ones(300, 64).bfloat16()
    gradient[271, 5] = wrong
    hold_bf16_gradient(parameter, gradient)
    assert not torch.isfinite(total_norm([parameter]))


@given(st.integers(0, 99), st.sampled_from([(256, 7), (300, 64), (1024, 3)]), st.floats(1e-3, 1e6))
def test_the_length_of_many_short_rows_is_that_of_the_wide_ones(seed, shape, scale):
    parameter = nn.Parameter(torch.zeros(shape))
    gradient = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).bfloat16()
    hold_bf16_gradient(parameter, gradient)
    assert float(total_norm([parameter])) == pytest.approx(float(gradient.double().norm()), rel=1e-3)
    clip([parameter], scale, total_norm([parameter]))
    assert float(total_norm([parameter])) == pytest.approx(scale, rel=2e-3)  # of what is clipped, in fp32


def test_a_step_makes_the_next_form_of_a_weight():
    parameter = parameters_of()[0]
    form = Form(parameter.detach().bfloat16(), parameter._version)
    hold_bf16_gradient(parameter, gradients_of(0)[0], form)
    before = form.numbers.clone()
    AdamW(groups([parameter]), betas=(0.9, 0.99), eps=1e-6).step()
    assert torch.equal(form.numbers, parameter.bfloat16()) and not torch.equal(form.numbers, before)
    assert form.version == parameter._version


def test_a_step_counts_as_a_change_of_what_it_changes_alone():
    changed, short, still = parameters_of()[:3]
    changed.grad = torch.ones_like(changed)
    hold_bf16_gradient(short, torch.ones_like(short).bfloat16())
    versions = [p._version for p in (changed, short, still)]
    AdamW(groups([changed, short, still]), betas=(0.9, 0.99), eps=1e-6).step()
    assert [p._version > v for p, v in zip((changed, short, still), versions, strict=True)] == [True, True, False]
