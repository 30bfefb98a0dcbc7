"""Attention over packed short texts on a CPU, with forward and backward written out.

For texts of some dozen tokens attention is hardly any arithmetic. Its cost is starting small operations, copying heads,
and computing padded positions. Here a layer's attention is one node of the graph. One lookup moves heads from the packed
tokens into a grid, another one moves them back. The grid is as wide as the longest text, and several short texts share a
row, each seeing only itself. Scale and mask are part of the first product, dropout's factor is part of the values. The
results are those of torch's plain path in fp32, text by text.

Shapes: B texts, T tokens of the packed batch, R rows of the grid, S its width, H heads, C head size.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from frostline.fast.dropout import Dropout, Mask, torch_mask


@dataclass(frozen=True)
class Places:
    """The positions of the heads of packed tokens in a grid."""

    text: Tensor  # [R, S], the text at each position; -1: none
    at: Tensor  # [R, S], the index of the token within its text
    heads: Tensor  # [R * H * S], for each position the index of a head among T * H; 0 where there is no token
    tokens: Tensor  # [t * H], for each head of the texts' tokens its position
    count: int  # H
    empty: int = 0  # heads of the tokens that belong to no text, which come last; their output is zero
    _biases: list[tuple[Tensor | None, Tensor]] = field(default_factory=list)  # of the last two masks

    @classmethod
    def shared(cls, lengths: Tensor, count: int, tokens: int) -> "Places":
        """For texts of ``lengths`` ``[B]``, packed in this order; short texts share a row.

        ``tokens`` is T, which may exceed the sum of the lengths: the tokens behind belong to no text.
        """
        row, start = torch.tensor(shared_rows(lengths.tolist())).unbind(1)
        found = cls._of(lengths, count, torch.arange(len(lengths)), row, start, int(lengths.max()))
        return replace(found, empty=(tokens - int(lengths.sum())) * count)

    @classmethod
    def alone(cls, lengths: Tensor, count: int, texts: Tensor, width: int) -> "Places":
        """For some of the ``texts`` ``[b]``, each in a row of its own, in a grid of this ``width``."""
        return cls._of(lengths, count, texts, torch.arange(len(texts)), torch.zeros_like(texts), width)

    @classmethod
    def _of(cls, lengths: Tensor, count: int, texts: Tensor, row: Tensor, start: Tensor, width: int) -> "Places":
        which = torch.arange(len(texts)).repeat_interleave(lengths[texts])  # [t], the text of each token
        at = torch.arange(len(which)) - (lengths[texts].cumsum(0) - lengths[texts])[which]
        token = (lengths.cumsum(0) - lengths)[texts][which] + at
        row, column, rows, every = row[which], start[which] + at, int(row.max()) + 1, torch.arange(count)
        of_text, of_token = torch.full((rows, width), -1), torch.zeros(rows, width, dtype=torch.long)
        of_text[row, column], of_token[row, column] = texts[which], at
        tokens = ((row[:, None] * count + every) * width + column[:, None]).flatten()
        heads = torch.zeros(rows * count * width, dtype=torch.long)
        heads[tokens] = (token[:, None] * count + every).flatten()
        return cls(of_text, of_token, heads, tokens, count)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the attention scores, ``[R * H, S, S]``."""
        rows, width = self.text.shape
        return rows * self.count, width, width

    def bias(self, mask: Tensor | None) -> Tensor:
        """The term that is added to the scores for an attention mask ``[B or 1, H or 1, S or 1, S]`` of the texts.

        It is computed once for all layers that get the same mask, as long as no more than two masks alternate.
        """
        known = next((bias for seen, bias in self._biases if seen is mask), None)
        if known is None:
            known = self._bias(mask)
            self._biases[:] = [(mask, known), *self._biases[:1]]
        return known

    def _bias(self, mask: Tensor | None) -> Tensor:
        least = torch.finfo(torch.float32).min  # not -inf: a row that may attend to nothing must not become NaN
        mask = torch.zeros(1, 1, 1, 1) if mask is None else mask
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, least)
        text, query = self.text[:, None, :, None], self.at[:, None, :, None]
        key, other = self.at[:, None, None], self.text[:, None, None]
        head = torch.arange(mask.shape[1])[:, None, None]
        where = (index % size for index, size in zip((text, head, query, key), mask.shape, strict=True))
        bias = mask[tuple(where)].float().clamp(min=least).masked_fill(text != other, least)
        return bias.expand(len(self.text), self.count, -1, -1).flatten(0, 1)


