"""Linear layers that keep their weights in the form that products need, where torch would make it at every call.

In training with bf16 products that is a bf16 copy, which autocast would make at every forward. In scoring it is the memory
layout that oneDNN's products read fastest, which a plain call makes internally. The optimizer's step renews the bf16 copy;
after any other change of a weight, the next call makes either form anew. A layer holds one form at a time.

The products are torch's own: under autocast bf16 in, sums in fp32, bf16 out. Gradients of weights stay in bf16
(:mod:`frostline.fast.bf16_gradients`).
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from frostline.fast.bf16_gradients import Form, hold_bf16_gradient
from frostline.fast.forwards import forwards_replaced
from frostline.fast.mapped_pages import release_mapped_pages
from frostline.fast.switch import enabled


@contextmanager
def prepared_weights(model: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """While the context is open, the model's ``nn.Linear`` modules keep their weights in the form that products need.

    ``dtype`` is that of the products. On a GPU nothing changes.
    """
    if next(model.parameters()).device.type != "cpu":
        yield
        return
    linear, cast = [module for module in model.modules() if type(module) is nn.Linear], _Cast(dtype)
    with forwards_replaced({module: _PreparedLinear(module, cast) for module in linear}):
        yield


class _Cast:
    """Inputs in the precision of products. The last one is cached, because query, key and value share their input."""

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


class _PreparedLinear:
    """The forward of one linear layer, with weight and bias in the form that the call needs."""

    def __init__(self, module: nn.Linear, cast: _Cast) -> None:
        self.module, self.cast, self.dtype = module, cast, cast.dtype
        self.laid_out = False  # which of the two forms is cached
        self.cached: list[Form] = []  # weight and bias

    def __call__(self, x: Tensor) -> Tensor:
        module, short = self.module, self.dtype != torch.float32
        scoring = not torch.is_grad_enabled() and _lays_out(self.dtype) and enabled("weight_layout")
        if x.dim() < 2 or short != torch.is_autocast_enabled(x.device.type):  # the check compares in fp32
            return F.linear(x, module.weight, module.bias)
        if not scoring and not (short and enabled("weight_cast")):
            self.cached = []
            return F.linear(x, module.weight, module.bias)
        weight, bias = self._form(laid_out=scoring)
        if scoring:
            numbers = None if bias is None else bias.numbers
            return torch.ops.mkldnn._linear_pointwise(self.cast(x), weight.numbers, numbers, "none", [], "")  # type: ignore[no-any-return]
        return _Product.apply(x, module.weight, module.bias, self.cast(x), weight, bias)  # type: ignore[no-any-return, no-untyped-call]

    def _form(self, *, laid_out: bool) -> tuple[Form, Form | None]:
        """Weight and bias as they are now, in the requested form."""
        if laid_out != self.laid_out:
            self.cached, self.laid_out = [], laid_out
        for n, parameter in enumerate(p.detach() for p in (self.module.weight, self.module.bias) if p is not None):
            form = self.cached[n] if n < len(self.cached) else None
            if form and form.version == parameter._version:
                continue
            if laid_out and n == 0:
                numbers = torch.ops.mkldnn._reorder_linear_weight(parameter.to(self.dtype))
                release_mapped_pages([parameter])  # products read the copy
                self.cached[n : n + 1] = [Form(numbers, parameter._version)]
            elif form is None:
                self.cached.append(Form(parameter.to(self.dtype, copy=True), parameter._version))
            else:
                form.renew(parameter)
        return self.cached[0], self.cached[1] if len(self.cached) > 1 else None


@cache
def _lays_out(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies in this precision on this processor, and this torch has the two operators by which its
    compiler lays weights out."""
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
            hold_bf16_gradient(ctx.weight, of_weight, ctx.copy)
            of_weight = None
        return (
            (gradient @ copy).to(ctx.wide) if wants_x else None,
            None if of_weight is None else of_weight.float(),
            flat.sum(0).float() if wants_bias else None,
            None,
            None,
            None,
        )
