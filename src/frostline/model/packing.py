"""Packed batches: only attention computes padding.

Between the first layer that runs and the last, hidden states are ``[1, T, D]``: the real tokens, one after another. All parts
of a layer but attention work token by token and run as transformers wrote them.

The attention function that this module registers works on the padded grid ``[B, H, S, C]``. It scatters the heads into the
grid, calls transformers' attention with the mask that transformers built, and gathers the real tokens again. On a CPU, short
examples use :mod:`frostline.fast.attention` instead. :mod:`frostline.model.packed_layout` has the shapes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (
    AttentionMaskInterface,
    bidirectional_mask_function,
    causal_mask_function,
    sdpa_mask,
)

from frostline.fast.attention import attention, attention_without_gradient
from frostline.fast.dropout import Dropout
from frostline.fast.last_layer import scattered
from frostline.fast.switch import enabled
from frostline.model.device import to_device
from frostline.model.packed_layout import MAX_SHORT, Layout

ATTENTION = "frostline_packed"
MAX_SHORT_SCORED = 64  # tokens: up to this length, examples that are only scored use the attention for short examples


class Packing:
    """The state that the attention of one model reads during a packed batch.

    Attributes:
        layout: The layout of the batch; None for a padded batch.
        head_position: ``[B]``, the position in each example of the token that the head reads. It is set while the last layer
            runs for these tokens only.
        head_index: Their positions in the packed batch, as ``Layout.head_index`` returns them; set at the same time.
        dropout: Draws the dropout masks; None: torch does.
        calls: How often packed attention ran. A model whose layers never call it cannot be packed.
    """

    layout: Layout | None = None
    head_position: Tensor | None = None
    head_index: Tensor | None = None
    dropout: Dropout | None = None
    calls = 0


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """The attention function that transformers calls.

    It takes heads ``[K, H, T, C]`` and returns ``[K, T, H, C]``. For a padded batch it takes ``[B, H, S, C]`` and returns
    ``[B, S, H, C]``.
    """
    packing: Packing | None = getattr(module, "frostline_packing", None)
    if packing is None or packing.layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
    layout = packing.layout
    packing.calls += 1
    if layout.capacity and attention_mask is None:  # results must not depend on whether other examples need a mask
        attention_mask = layout.full_mask(causal=_is_causal(module, None, **kwargs))
    if packing.head_index is not None and not _is_causal(module, attention_mask, **kwargs):
        return _of_head_tokens(packing, module, query, key, value, attention_mask, **kwargs), None
    if layout.groups:
        return _by_group(packing, module, query, key, value, attention_mask, **kwargs), None
    is_short = layout.length <= (MAX_SHORT if _needs_gradient(query) else MAX_SHORT_SCORED)
    if is_short and _is_plain(packing, module, query, key, value, attention_mask, **kwargs):
        return _short(packing, query, key, value, attention_mask, **kwargs), None
    query, key, value = _spread(layout, query, key, value)
    out = _in_padded_grid(packing, module, query, key, value, attention_mask, **kwargs)
    return layout.gather(out) if layout.indexed else layout.pack(out), None


def _spread(layout: Layout, *heads: Tensor) -> list[Tensor]:
    """Heads of packed tokens, ``[K, H, T, C]`` each, in the grid, ``[B, H, S, C]``."""
    by_token = [x.transpose(1, 2) for x in heads]
    if not layout.indexed:
        return [layout.unpack(x).transpose(1, 2) for x in by_token]
    if len({x.shape[-1] for x in heads}) > 1:
        return [layout.spread(x).transpose(1, 2) for x in by_token]
    together = layout.spread(torch.cat(by_token, 2))
    # Split before the transpose: gradients arrive token by token, and then none has to be copied.
    return [x.transpose(1, 2) for x in torch.split(together, [x.shape[1] for x in heads], 2)]


def _is_causal(module: nn.Module, mask: Tensor | None, **kwargs: Any) -> bool:
    """Whether attention must hide later tokens by itself, because there is no mask that hides them."""
    causal = kwargs.get("is_causal")
    return mask is None and bool(getattr(module, "is_causal", True) if causal is None else causal)


def _needs_gradient(x: Tensor) -> bool:
    return x.requires_grad and torch.is_grad_enabled()


def _is_plain(
    packing: Packing, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> bool:
    """Whether :mod:`frostline.fast.attention` can compute this call: plain attention of one run on a CPU."""
    layout = packing.layout
    assert layout is not None
    same_heads = key.shape == value.shape == query.shape  # no grouped-query attention
    own_dropout = packing.dropout is not None or not kwargs.get("dropout")
    special = any(kwargs.get(name) is not None for name in ("position_bias", "softcap", "cache"))
    on_cpu = query.device.type == "cpu" and layout.runs == 1
    causal = _is_causal(module, mask, **kwargs)
    return on_cpu and same_heads and own_dropout and not special and not causal and enabled("attention")


def _short(packing: Packing, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any) -> Tensor:
    """Attention of short examples, by :mod:`frostline.fast.attention`."""
    assert packing.layout is not None
    grid, scale, dropout_p = (
        packing.layout.head_grid(query.shape[1]),
        kwargs.get("scaling"),
        kwargs.get("dropout") or 0.0,
    )
    if not (dropout_p or _needs_gradient(query)):
        return attention_without_gradient(query, key, value, mask, grid, scale=scale)
    return attention(query, key, value, mask, grid, scale=scale, dropout=packing.dropout, dropout_p=dropout_p)


def _by_group(
    packing: Packing, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> Tensor:
    """Attention in which each group of examples of similar length has its own grid."""
    layout, values, causal = packing.layout, [], _is_causal(module, None, **kwargs)
    assert layout is not None
    scored = layout.capacity and not kwargs.get("dropout")
    use_fast = scored and _is_plain(packing, module, query, key, value, mask, **kwargs)
    bias = kwargs.pop("position_bias", None)
    for group in layout.groups:
        if use_fast and group.layout.length <= MAX_SHORT:
            grid = group.head_grid(query.shape[1])
            values.append(attention_without_gradient(query, key, value, mask, grid, scale=kwargs.get("scaling")))
            continue
        for part in group.one_per_example if layout.capacity else [group]:
            heads = (part.unpack(x) for x in (query, key, value))
            own_mask, own_bias = part.required_mask(mask, causal=causal), part.mask_of_group(bias)
            out = _in_padded_grid(packing, module, *heads, own_mask, **kwargs, position_bias=own_bias)
            values.append(part.pack(out))
    return layout.from_groups(values)


def _of_head_tokens(
    packing: Packing, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> Tensor:
    """Attention of the tokens that the head reads; the output for all other tokens is zero."""
    layout, position, index = packing.layout, packing.head_position, packing.head_index
    assert layout is not None and position is not None and index is not None
    index = index[: layout.batch_size]  # [B]
    head_query = query.transpose(1, 2).flatten(0, 1).index_select(0, index)[:, :, None]  # [B, H, 1, C]
    if mask is not None and mask.stride(2) == 0:  # all rows are the same
        mask = mask[:, :, :1]
    elif mask is not None and mask.shape[2] > 1:
        mask = mask.expand(layout.batch_size, *mask.shape[1:])
        mask = mask[torch.arange(layout.batch_size, device=position.device), :, position][:, :, None]
    if layout.capacity:
        out = _of_head_tokens_by_group(packing, module, head_query, key, value, mask, **kwargs)
    else:
        key, value = _spread(layout, key, value)
        out = _in_padded_grid(packing, module, head_query, key, value, mask, **kwargs)[:, 0]
    runs, tokens = query.shape[0], query.shape[2]
    return scattered(out, index, runs * tokens).view(runs, tokens, *out.shape[1:])


def _of_head_tokens_by_group(
    packing: Packing, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> Tensor:
    """Attention of the tokens that the head reads, for a batch with a capacity: query ``[B, H, 1, C]`` to ``[B, H, C]``."""
    layout, values, parts = packing.layout, [], []
    assert layout is not None
    same_heads = key.shape[1] == query.shape[1]  # with fewer key heads, one product may span all examples
    for group in layout.groups:
        together = same_heads and group.layout.length <= MAX_SHORT
        parts += [group] if together else group.one_per_example
    for part in parts:
        # The last bits of a single row may depend on its address, so each row is computed twice.
        # Without a mask, torch would treat two equal rows as the first two tokens of a causal example.
        twice = query[part.example_index].repeat(1, 1, 2, 1)
        causal = _is_causal(module, None, **kwargs)
        own_mask = part.mask_of_group(mask) if causal else part.required_mask(mask, causal=False)
        values.append(_in_padded_grid(packing, module, twice, part.unpack(key), part.unpack(value), own_mask, **kwargs))
    order = to_device(torch.argsort(torch.cat([part.examples for part in parts])), query.device)
    return torch.cat(values)[order, 0]


def _in_padded_grid(packing: Packing, module: nn.Module, *heads_and_mask: Tensor | None, **kwargs: Any) -> Tensor:
    """transformers' attention with frostline's dropout masks: heads ``[B, H, S, C]`` and a mask to ``[B, S, H, C]``."""
    with packing.dropout.in_attention() if packing.dropout and kwargs.get("dropout") else nullcontext():
        out: Tensor = sdpa_attention_forward(module, *heads_and_mask, **kwargs)[0]
    return out


def padded_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *args: Any,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> Tensor | None:
    """The mask that transformers builds for ``sdpa``, ``[B, 1, S, S]``.

    transformers first asks the device whether there is any padding, because attention needs no mask without it. On devices other
    than CPUs there is always a mask.
    """
    given = {**kwargs, "mask_function": mask_function, "attention_mask": attention_mask, "device": device}
    if torch.device(device).type != "cpu" and attention_mask is not None:
        if mask_function is bidirectional_mask_function and attention_mask.shape == (batch_size, kv_length):
            return attention_mask.bool()[:, None, None].expand(-1, -1, q_length, -1)
        given |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    mask: Tensor | None = sdpa_mask(batch_size, q_length, kv_length, *args, **given)
    return mask


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, padded_mask)


def is_packable(model: PreTrainedModel) -> bool:
    """Whether ``model`` uses transformers' attention interface with its function ``sdpa``."""
    possible = model._can_set_attn_implementation() and model.config._attn_implementation == "sdpa"
    return bool(possible) and enabled("packing")


@contextmanager
def packable(model: PreTrainedModel) -> Iterator[Packing | None]:
    """Let ``model`` run packed batches while the context is open; yields None if the model cannot (:func:`is_packable`)."""
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
