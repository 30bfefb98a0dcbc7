"""The last layer, as far as the head looks at it.

Most heads read one token of each text. Of the last layer, only keys and values are then needed for all tokens; query,
output, feed-forward part and norms of the other tokens are computed for nobody. Which modules can do with the head's
token is seen from gradients (:func:`frostline.frozen.check.narrow_of`), so no type is known by name; each runs as it is,
on fewer rows, and what it gives stands in its place among zeros. That makes the last layer cost a sixth.

Shapes: B texts; D width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Narrow:
    """What of the last layer is needed for the head's token only."""

    reads: str  # first or last token of a text
    modules: tuple[str, ...]  # their paths within the last layer
    pad: int | None  # the number of padding

    def places(self, ids: Tensor, mask: Tensor) -> Tensor:
        """``[B]``: where in each text the token stands that the head reads."""
        return read_at(self.reads, ids, mask, self.pad)

    def forwards(
        self, layer: nn.Module, read: Callable[[], Tensor | None], runs: int
    ) -> dict[nn.Module, Callable[..., Any]]:
        """For each of the modules, a forward that runs it on the rows that are ``read`` just then, ``[B]``, of all rows
        of the hidden states, as ``[K, B / K, ...]`` for K ``runs``; on all of them while that is None."""
        return {module: _on_rows(module.forward, read, runs) for module in map(layer.get_submodule, self.modules)}


def read_at(reads: str, ids: Tensor, mask: Tensor, pad: int | None) -> Tensor:
    """``[B]``, where the one token stands that the head looks at. The last is that before what has the number of
    padding: transformers tells by the number, and a text may end in it where the end of text pads, too."""
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
    """``[B, ...]`` at these of ``count`` rows, zeros at the others."""
    return x.new_zeros(count, *x.shape[1:]).index_copy_(0, rows, x)
