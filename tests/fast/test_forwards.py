"""Forwards replaced for a while, one over the other."""

import pytest
import torch
from torch import nn

from frostline.fast.forwards import forwards_replaced


def test_modules_run_what_they_are_told_and_then_what_they_ran_before():
    module, x = nn.Linear(2, 2), torch.ones(1, 2)
    before = module(x)
    with forwards_replaced({module: lambda x: x + 1}):
        with forwards_replaced({module: lambda x: x + 2}):
            assert torch.equal(module(x), x + 2)
        assert torch.equal(module(x), x + 1)
    assert torch.equal(module(x), before)
    assert "forward" not in vars(module)


def test_after_an_error_too():
    module = nn.Linear(2, 2)
    with pytest.raises(ZeroDivisionError), forwards_replaced({module: lambda x: x}):
        1 / 0  # noqa: B018
    assert "forward" not in vars(module)
