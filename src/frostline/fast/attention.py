"""Attention over packed short examples on a CPU, with forward and backward pass written out.

Attention over a few dozen tokens is hardly any arithmetic. Most of its time goes into launching small operations, copying
heads, and computing padding. Here the attention of a layer is one node of the autograd graph:

- One index lookup copies the heads of the packed tokens into a grid, another one copies the results back.
- The grid is as wide as the longest example. Several short examples share a row, and each attends only to itself.
- Scale and mask are part of the first product, and the scale of dropout is part of the values.

For each example the results are those of torch's plain attention in float32.

Shapes: B examples, T tokens of the packed batch, R rows of the grid, S its width, H attention heads, C head size. A method
that takes some of the examples has b examples with t tokens.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from frostline.fast.dropout import Dropout, Mask


@dataclass(frozen=True)
class HeadGrid:
    """Where the heads of packed tokens are in a grid.

    Attributes:
        example: ``[R, S]``, the example at each position; -1 where there is none.
        position: ``[R, S]``, the position of each token in its example.
        packed_index: ``[R * H * S]``, for each position of the grid the index of its head among the packed T * H heads; 0
            where there is no token.
        grid_index: ``[t * H]``, for each head of the examples' tokens its position in the grid.
        heads: H.
        unused: How many packed heads belong to no example. They come last, and their output is zero.
    """

    example: Tensor
    position: Tensor
    packed_index: Tensor
    grid_index: Tensor
    heads: int
    unused: int = 0
    _biases: list[tuple[Tensor | None, Tensor]] = field(default_factory=list)  # of the last two masks

    @classmethod
    def with_shared_rows(cls, lengths: Tensor, heads: int, tokens: int) -> "HeadGrid":
        """The grid of a batch of examples with these ``lengths`` ``[B]``, in which short ones share rows.

        If there are more ``tokens`` than the lengths add up to, the last ones belong to no example.
        """
        row, column = torch.tensor(shared_rows(lengths.tolist())).unbind(1)
        grid = cls._of(lengths, heads, torch.arange(len(lengths)), row, column, int(lengths.max()))
        return replace(grid, unused=(tokens - int(lengths.sum())) * heads)

    @classmethod
    def with_own_rows(cls, lengths: Tensor, heads: int, examples: Tensor, width: int) -> "HeadGrid":
        """The grid of some ``examples`` ``[b]`` of a batch with these ``lengths``, with one row per example."""
        return cls._of(lengths, heads, examples, torch.arange(len(examples)), torch.zeros_like(examples), width)

    @classmethod
    def _of(cls, lengths: Tensor, heads: int, examples: Tensor, row: Tensor, column: Tensor, width: int) -> "HeadGrid":
        """The grid of ``examples`` that begin at these rows and columns, ``[b]`` each."""
        which = torch.arange(len(examples)).repeat_interleave(lengths[examples])  # [t], the example of each token
        position = torch.arange(len(which)) - (lengths[examples].cumsum(0) - lengths[examples])[which]
        token = (lengths.cumsum(0) - lengths)[examples][which] + position
        row, column, rows, head = row[which], column[which] + position, int(row.max()) + 1, torch.arange(heads)
        grid_example, grid_position = torch.full((rows, width), -1), torch.zeros(rows, width, dtype=torch.long)
        grid_example[row, column], grid_position[row, column] = examples[which], position
        grid_index = ((row[:, None] * heads + head) * width + column[:, None]).flatten()
        packed_index = torch.zeros(rows * heads * width, dtype=torch.long)
        packed_index[grid_index] = (token[:, None] * heads + head).flatten()
        return cls(grid_example, grid_position, packed_index, grid_index, heads)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the attention scores, ``[R * H, S, S]``."""
        rows, width = self.example.shape
        return rows * self.heads, width, width

    def bias(self, mask: Tensor | None) -> Tensor:
        """The term to add to the scores for an attention mask ``[B or 1, H or 1, S or 1, S]`` of the padded examples.

        All layers of a model usually get the same mask, or two masks in turn. The terms of the last two masks are cached.
        """
        bias = next((bias for known_mask, bias in self._biases if known_mask is mask), None)
        if bias is None:
            bias = self._bias(mask)
            self._biases[:] = [(mask, bias), *self._biases[:1]]
        return bias

    def _bias(self, mask: Tensor | None) -> Tensor:
        least = torch.finfo(torch.float32).min  # not -inf: a token that may attend to nothing must not become NaN
        mask = torch.zeros(1, 1, 1, 1) if mask is None else mask
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=torch.float32).masked_fill_(~mask, least)
        query_example, query = self.example[:, None, :, None], self.position[:, None, :, None]
        key_example, key = self.example[:, None, None], self.position[:, None, None]
        head = torch.arange(mask.shape[1])[:, None, None]
        indices = (query_example, head, query, key)
        index = tuple(x % size for x, size in zip(indices, mask.shape, strict=True))  # 0 where the mask has size 1
        bias = mask[index].float().clamp(min=least).masked_fill(query_example != key_example, least)
        return bias.expand(len(self.example), self.heads, -1, -1).flatten(0, 1)