def shared_rows(lengths: list[int]) -> list[tuple[int, int]]:
    """For each text its row and its first column, in few rows that are as wide as the longest text.

    Best fit: the longest text first, each into the fullest row that has capacity for it.
    """
    width, used, found = max(lengths), [0], [(0, 0)] * len(lengths)
    for text in sorted(range(len(lengths)), key=lambda text: -lengths[text]):
        fits = (row for row, tokens in enumerate(used) if tokens + lengths[text] <= width)
        row = max(fits, key=used.__getitem__, default=len(used))
        if row == len(used):
            used.append(0)
        found[text] = row, used[row]
        used[row] += lengths[text]
    return found


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    places: Places,
    *,
    scale: float | None,
    dropout: Dropout | None,
    dropped: float,
) -> Tensor:
    """Attention of packed tokens, differentiable in the first three arguments.

    Args:
        query: Heads ``[1, H, T, C]``; ``key`` and ``value`` likewise.
        mask: The mask of the padded texts, ``[B or 1, H or 1, S or 1, S]``.
        places: The grid.
        scale: The factor of the scores; None: ``C ** -0.5``.
        dropout: Draws the masks of dropout; None: torch's own generator.
        dropped: The probability that dropout drops a weight.

    Returns:
        ``[1, T, H, C]``
    """
    heads, tokens, size = query.shape[1:]
    drop = (torch_mask if dropout is None else dropout.mask)(places.shape, dropped) if dropped else None
    flat = (x.transpose(1, 2).reshape(tokens * heads, size) for x in (query, key, value))
    scale = size**-0.5 if scale is None else scale
    out: Tensor = _Attended.apply(*flat, places.bias(mask), drop, scale, places)  # type: ignore[no-untyped-call]
    return out.view(1, tokens, heads, size)


def attended(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, places: Places, *, scale: float | None
) -> Tensor:
    """The same for scoring: heads of all packed tokens ``[1, H, T, C]`` -> those of the grid's texts ``[1, t, H, C]``."""
    size = query.shape[-1]
    flat = (x.transpose(1, 2).reshape(-1, size) for x in (query, key, value))
    with torch.autocast("cpu", enabled=False):
        queries, keys, values = (_in_grid(x, places) for x in flat)
        weights = _weights(queries, keys, places.bias(mask), size**-0.5 if scale is None else scale)
        return _out_of_grid(weights @ values, places, value.dtype).view(1, -1, places.count, size)


def _in_grid(x: Tensor, places: Places) -> Tensor:
    """``[T * H, C]`` -> ``[R * H, S, C]`` in fp32"""
    return x.index_select(0, places.heads).float().view(*places.shape[:2], x.shape[1])


def _weights(queries: Tensor, keys: Tensor, bias: Tensor, scale: float) -> Tensor:
    return torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=scale).softmax(-1)


def _out_of_grid(x: Tensor, places: Places, dtype: torch.dtype) -> Tensor:
    """``[R * H, S, C]`` -> ``[t * H, C]``, followed by zeros for the ``empty`` heads"""
    out = x.view(-1, x.shape[2]).index_select(0, places.tokens).to(dtype)
    return F.pad(out, (0, 0, 0, places.empty)) if places.empty else out


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor,
        drop: Mask | None,
        scale: float,
        places: Places,
    ) -> Tensor:
        ctx.scale, ctx.drop, ctx.places, ctx.kind = scale, drop, places, query.dtype
        with torch.autocast("cpu", enabled=False):
            queries, keys, values = (_in_grid(x, places) for x in (query, key, value))
            if drop is not None:
                values.mul_(drop.factor)
            weights = _weights(queries, keys, bias, scale)
            counted = weights if drop is None else drop.on(weights)
            ctx.save_for_backward(queries, keys, values, weights, counted)
            return _out_of_grid(counted @ values, places, query.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        queries, keys, values, weights, counted = ctx.saved_tensors
        places, scale, drop = ctx.places, ctx.scale, ctx.drop
        with torch.autocast("cpu", enabled=False):
            gradient = torch.zeros_like(values).view(-1, values.shape[2])
            gradient.index_copy_(0, places.tokens, gradients[0][: len(places.tokens)].float())
            gradient = gradient.view_as(values)
            of_weights = gradient @ values.transpose(1, 2)
            if drop is not None:
                of_weights = drop.on(of_weights)
            of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, torch.float32)
            of_queries = _product(of_scores, keys, scale)
            of_keys = _product(of_scores.transpose(1, 2), queries, scale)
            of_values = _product(counted.transpose(1, 2), gradient, 1.0 if drop is None else drop.factor)
            found = (of_queries, of_keys, of_values)
            return (*(_out_of_grid(x, places, ctx.kind) for x in found), None, None, None, None)


def _product(a: Tensor, b: Tensor, factor: float) -> Tensor:
    return torch.baddbmm(b.new_empty(1, 1, 1), a, b, beta=0, alpha=factor)
