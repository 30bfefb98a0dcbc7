"""Attention over packed short texts while they are trained on a CPU, forward and backward written out.

Over texts of some dozen tokens attention is hardly any arithmetic: what it costs is starting small operations and copying
heads about, and autograd doubles both. Here a layer's attention is one node. Heads go from the packed tokens into the
padded grid and back by one lookup each, scale and mask are part of the first product, dropout's factor is part of the
values, and the backward pass is the few products that it takes. The numbers are those of torch's plain path in fp32, with
the same masks of dropout.

Shapes: B texts, S padded length, T real tokens, H heads, C head size.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from frostline.dropout import Dropout


@dataclass(frozen=True)
class Places:
    """Where the heads of packed tokens stand in the padded grid."""

    grid: Tensor  # [B * H * S], for each place the head of a token, of T * H; for a place without a token the first
    tokens: Tensor  # [T * H], the place of each head of a token
    length: int  # S

    @classmethod
    def of(cls, index: Tensor, batch: int, length: int, heads: int) -> "Places":
        """``index`` ``[T]``: positions of the real tokens in the flattened grid ``[B, S]``."""
        text, at = index // length, index % length
        tokens = ((text[:, None] * heads + torch.arange(heads)) * length + at[:, None]).flatten()
        grid = torch.zeros(batch * heads * length, dtype=torch.long)
        grid[tokens] = torch.arange(len(tokens))
        return cls(grid, tokens, length)


def bias_of(mask: Tensor | None, batch: int, heads: int) -> Tensor:
    """What is added to the scores ``[B * H, S, S]`` for an attention mask ``[B or 1, H or 1, S or 1, S]``, in a shape that
    spreads over them."""
    if mask is None:
        return torch.zeros(1, 1, 1)
    least = torch.finfo(torch.float32).min  # not -inf: a row of padding may see nothing, and must not become NaN
    bias = torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, least) if mask.dtype == torch.bool else mask
    return bias.float().clamp(min=least).expand(batch, heads, -1, -1).flatten(0, 1)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    places: Places,
    *,
    scale: float | None,
    dropout: Dropout | None,
    dropped: float,
) -> Tensor:
    """Heads of packed tokens ``[1, H, T, C]`` in, ``[1, T, H, C]`` out; differentiable in the first three.

    ``dropped`` is the share of weights that ``dropout`` drops.
    """
    heads, tokens, size = query.shape[1:]
    kept, factor = None, 1.0
    if dropout is not None and dropped:
        texts = len(places.grid) // places.length
        kept, factor = dropout.mask((texts, places.length, places.length), dropped)
    flat = (x.transpose(1, 2).reshape(tokens * heads, size) for x in (query, key, value))
    scale = size**-0.5 if scale is None else scale
    out: Tensor = _Attended.apply(*flat, bias, kept, scale, factor, places)  # type: ignore[no-untyped-call]
    return out.view(1, tokens, heads, size)


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor,
        kept: Tensor | None,
        scale: float,
        factor: float,
        places: Places,
    ) -> Tensor:
        ctx.scale, ctx.factor, ctx.places, ctx.kind = scale, factor, places, query.dtype
        with torch.autocast("cpu", enabled=False):
            queries, keys, values = (
                x.index_select(0, places.grid).float().view(-1, places.length, x.shape[1]) for x in (query, key, value)
            )
            values.mul_(factor)
            weights = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=scale).softmax(-1)
            counted = weights if kept is None else weights * kept
            ctx.save_for_backward(queries, keys, values, weights, counted, kept)
            out = counted @ values
            return out.view(-1, query.shape[1]).index_select(0, places.tokens).to(query.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        queries, keys, values, weights, counted, kept = ctx.saved_tensors
        places, scale = ctx.places, ctx.scale
        with torch.autocast("cpu", enabled=False):
            gradient = torch.zeros_like(values).view(-1, values.shape[2])
            gradient.index_copy_(0, places.tokens, gradients[0].float())
            gradient = gradient.view_as(values)
            of_weights = gradient @ values.transpose(1, 2)
            if kept is not None:
                of_weights.mul_(kept)
            of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, torch.float32)
            of_queries = _product(of_scores, keys, scale)
            of_keys = _product(of_scores.transpose(1, 2), queries, scale)
            of_values = _product(counted.transpose(1, 2), gradient, ctx.factor)
            flat = (x.view(-1, x.shape[2]).index_select(0, places.tokens) for x in (of_queries, of_keys, of_values))
            return (*(x.to(ctx.kind) for x in flat), None, None, None, None, None)


def _product(a: Tensor, b: Tensor, factor: float) -> Tensor:
    return torch.baddbmm(b.new_empty(1, 1, 1), a, b, beta=0, alpha=factor)