def shared_rows(lengths: list[int]) -> list[tuple[int, int]]:
    """The row and the first column of each example, in a grid with few rows that is as wide as the longest example.

    Best fit, decreasing: the longest example first, each in the fullest row that still has capacity for it.
    """
    width, used, placed = max(lengths), [0], [(0, 0)] * len(lengths)
    for example in sorted(range(len(lengths)), key=lambda example: -lengths[example]):
        fits = (row for row, tokens in enumerate(used) if tokens + lengths[example] <= width)
        row = max(fits, key=used.__getitem__, default=len(used))
        if row == len(used):
            used.append(0)
        placed[example] = row, used[row]
        used[row] += lengths[example]
    return placed


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    grid: HeadGrid,
    *,
    scale: float | None,
    dropout: Dropout | None = None,
    dropout_p: float = 0.0,
) -> Tensor:
    """Attention of packed tokens, differentiable in query, key and value: heads ``[1, H, T, C]`` to ``[1, t, H, C]``.

    Gradients need a grid of all examples.

    Args:
        query: Heads. ``key`` and ``value`` have the same shape.
        key: See ``query``.
        value: See ``query``.
        mask: The attention mask of the padded examples, ``[B or 1, H or 1, S or 1, S]``.
        grid: Where the heads are in the grid.
        scale: The factor of the scores; None: ``C ** -0.5``.
        dropout: Draws the dropout masks; needed with ``dropout_p``.
        dropout_p: The probability with which dropout drops an attention weight.
    """
    size = query.shape[-1]
    drop = dropout.mask(grid.shape, dropout_p) if dropout and dropout_p else None
    flat = (x.transpose(1, 2).reshape(-1, size) for x in (query, key, value))
    scale = size**-0.5 if scale is None else scale
    out: Tensor = _Attention.apply(*flat, grid.bias(mask), drop, scale, grid)  # type: ignore[no-untyped-call]
    return out.view(1, -1, grid.heads, size)


def _from_grid(x: Tensor, grid: HeadGrid, dtype: torch.dtype) -> Tensor:
    """``[R * H, S, C]`` to ``[t * H, C]``, followed by zeros for the unused heads"""
    out = x.view(-1, x.shape[2]).index_select(0, grid.grid_index).to(dtype)
    return F.pad(out, (0, 0, 0, grid.unused)) if grid.unused else out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor,
        drop: Mask | None,
        scale: float,
        grid: HeadGrid,
    ) -> Tensor:
        ctx.scale, ctx.grid, ctx.dtype = scale, grid, query.dtype
        ctx.factor = None if drop is None else drop.factor
        with torch.autocast("cpu", enabled=False):
            in_grid = (x.index_select(0, grid.packed_index).float() for x in (query, key, value))  # [R * H * S, C]
            queries, keys, values = (x.view(*grid.shape[:2], -1) for x in in_grid)
            if drop is not None:
                values.mul_(drop.factor)
            weights = torch.baddbmm(bias, queries, keys.transpose(1, 2), alpha=scale).softmax(-1)
            dropped = weights if drop is None else drop.on(weights)
            ctx.save_for_backward(queries, keys, values, weights, dropped, None if drop is None else drop.keep)
            return _from_grid(dropped @ values, grid, query.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        queries, keys, values, weights, dropped, keep = ctx.saved_tensors
        grid, scale, drop = ctx.grid, ctx.scale, None if keep is None else Mask(keep, ctx.factor)
        with torch.autocast("cpu", enabled=False):
            gradient = torch.zeros_like(values).view(-1, values.shape[2])
            gradient.index_copy_(0, grid.grid_index, gradients[0][: len(grid.grid_index)].float())
            gradient = gradient.view_as(values)
            of_weights = gradient @ values.transpose(1, 2)
            if drop is not None:
                of_weights = drop.on(of_weights)
            of_scores = torch.ops.aten._softmax_backward_data(of_weights, weights, -1, torch.float32)
            of_queries = _product(of_scores, keys, scale)
            of_keys = _product(of_scores.transpose(1, 2), queries, scale)
            of_values = _product(dropped.transpose(1, 2), gradient, 1.0 if drop is None else drop.factor)
            in_grid = (of_queries, of_keys, of_values)
            return (*(_from_grid(x, grid, ctx.dtype) for x in in_grid), None, None, None, None)


def _product(a: Tensor, b: Tensor, factor: float) -> Tensor:
    """``factor * (a @ b)`` in one operation"""
    return torch.baddbmm(b.new_empty(1, 1, 1), a, b, beta=0, alpha=factor)
