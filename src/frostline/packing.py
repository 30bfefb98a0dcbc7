"""Batches without padding: only attention sees the padded grid.

Shapes: B batch, S padded length, T real tokens of the batch, D width, H heads, C head size.

Between the first layer that runs and the last, hidden states are ``[1, T, D]``. The attention function
registered here scatters heads into the grid ``[B, H, S, C]``, calls the attention that transformers would
have called, with the mask that transformers itself built, and gathers the real tokens again. Everything
else in a layer works token by token and is transformers' own code.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from frostline.dropout import Dropout
from frostline.narrow import placed

ATTENTION = "frostline_packed"


@dataclass(frozen=True)
class Layout:
    """Where the real tokens of a right-padded batch stand in its grid."""

    lengths: Tensor  # [B], each at least 1
    length: int  # S

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @cached_property
    def tokens(self) -> int:  # T
        return len(self.index)

    @cached_property
    def mask(self) -> Tensor:  # [B, S], 1 where a token is real
        return (torch.arange(self.length, device=self.lengths.device) < self.lengths[:, None]).long()

    @cached_property
    def index(self) -> Tensor:  # [T], positions of the real tokens in the flattened grid
        return self.mask.flatten().nonzero()[:, 0]

    def rows(self, at: Tensor, *, packed: bool) -> Tensor:  # [B]: one token of each text, among all T or in the grid
        starts = (
            self.lengths.cumsum(0) - self.lengths
            if packed
            else torch.arange(self.batch, device=at.device) * self.length
        )
        return starts + at

    def pack(self, x: Tensor) -> Tensor:  # [B or 1, S, ...] -> [1, T, ...]
        grid = x.expand(self.batch, *x.shape[1:]).reshape(self.batch * self.length, *x.shape[2:])
        return grid.index_select(0, self.index)[None]

    def unpack(self, x: Tensor) -> Tensor:  # [1, T, ...] -> [B, S, ...], zeros where there is no token
        grid = x.new_zeros(self.batch * self.length, *x.shape[2:])
        return grid.index_copy(0, self.index, x[0]).view(self.batch, self.length, *x.shape[2:])


class Packing:
    """What the attention of one model is told about the batch under way; ``layout`` is None for a padded batch."""

    layout: Layout | None = None
    at: Tensor | None = None  # [B], while the last layer runs for one token a text only: where in the text it stands
    read: Tensor | None = None  # [B], the same among all T
    dropout: Dropout | None = None  # None: torch's own
    calls = 0  # how often packed attention ran: a layer that never asks for it cannot be packed


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """transformers' attention function: ``[1, H, T, C]`` heads in, ``[1, T, H, C]`` out (``[B, H, S, C]`` when padded)."""
    packing: Packing | None = getattr(module, "frostline_packing", None)
    if packing is None or packing.layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
    layout = packing.layout
    packing.calls += 1
    if packing.read is not None and not (attention_mask is None and getattr(module, "is_causal", False)):
        return _of_read(packing, module, query, key, value, attention_mask, **kwargs), None
    query, key, value = (layout.unpack(x.transpose(1, 2)).transpose(1, 2) for x in (query, key, value))
    return layout.pack(_attend(packing, module, query, key, value, attention_mask, **kwargs)), None


def _of_read(
    packing: Packing, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> Tensor:
    """What the tokens that are read attend to; zeros for the others."""
    layout, at, read = packing.layout, packing.at, packing.read
    assert layout is not None and at is not None and read is not None
    one = query.index_select(2, read).permute(2, 1, 0, 3)  # [B, H, 1, C]
    key, value = (layout.unpack(x.transpose(1, 2)).transpose(1, 2) for x in (key, value))
    if mask is not None and mask.shape[2] > 1:
        mask = mask.expand(layout.batch, *mask.shape[1:])
        mask = mask[torch.arange(layout.batch, device=at.device), :, at][:, :, None]
    out = _attend(packing, module, one, key, value, mask, **kwargs).transpose(0, 1)  # [1, B, H, C]
    return placed(out[0], read, layout.tokens)[None]


def _attend(packing: Packing, module: nn.Module, *grid: Tensor | None, **kwargs: Any) -> Tensor:
    """transformers' attention with our masks of dropout; heads and mask in the padded grid, out ``[B, S, H, C]``."""
    with packing.dropout.in_attention() if packing.dropout and kwargs.get("dropout") else nullcontext():
        out: Tensor = sdpa_attention_forward(module, *grid, **kwargs)[0]
    return out


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


@contextmanager
def packable(model: PreTrainedModel) -> Iterator[Packing | None]:
    """Let ``model`` run packed batches while the context is open; None where its type does not use the interface."""
    if not (model._can_set_attn_implementation() and model.config._attn_implementation == "sdpa"):
        yield None
        return
    packing = Packing()
    model.set_attn_implementation(ATTENTION)
    for module in model.modules():
        module.frostline_packing = packing
    try:
        yield packing
    finally:
        for module in model.modules():
            del module.frostline_packing
        model.set_attn_implementation("sdpa")
