"""Temporary and nested replacement of forwards."""

import pytest
import torch
from torch import nn

from frostline.fast.switch import forwards_replaced


def test_modules_run_the_given_function_and_afterwards_their_former_one():
    module, x = nn.Linear(2, 2), torch.ones(1, 2)
    before = module(x)
    with forwards_replaced({module: lambda x: x + 1}):
        with forwards_replaced({module: lambda x: x + 2}):
            assert torch.equal(module(x), x + 2)
        assert torch.equal(module(x), x + 1)
    assert torch.equal(module(x), before)
    assert "forward" not in vars(module)


def test_forwards_are_restored_after_an_error():
    module = nn.Linear(2, 2)
    with pytest.raises(ZeroDivisionError), forwards_replaced({module: lambda x: x}):
        1 / 0  # noqa: B018
    assert "forward" not in vars(module)
