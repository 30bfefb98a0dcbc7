"""Optimizer steps, gradient norms and clipping, compared with torch's own functions on dense gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from frostline.fast.optimizer import AdamW, SparseGradient, clear_gradients, clip, gradient_of, total_norm

SHAPES = [(40, 24), (24,), (7, 130), (1, 1)]
TABLE = 2  # the parameter with a sparse gradient
READ = torch.tensor([5, 0, 3])  # the rows of the table that were read


def parameters_of(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=draw)) for shape in SHAPES]


def with_gradients(parameters, seed, scale=1.0):
    """Set a gradient of each parameter, for the table one of three rows. Returns the same gradients as dense tensors."""
    draw = torch.Generator().manual_seed(seed)
    dense = [torch.randn(shape, generator=draw) * scale for shape in SHAPES]
    rows = dense[TABLE][READ]
    dense[TABLE] = torch.zeros(SHAPES[TABLE]).index_copy(0, READ, rows)
    for parameter, gradient in zip(parameters, dense, strict=True):
        sparse = vars(parameter).get("sparse_gradient")
        if sparse is None:
            parameter.grad = gradient.clone()
        else:
            sparse.read(READ)
            sparse.add(READ, rows, None)
    return dense


def groups(parameters):
    return [
        {"params": [p for p in parameters if (p.dim() > 1) == decays], "lr": 0.01, "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_steps_equal_those_of_torch(sparse, limit):
    parameters, reference = parameters_of(), parameters_of()
    if sparse:
        SparseGradient(parameters[TABLE])
    options = {"betas": (0.9, 0.99), "eps": 1e-6}
    optimizer = AdamW(groups(parameters), **options)
    reference_optimizer = torch.optim.AdamW(groups(reference), **options, fused=True)
    for step in range(5):
        for parameter, gradient in zip(reference, with_gradients(parameters, step), strict=True):
            parameter.grad = gradient
        norm = total_norm(parameters)
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(reference, limit))
        clip(parameters, limit, norm)
        optimizer.step()
        reference_optimizer.step()
        optimizer.flush()
        for p, q in zip(parameters, reference, strict=True):
            torch.testing.assert_close(p, q)
            assert sparse or torch.equal(p, q)
            assert gradient_of(p) is None


@pytest.mark.parametrize(
    "clear", [clear_gradients, lambda parameters: AdamW(groups(parameters), betas=(0.9, 0.9), eps=1).zero_grad()]
)
def test_cleared_gradients_have_no_effect(clear):
    parameters = parameters_of()
    SparseGradient(parameters[TABLE])
    with_gradients(parameters, 0)
    clear(parameters)
    assert all(gradient_of(p) is None for p in parameters)
    before = [p.detach().clone() for p in parameters]
    AdamW(groups(parameters), betas=(0.9, 0.99), eps=1e-6).step()
    assert all(torch.equal(p, q) for p, q in zip(parameters, before, strict=True))


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100), st.floats(1e-3, 1e3))
def test_the_norm_of_clipped_gradients_is_at_most_the_limit(seed, limit, scale):
    parameters = parameters_of()
    SparseGradient(parameters[TABLE])
    with_gradients(parameters, seed, scale)
    norm = float(total_norm(parameters))
    clip(parameters, limit, torch.tensor(norm))
    assert float(total_norm(parameters)) == pytest.approx(min(norm, limit), rel=1e-4)


@pytest.mark.parametrize("number", range(len(SHAPES)))
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_one_value_that_is_not_finite_makes_the_norm_not_finite(number, wrong):
    parameters = parameters_of()
    SparseGradient(parameters[TABLE])
    with_gradients(parameters, 0)
    gradient_of(parameters[number]).view(-1)[0] = wrong
    assert not torch.isfinite(total_norm(parameters))


def original_bert(parameters):
    """A function that takes a step of its optimizer without bias correction: ``w -= lr * (m / (sqrt(v) + eps) + decay * w)``."""
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(gradients):
        for parameter, gradient, (first, second) in zip(parameters, gradients, moments, strict=True):
            first.mul_(0.9).add_(gradient, alpha=0.1)
            second.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
            decay = 0.1 if parameter.dim() > 1 else 0.0
            parameter.sub_(0.01 * (first / (second.sqrt() + 1e-6) + decay * parameter))

    return step


def usual(parameters):
    """A function that takes a step of torch's AdamW."""
    optimizer = torch.optim.AdamW(groups(parameters), betas=(0.9, 0.99), eps=1e-6)

    def step(gradients):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    return step


def uncorrected(parameters):
    return AdamW([{**group, "bias_correction": False} for group in groups(parameters)], betas=(0.9, 0.99), eps=1e-6)


@pytest.mark.parametrize("sparse", [True, False])
def test_without_bias_correction_steps_are_those_of_the_original_bert(sparse):
    parameters, reference = parameters_of(), parameters_of()
    if sparse:
        SparseGradient(parameters[TABLE])
    optimizer, reference_step = uncorrected(parameters), original_bert(reference)
    for step in range(5):
        reference_step(with_gradients(parameters, step))
        optimizer.step()
    optimizer.flush()
    for parameter, expected in zip(parameters, reference, strict=True):
        torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("corrected", [True, False])
def test_skipped_steps_do_not_count(corrected):
    """As if they had never been there, also the first two, as with a scale of losses that is too large."""
    parameters, reference = parameters_of(), parameters_of()
    optimizer = AdamW(groups(parameters), betas=(0.9, 0.99), eps=1e-6) if corrected else uncorrected(parameters)
    reference_step, taken = usual(reference) if corrected else original_bert(reference), 0
    for step, skipped in enumerate([True, True, False, False, True, False]):
        gradients = with_gradients(parameters, step, torch.inf if skipped else 1.0)
        if not skipped:
            reference_step(gradients)
            taken += 1
        optimizer.step_unless(torch.tensor(float(skipped)), None, torch.tensor(float(taken)))
        for parameter, expected in zip(parameters, reference, strict=True):
            torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-6)
