"""Weights cast to a processor's short numbers once a step, where autocast does it at every forward.

A linear layer keeps a copy of its weight in the lower precision, and makes it anew only when the weight has changed.
The products are autocast's own: bf16 in, sums in fp32, bf16 out; gradients of weights are handed back in fp32.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from frostline.machine import Machine
from frostline.replacing import forwards_replaced


@contextmanager
def cast_once(model: nn.Module, machine: Machine) -> Iterator[None]:
    """While the context is open, the model's ``nn.Linear`` modules use kept copies. On a GPU autocast keeps its own."""
    if machine.device.type != "cpu" or machine.precision == "float32":
        yield
        return
    linear = [module for module in model.modules() if type(module) is nn.Linear]
    with forwards_replaced({module: _Copied(module, machine.dtype) for module in linear}):
        yield


class _Copied:
    """The forward of one linear layer, on a copy of its weight and bias that is as old as they are."""

    def __init__(self, module: nn.Linear, dtype: torch.dtype) -> None:
        self.module, self.dtype = module, dtype
        self.copies: list[tuple[int, Tensor]] = []  # the version that was copied, and its copy: of weight, and of bias

    def __call__(self, x: Tensor) -> Tensor:
        module = self.module
        if not torch.is_autocast_enabled(x.device.type) or x.dim() < 2:  # the check compares in fp32
            return F.linear(x, module.weight, module.bias)
        given = [p for p in (module.weight, module.bias) if p is not None]
        self.copies = self.copies or [(-1, torch.empty_like(p, dtype=self.dtype)) for p in given]
        for n, (parameter, (version, copy)) in enumerate(zip(given, self.copies, strict=True)):
            if version != parameter._version:
                self.copies[n] = (parameter._version, copy.copy_(parameter.detach()))
        copies = [copy for _, copy in self.copies]
        return _Product.apply(x, module.weight, module.bias, copies[0], copies[1] if len(copies) > 1 else None)  # type: ignore[no-any-return, no-untyped-call]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, copy: Tensor, short: Tensor | None) -> Tensor:
        ctx.wide, x = x.dtype, x.to(copy.dtype)
        ctx.save_for_backward(x, copy)
        return F.linear(x, copy, short)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, copy = ctx.saved_tensors
        gradient = gradients[0].to(copy.dtype)
        wants_x, wants_weight, wants_bias, *_ = ctx.needs_input_grad
        flat = gradient.flatten(0, -2)
        return (
            (gradient @ copy).to(ctx.wide) if wants_x else None,
            (flat.t() @ x.flatten(0, -2)).float() if wants_weight else None,
            flat.sum(0).float() if wants_bias else None,
            None,
            None,
        )
