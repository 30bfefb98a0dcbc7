"""Linear layers whose weights are kept in the form that products want, where torch makes it anew at every call.

For training on a processor with short numbers that is a copy in the lower precision, which autocast would make at every
forward; for scoring, in every precision, it is the layout that oneDNN's products read fastest, which a plain call makes
inside. The copy is made anew by the step that changes the weight, and either when the layer is next called after any other
change; each takes the place of the other.

The products are torch's own: under autocast bf16 in, sums in fp32, bf16 out; gradients of weights are handed in as they
are (:mod:`frostline.fast.gradients`).
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from frostline.fast.forwards import forwards_replaced
from frostline.fast.gradients import Form, hand_in
from frostline.fast.memory import drop_mapped
from frostline.model.device import Machine


@contextmanager
def ready_weights(model: nn.Module, machine: Machine) -> Iterator[None]:
    """While the context is open, the model's ``nn.Linear`` modules keep their weights ready. On a GPU nothing changes."""
    if machine.device.type != "cpu":
        yield
        return
    linear, cast = [module for module in model.modules() if type(module) is nn.Linear], _Cast(machine.dtype)
    with forwards_replaced({module: _Ready(module, cast) for module in linear}):
        yield


class _Cast:
    """Inputs in the precision of products; the last one is kept, since query, key and value are made of the same."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.last: Any = lambda: None
        self.version, self.made = -1, torch.empty(0)

    def __call__(self, x: Tensor) -> Tensor:
        if x.dtype == self.dtype:
            return x.detach()
        if self.last() is not x or self.version != x._version:
            self.last, self.version, self.made = weakref.ref(x), x._version, x.detach().to(self.dtype)
        return self.made


class _Ready:
    """The forward of one linear layer, on its weight and bias in the form that the call wants."""

    def __init__(self, module: nn.Linear, cast: _Cast) -> None:
        self.module, self.cast, self.dtype = module, cast, cast.dtype
        self.laid_out = False  # which of the two forms is kept
        self.kept: list[Form] = []  # of the weight, and of the bias

    def __call__(self, x: Tensor) -> Tensor:
        module, short = self.module, self.dtype != torch.float32
        scoring = not torch.is_grad_enabled() and _lays_out(self.dtype)
        if x.dim() < 2 or short != torch.is_autocast_enabled(x.device.type):  # the check compares in fp32
            return F.linear(x, module.weight, module.bias)
        if not scoring and not short:
            self.kept = []
            return F.linear(x, module.weight, module.bias)
        weight, bias = self._ready(laid_out=scoring)
        if scoring:
            numbers = None if bias is None else bias.numbers
            return torch.ops.mkldnn._linear_pointwise(self.cast(x), weight.numbers, numbers, "none", [], "")  # type: ignore[no-any-return]
        return _Product.apply(x, module.weight, module.bias, self.cast(x), weight, bias)  # type: ignore[no-any-return, no-untyped-call]

    def _ready(self, *, laid_out: bool) -> tuple[Form, Form | None]:
        """Weight and bias as they are now, in the form that is asked for."""
        if laid_out != self.laid_out:
            self.kept, self.laid_out = [], laid_out
        for n, parameter in enumerate(p.detach() for p in (self.module.weight, self.module.bias) if p is not None):
            form = self.kept[n] if n < len(self.kept) else None
            if form and form.version == parameter._version:
                continue
            if laid_out and n == 0:
                numbers = torch.ops.mkldnn._reorder_linear_weight(parameter.to(self.dtype))
                drop_mapped([parameter])  # products read the copy
                self.kept[n : n + 1] = [Form(numbers, parameter._version)]
            elif form is None:
                self.kept.append(Form(parameter.to(self.dtype, copy=True), parameter._version))
            else:
                form.renew(parameter)
        return self.kept[0], self.kept[1] if len(self.kept) > 1 else None


@cache
def _lays_out(dtype: torch.dtype) -> bool:
    """Whether this torch has oneDNN with products of this kind on this processor, and the two operators by which torch lays
    weights out for its own compiler."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    return all(hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, short: Tensor, copy: Form, short_bias: Form | None
    ) -> Tensor:
        ctx.wide = x.dtype
        ctx.save_for_backward(short, copy.numbers)
        ctx.weight, ctx.copy = weight, copy
        return F.linear(short, copy.numbers, None if short_bias is None else short_bias.numbers)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, copy = ctx.saved_tensors
        gradient = gradients[0].to(copy.dtype)
        wants_x, wants_weight, wants_bias, *_ = ctx.needs_input_grad
        flat = gradient.flatten(0, -2)
        of_weight = flat.t() @ x.flatten(0, -2) if wants_weight else None
        if of_weight is not None and ctx.weight.is_leaf:
            hand_in(ctx.weight, of_weight, ctx.copy)
            of_weight = None
        return (
            (gradient @ copy).to(ctx.wide) if wants_x else None,
            None if of_weight is None else of_weight.float(),
            flat.sum(0).float() if wants_bias else None,
            None,
            None,
            None,
        )
