"""Linear layers on kept bf16 copies of their weights, against autocast itself."""

import pytest
import torch
from torch import nn

from frostline.casting import cast_once
from frostline.machine import Machine

BF16 = Machine(torch.device("cpu"), "bfloat16")


def outputs_and_gradients(module, x):
    x = x.clone().requires_grad_()
    with BF16.autocast():
        out = module(x)
    out.float().square().sum().backward()
    gradients = [x.grad, *(p.grad for p in module.parameters() if p.grad is not None)]
    module.zero_grad(set_to_none=True)
    return out.detach(), gradients


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_what_autocast_gives(bias):
    torch.manual_seed(0)
    module, x = nn.Linear(24, 40, bias=bias), torch.randn(2, 7, 24)
    out, gradients = outputs_and_gradients(module, x)
    with cast_once(module, BF16):
        cast, cast_gradients = outputs_and_gradients(module, x)
    assert cast.dtype == out.dtype == torch.bfloat16
    assert torch.equal(cast, out)
    for mine, theirs in zip(cast_gradients, gradients, strict=True):
        assert mine.dtype == theirs.dtype == torch.float32
        assert torch.equal(mine, theirs)


def test_what_is_frozen_gets_no_gradient():
    module, x = nn.Linear(4, 4), torch.randn(3, 4)
    module.weight.requires_grad_(False)
    with cast_once(module, BF16):
        outputs_and_gradients(module, x)  # backward through it
        with BF16.autocast():
            module(x).float().sum().backward()
    assert module.weight.grad is None
    assert torch.equal(module.bias.grad, torch.full((4,), 3.0))


@pytest.mark.parametrize("change", ["step", "copy"])
def test_a_copy_is_as_new_as_its_weight(change):
    """The fused optimizer does not count its changes by itself; train tells it (tests/test_training.py)."""
    torch.manual_seed(0)
    module, x = nn.Linear(8, 8), torch.randn(3, 8)
    with cast_once(module, BF16), BF16.autocast():
        before = module(x).detach()
        if change == "step":
            module(x).float().sum().backward()
            torch.optim.AdamW(module.parameters(), lr=0.5, fused=True).step()
            torch.autograd.graph.increment_version(list(module.parameters()))
        else:
            with torch.no_grad():
                module.weight.copy_(-module.weight)
        after = module(x).detach()
    with BF16.autocast():
        assert torch.equal(after, module(x))
    assert not torch.equal(after, before)


def test_without_autocast_it_is_fp32():
    module, x = nn.Linear(4, 4), torch.randn(3, 4)
    with cast_once(module, BF16):
        assert torch.equal(module(x), nn.functional.linear(x, module.weight, module.bias))


def test_in_fp32_nothing_is_replaced():
    module = nn.Linear(4, 4)
    with cast_once(module, Machine(torch.device("cpu"), "float32")):
        assert "forward" not in vars(module)
