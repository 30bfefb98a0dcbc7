"""The last layer, computed for the head's token only.

Most heads read one token of each text. The last layer then needs keys and values of all tokens, but query, output,
feed-forward part and norms of that token only. Gradients show which modules those are, so no model type is known by name
(:func:`frostline.frozen.check.head_token.find_head_token_part`). Each module runs unchanged on fewer rows. Its output is placed
among zeros. The last layer then costs about a sixth.

Shapes: B texts; D width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class HeadTokenPart:
    """The modules of the last layer that are needed for the head's token only."""

    reads: str  # which token of a text the head reads: first or last
    modules: tuple[str, ...]  # paths within the last layer
    pad: int | None  # the id of the padding token

    def places(self, ids: Tensor, mask: Tensor) -> Tensor:
        """``[B]``: the position of the head's token in each text."""
        return read_at(self.reads, ids, mask, self.pad)

    def forwards(
        self, layer: nn.Module, read: Callable[[], Tensor | None], runs: int
    ) -> dict[nn.Module, Callable[..., Any]]:
        """For each of the modules a forward that runs it on some rows of the hidden states.

        Args:
            layer: The last layer.
            read: Gives the indices ``[B]`` of these rows at the moment; None: all rows.
            runs: The number K of stacked runs; the module sees ``[K, B / K, ...]``.
        """
        return {module: _on_rows(module.forward, read, runs) for module in map(layer.get_submodule, self.modules)}


def read_at(reads: str, ids: Tensor, mask: Tensor, pad: int | None) -> Tensor:
    """``[B]``: the position of the one token that the head reads, the ``first`` or the last one.

    Like transformers, this takes the last token whose id is not that of padding. A text itself may end in that id, where
    the end-of-text token also pads.
    """
    if reads == "first":
        return torch.zeros_like(ids[:, 0])
    real = mask.bool() if pad is None else mask.bool() & (ids != pad)
    return (real * torch.arange(ids.shape[1], device=ids.device)).argmax(1)


def _on_rows(whole: Callable[..., Tensor], read: Callable[[], Tensor | None], runs: int) -> Callable[..., Tensor]:
    def forward(*args: Any, **kwargs: Any) -> Tensor:
        rows = read()
        if rows is None:
            return whole(*args, **kwargs)
        grid = next(x.shape[:2] for x in (*args, *kwargs.values()))
        some = [x.flatten(0, 1).index_select(0, rows).unflatten(0, (runs, -1)) for x in (*args, *kwargs.values())]
        out = whole(*some[: len(args)], **dict(zip(kwargs, some[len(args) :], strict=True)))
        return placed(out.flatten(0, 1), rows, grid.numel()).view(*grid, *out.shape[2:])

    return forward


def placed(x: Tensor, rows: Tensor, count: int) -> Tensor:
    """``[count, ...]``: ``x`` ``[B, ...]`` at these ``rows``, zeros at the others."""
    return x.new_zeros(count, *x.shape[1:]).index_copy_(0, rows, x)
