"""Dropout from sixteen random bits for each element, where torch draws a number for each.

Each element is dropped independently, with probability ``p`` rounded to a multiple of 2^-16. The others are scaled so that
the expectation is exactly the input. Masks are 16-bit integers, because torch's product with a boolean mask is not
vectorised.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from frostline.fast.forwards import forwards_replaced

STEPS = 1 << 16


@dataclass(frozen=True)
class Mask:
    """Which elements are not dropped, and the factor that scales them."""

    kept: Tensor  # 1 or 0, in sixteen bits
    factor: float

    def on(self, x: Tensor) -> Tensor:
        """``x`` without scaling, zero where it is dropped (wider numbers than 16 bits have to be finite)."""
        if x.element_size() == self.kept.element_size():  # its bits times 1 or 0
            return (x.view(self.kept.dtype) * self.kept).view(x.dtype)
        return x * self.kept.to(x.dtype)


class Dropout:
    """Draws masks from a generator of its own: the same seed gives the same masks in the same order.

    With several seeds, those of stacked runs, each draws for an equal share of the elements. So the masks of a run do not
    depend on the other runs of its stack.
    """

    def __init__(self, *seeds: int) -> None:
        self._bits = [np.random.SFC64(seed) for seed in seeds]

    def __call__(self, x: Tensor, p: float) -> Tensor:
        """``x`` with elements dropped, of any shape; differentiable."""
        dropped = round(p * STEPS)
        if not 0 < dropped < STEPS:
            return x * (dropped == 0)
        return _Masked.apply(x, self.mask(x.shape, p))  # type: ignore[no-any-return, no-untyped-call]

    def mask(self, shape: Sequence[int], p: float) -> Mask:
        """The next mask for elements of this shape; each is dropped with probability ``p``."""
        dropped, count = round(p * STEPS), math.prod(shape)
        share = -(-count // len(self._bits))
        draws = [torch.from_numpy(bits.random_raw(-(-share // 4)).view(np.int16))[:share] for bits in self._bits]
        drawn = draws[0] if len(draws) == 1 else torch.cat(draws)[:count]
        return Mask(drawn.ge_(dropped - STEPS // 2).view(*shape), STEPS / max(1, STEPS - dropped))

    @contextmanager
    def instead(self, model: nn.Module) -> Iterator[None]:
        """While the context is open, the model's ``nn.Dropout`` modules use these masks."""
        modules = [module for module in model.modules() if type(module) is nn.Dropout]
        with forwards_replaced({module: self._forward(module) for module in modules}):
            yield

    def in_attention(self) -> TorchFunctionMode:
        """While the context is open, ``scaled_dot_product_attention`` uses these masks for its dropout."""
        return _InAttention(self)

    def _forward(self, module: nn.Dropout) -> Callable[[Tensor], Tensor]:
        return lambda x: self(x, module.p) if module.training else x


def torch_mask(shape: Sequence[int], p: float) -> Mask:
    """A mask drawn by torch's own generator, as ``nn.Dropout`` draws it."""
    return Mask(torch.empty(*shape, dtype=torch.int16).bernoulli_(1 - p), 1 / (1 - p) if p < 1 else 0.0)


class _Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Mask) -> Tensor:
        ctx.mask = mask
        return mask.on(x).mul_(mask.factor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.mask.on(gradients[0]).mul_(ctx.mask.factor), None


class _InAttention(TorchFunctionMode):
    def __init__(self, dropout: Dropout) -> None:
        super().__init__()
        self.dropout = dropout

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and kwargs.get("dropout_p"):
            return attention(*args, **kwargs, dropout=self.dropout)
        return func(*args, **kwargs)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    dropout: Callable[[Tensor, float], Tensor],
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    scale: float | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
) -> Tensor:
    """The definition of ``scaled_dot_product_attention``, computed in fp32 like torch's own math path."""
    with torch.autocast(query.device.type, enabled=False):
        queries, keys, values = query.float(), key.float(), value.float()
        if enable_gqa:
            groups = query.shape[-3] // key.shape[-3]
            keys, values = (x.repeat_interleave(groups, dim=-3) for x in (keys, values))
        scores = (queries * (query.shape[-1] ** -0.5 if scale is None else scale)) @ keys.transpose(-2, -1)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        least = torch.finfo(scores.dtype).min  # not -inf: a row that may attend to nothing must not become NaN
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, least)
        elif attn_mask is not None:
            scores = scores + attn_mask.clamp(min=least)
        return (dropout(scores.softmax(-1), dropout_p) @ values).to(query.dtype)
