"""Packed batches: only attention sees padding.

Between the first layer that runs and the last, hidden states are ``[1, T, D]``. Attention works on the grid ``[B, H, S, C]``:
the attention function registered here scatters the heads into it, calls the attention of transformers with the mask that
transformers built, and gathers the real tokens again. On a CPU, short examples use :mod:`frostline.fast.attention`. Everything
else in a layer works token by token, as transformers wrote it. :mod:`frostline.model.packed_layout` has the shapes.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from frostline.fast.attention import attend, attended
from frostline.fast.dropout import Dropout
from frostline.fast.last_layer import placed
from frostline.fast.switch import enabled
from frostline.model.packed_layout import LONG, Layout

ATTENTION = "frostline_packed"
SCORED = 65  # below this length, examples that are only scored use the attention for short examples


class Packing:
    """What the attention of one model knows about the current batch; ``layout`` is None for a padded batch."""

    layout: Layout | None = None
    at: Tensor | None = None  # [B], while the last layer runs for one token per example: its position in the example
    read: Tensor | None = None  # the same among the K * T (Layout.rows)
    dropout: Dropout | None = None  # None: torch's own dropout
    calls = 0  # how often packed attention ran; a layer that never calls it cannot be packed


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """transformers' attention function: ``[K, H, T, C]`` heads in, ``[K, T, H, C]`` out (``[B, H, S, C]`` when padded)."""
    packing: Packing | None = getattr(module, "frostline_packing", None)
    if packing is None or packing.layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
    layout = packing.layout
    packing.calls += 1
    if layout.room and attention_mask is None:  # results must not depend on whether other examples need a mask
        attention_mask = layout.whole(causal=_is_causal(module, None, **kwargs))
    if packing.read is not None and not _is_causal(module, attention_mask, **kwargs):
        return _of_read(packing, module, query, key, value, attention_mask, **kwargs), None
    short = layout.length < (LONG if _learns(query) else SCORED)
    if layout.groups:
        return _by_group(packing, module, query, key, value, attention_mask, **kwargs), None
    if short and _is_plain(packing, module, query, key, value, attention_mask, **kwargs):
        return _short(packing, query, key, value, attention_mask, **kwargs), None
    query, key, value = (layout.unpack(x.transpose(1, 2)).transpose(1, 2) for x in (query, key, value))
    return layout.pack(_attend(packing, module, query, key, value, attention_mask, **kwargs)), None


def _is_causal(module: nn.Module, mask: Tensor | None, **kwargs: Any) -> bool:
    """Whether later tokens are hidden although no mask says so."""
    causal = kwargs.get("is_causal")
    return mask is None and bool(getattr(module, "is_causal", True) if causal is None else causal)


def _learns(x: Tensor) -> bool:
    """Whether this call needs gradients."""
    return x.requires_grad and torch.is_grad_enabled()


def _is_plain(
    packing: Packing, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> bool:
    """Whether this is plain attention of one run on a CPU."""
    layout = packing.layout
    assert layout is not None
    alike = key.shape == value.shape == query.shape  # no fewer heads of keys
    ours = packing.dropout is not None or not kwargs.get("dropout")
    special = any(kwargs.get(name) is not None for name in ("position_bias", "softcap", "cache"))
    unmasked = _is_causal(module, mask, **kwargs)
    possible = query.device.type == "cpu" and layout.runs == 1 and alike and ours and not special and not unmasked
    return possible and enabled("attention")


def _short(packing: Packing, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any) -> Tensor:
    """Attention of short examples: see :mod:`frostline.fast.attention`."""
    assert packing.layout is not None
    places, scale, dropped = (
        packing.layout.places_of(query.shape[1]),
        kwargs.get("scaling"),
        kwargs.get("dropout") or 0.0,
    )
    if not (dropped or _learns(query)):
        return attended(query, key, value, mask, places, scale=scale)
    return attend(query, key, value, mask, places, scale=scale, dropout=packing.dropout, dropped=dropped)


def _by_group(
    packing: Packing, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> Tensor:
    """Attention in which examples of similar length share a grid."""
    layout, parts, causal = packing.layout, [], _is_causal(module, None, **kwargs)
    assert layout is not None
    ours = layout.room and not kwargs.get("dropout") and _is_plain(packing, module, query, key, value, mask, **kwargs)
    bias = kwargs.pop("position_bias", None)
    for group in layout.groups:
        if ours and group.layout.length < LONG:
            places = group.places_of(query.shape[1])
            parts.append(attended(query, key, value, mask, places, scale=kwargs.get("scaling")))
            continue
        for one in group.alone if layout.room else [group]:
            grid = (one.unpack(x) for x in (query, key, value))
            hidden = one.needed(mask, causal=causal)
            out = _attend(packing, module, *grid, hidden, **kwargs, position_bias=one.part(bias))
            parts.append(one.pack(out))
    return layout.from_groups(parts)


def _of_read(
    packing: Packing, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> Tensor:
    """Attention of the tokens that the head reads; zeros for all others."""
    layout, at, read = packing.layout, packing.at, packing.read
    assert layout is not None and at is not None and read is not None
    places, read = query.shape[0] * query.shape[2], read[: layout.batch]  # K T; [B]
    one = query.transpose(1, 2).flatten(0, 1).index_select(0, read)[:, :, None]  # [B, H, 1, C]
    if mask is not None and mask.shape[2] > 1:
        mask = mask.expand(layout.batch, *mask.shape[1:])
        mask = mask[torch.arange(layout.batch, device=at.device), :, at][:, :, None]
    if layout.room:
        fused = key.shape[1] == one.shape[1]  # with fewer key heads, products may span all examples
        groups = [
            some
            for group in layout.groups
            for some in ([group] if fused and group.layout.length < LONG else group.alone)
        ]
        parts = []
        for some in groups:
            twice = one[some.texts].repeat(1, 1, 2, 1)  # the last bits of a single row may depend on its address
            # without a mask, torch would treat two equal rows as the first two of a causal example
            hidden = some.part(mask) if _is_causal(module, None, **kwargs) else some.needed(mask, causal=False)
            parts.append(_attend(packing, module, twice, some.unpack(key), some.unpack(value), hidden, **kwargs))
        order = torch.argsort(torch.cat([some.texts for some in groups]))
        out = torch.cat(parts)[order, 0]  # [B, H, C]
    else:
        key, value = (layout.unpack(x.transpose(1, 2)).transpose(1, 2) for x in (key, value))
        out = _attend(packing, module, one, key, value, mask, **kwargs)[:, 0]
    return placed(out, read, places).view(query.shape[0], query.shape[2], *out.shape[1:])


def _attend(packing: Packing, module: nn.Module, *grid: Tensor | None, **kwargs: Any) -> Tensor:
    """transformers' attention with frostline's dropout masks; heads and mask in the padded grid, output ``[B, S, H, C]``."""
    with packing.dropout.in_attention() if packing.dropout and kwargs.get("dropout") else nullcontext():
        out: Tensor = sdpa_attention_forward(module, *grid, **kwargs)[0]
    return out


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def is_packable(model: PreTrainedModel) -> bool:
    """Whether the type of ``model`` uses transformers' attention interface with its usual function."""
    possible = model._can_set_attn_implementation() and model.config._attn_implementation == "sdpa"
    return bool(possible) and enabled("packing")


@contextmanager
def packable(model: PreTrainedModel) -> Iterator[Packing | None]:
    """Let ``model`` run packed batches inside the context; yields None if its type does not use the interface."""
    if not is_packable(model):
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
