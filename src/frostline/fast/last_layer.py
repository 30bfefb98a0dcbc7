"""Compute the last layer for the token that the head reads only.

Most classifier heads read one token of each example. The last layer then needs keys and values of all tokens. It needs query,
attention output, feed-forward part and norms of the head's token only. The cost of the last layer falls to about a sixth.

Gradients show which modules can be restricted to the head's token, so no model type is known by name
(:func:`frostline.frozen.exactness.find_head_token_part`). Each of these modules runs unchanged on fewer tokens, and its
output is scattered into zeros.

Shapes: B examples, S padded length, D width, K stacked runs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Devices on which each module reads the rows again. Its gradient is then added as before, because another order of a sum differs
# in the last bits.
READ_AGAIN = {"cpu"}


@dataclass(frozen=True)
class HeadTokenPart:
    """The modules of the last layer that are needed for the head's token only.

    Attributes:
        reads: Which token of an example the head reads: ``first`` or ``last``.
        modules: The paths of these modules within the last layer.
        pad: The id of the padding token; None if there is none.
    """

    reads: str
    modules: tuple[str, ...]
    pad: int | None

    def positions(self, ids: Tensor, mask: Tensor) -> Tensor:
        """``[B]``: the position of the head's token in each example."""
        return head_position(self.reads, ids, mask, self.pad)

    def forwards(
        self, layer: nn.Module, head_index: Callable[[], Tensor | None], runs: int
    ) -> dict[nn.Module, Callable[..., Any]]:
        """For each of the modules of the last layer, a forward that computes the head's tokens only.

        ``head_index`` returns their current index ``[B]`` among all tokens; None computes all tokens. With K stacked ``runs``,
        the module itself runs on ``[K, B / K, ...]``.
        """
        modules = map(layer.get_submodule, self.modules)
        return {module: _on_head_tokens(module.forward, head_index, runs) for module in modules}


def head_position(reads: str, ids: Tensor, mask: Tensor, pad: int | None) -> Tensor:
    """``[B]``: the position in each example of the token that the head ``reads``: ``first`` or ``last``.

    The last token is the last one whose id is not the padding id, as in transformers. If the end-of-text token is also used
    for padding, the tokens of an example may end with it. ``ids`` and ``mask`` are ``[B, S]``.
    """
    if reads == "first":
        return torch.zeros_like(ids[:, 0])
    real = mask.bool() if pad is None else mask.bool() & (ids != pad)
    return (real * torch.arange(ids.shape[1], device=ids.device)).argmax(1)


def _on_head_tokens(
    forward: Callable[..., Tensor], head_index: Callable[[], Tensor | None], runs: int
) -> Callable[..., Tensor]:
    def on_head_tokens(*args: Any, **kwargs: Any) -> Tensor:
        index = head_index()
        if index is None:
            return forward(*args, **kwargs)
        inputs = (*args, *kwargs.values())
        shape = next(x.shape[:2] for x in inputs)  # [B, S], or [K, T] if packed
        selected = [(rows := head_rows(x, index)).view(runs, -1, *rows.shape[1:]) for x in inputs]
        out = forward(*selected[: len(args)], **dict(zip(kwargs, selected[len(args) :], strict=True)))
        return scattered(out.flatten(0, 1), index, shape)

    return on_head_tokens


def head_rows(x: Tensor, index: Tensor) -> Tensor:
    """The rows ``[B, ...]`` of the head's tokens of ``x`` ``[K, T, ...]``. They are at hand if a module has read or made them."""
    is_whole = x._base is not None and x.is_contiguous() and x.numel() == x._base.numel()
    whole: Any = x._base if is_whole else x
    known_index, version, rows = getattr(whole, "frostline_rows", (None, 0, x))
    if known_index is not index or version != x._version:  # the latter if something has changed them
        rows = x.flatten(0, 1).index_select(0, index)
        if x.device.type not in READ_AGAIN:
            whole.frostline_rows = (index, x._version, rows)
    return rows.reshape(-1, *x.shape[2:])


def scattered(x: Tensor, index: Tensor, shape: Sequence[int]) -> Tensor:
    """``[*shape, ...]``: zeros, with the rows of ``x`` ``[B, ...]`` at the positions ``index`` ``[B]``."""
    whole = x.new_zeros(math.prod(shape), *x.shape[1:]).index_copy_(0, index, x)
    whole.frostline_rows = (index, whole._version, x)  # type: ignore[attr-defined]
    return whole.view(*shape, *x.shape[1:])
