"""Dropout with sixteen random bits per element. torch draws a whole random number per element, which takes longer.

Each element is dropped independently, with probability ``p`` rounded to a multiple of 2^-16. The other elements are scaled,
so that the expected output equals the input. Masks are 16-bit integers, because torch does not vectorize the product with
a boolean mask.
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

from frostline.fast.switch import forwards_replaced

LEVELS = 1 << 16  # the number of values of sixteen random bits


@dataclass(frozen=True)
class Mask:
    """A dropout mask.

    Attributes:
        keep: A 16-bit integer per element: 1 keeps it, 0 drops it.
        factor: The scale of the elements that are not dropped.
    """

    keep: Tensor
    factor: float

    def on(self, x: Tensor) -> Tensor:
        """``x`` with zeros for dropped elements, not scaled. Elements with more than 16 bits have to be finite."""
        if x.element_size() == self.keep.element_size():  # multiply the bits of x, taken as an integer, by 1 or 0
            return (x.view(self.keep.dtype) * self.keep).view(x.dtype)
        return x * self.keep.to(x.dtype)


class Dropout:
    """Draws masks from its own generator: the same seed gives the same masks in the same order.

    Stacked runs have one seed each, and each seed draws the masks for an equal part of the elements. The masks of a run depend
    on the other runs of its stack only through the lengths of their texts.
    """

    def __init__(self, *seeds: int) -> None:
        self._bits = [np.random.SFC64(seed) for seed in seeds]

    def __call__(self, x: Tensor, p: float) -> Tensor:
        """Dropout of ``x`` of any shape; differentiable."""
        dropped = round(p * LEVELS)
        if not 0 < dropped < LEVELS:
            return x * (dropped == 0)
        return _Masked.apply(x, self.mask(x.shape, p))  # type: ignore[no-any-return, no-untyped-call]

    def mask(self, shape: Sequence[int], p: float) -> Mask:
        """The next mask of this shape, which drops each element with probability ``p``."""
        dropped, count = round(p * LEVELS), math.prod(shape)
        part = -(-count // len(self._bits))
        draws = [torch.from_numpy(bits.random_raw(-(-part // 4)).view(np.int16))[:part] for bits in self._bits]
        drawn = draws[0] if len(draws) == 1 else torch.cat(draws)[:count]
        return Mask(drawn.ge_(dropped - LEVELS // 2).view(*shape), LEVELS / max(1, LEVELS - dropped))

    def state(self) -> list[Any]:
        """The state of the generators."""
        return [bits.state for bits in self._bits]

    @contextmanager
    def from_state(self, state: Sequence[Any]) -> Iterator[None]:
        """While the context is open, draw the masks that were drawn from this state on."""
        before = self.state()
        self.load_state(state)
        try:
            yield
        finally:
            self.load_state(before)

    def load_state(self, state: Sequence[Any]) -> None:
        """Draw the masks that follow on this state."""
        for bits, one in zip(self._bits, state, strict=True):
            bits.state = one

    @contextmanager
    def replacing_dropout(self, model: nn.Module) -> Iterator[None]:
        """While the context is open, the model's ``nn.Dropout`` modules use these masks."""
        modules = [module for module in model.modules() if type(module) is nn.Dropout]
        with forwards_replaced({module: self._forward(module) for module in modules}):
            yield

    def _forward(self, module: nn.Dropout) -> Callable[[Tensor], Tensor]:
        return lambda x: self(x, module.p) if module.training else x


class _Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Mask) -> Tensor:
        ctx.save_for_backward(mask.keep)  # gradient checkpointing frees what is saved like this
        ctx.factor = mask.factor
        return mask.on(x).mul_(mask.factor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (keep,) = ctx.saved_tensors
        mask = Mask(keep, ctx.factor)
        return mask.on(gradients[0]).mul_(mask.factor), None


class DropoutInAttention(TorchFunctionMode):
    """A context in which ``scaled_dot_product_attention`` uses our masks for its dropout."""

    def __init__(self, dropout: Dropout) -> None:
        super().__init__()
        self.dropout = dropout

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention and kwargs.get("dropout_p"):
            return sdpa_with_dropout(*args, **kwargs, dropout=self.dropout)
        return func(*args, **kwargs)


def sdpa_with_dropout(
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
    """``scaled_dot_product_attention`` with the given ``dropout`` function, computed in float32 like torch's own math path.

    All other arguments are those of torch's function.
    """
    with torch.autocast(query.device.type, enabled=False):
        queries, keys, values = query.float(), key.float(), value.float()
        if enable_gqa:
            groups = query.shape[-3] // key.shape[-3]
            keys, values = (x.repeat_interleave(groups, dim=-3) for x in (keys, values))
        scores = (queries * (query.shape[-1] ** -0.5 if scale is None else scale)) @ keys.transpose(-2, -1)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        least = torch.finfo(scores.dtype).min  # not -inf: a token that may attend to nothing must not become NaN
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, least)
        elif attn_mask is not None:
            scores = scores + attn_mask.clamp(min=least)
        return (dropout(scores.softmax(-1), dropout_p) @ values).to(query.dtype)
