"""Packed batches: only attention computes padding.

Between the first layer that runs and the last, hidden states are ``[1, T, D]``: the real tokens, one after another. All parts
of a layer but attention work token by token and run as transformers wrote them.

The attention function that this module registers works on the padded grid ``[B, H, S, C]``. It scatters the heads into the
grid, calls transformers' attention with the mask that transformers built, and gathers the real tokens again. On a CPU, short
examples use :mod:`frostline.fast.attention` instead. On CUDA, torch's memory-efficient attention needs no grid, if the mask hides
only padding and later tokens. :mod:`frostline.model.packed_layout` has the shapes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
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

from frostline.fast.attention import attention
from frostline.fast.dropout import Dropout, DropoutInAttention
from frostline.fast.last_layer import head_rows, scattered
from frostline.fast.switch import enabled
from frostline.model.device import to_device
from frostline.model.packed_layout import MAX_SHORT, Layout, LengthGroup

ATTENTION = "frostline_packed"
MAX_SHORT_SCORED = 64  # tokens: up to this length, examples that are only scored use the attention for short examples


@dataclass(eq=False)
class Positions:
    """Where the tokens of the present batch are.

    Attributes:
        layout: The layout of the batch; None outside of one.
        head_position: ``[B]``, the position in each example of the token that the head reads. It is set while the last layer
            runs for these tokens only.
        head_index: Their positions among all tokens, as ``Layout.head_index`` returns them; set at the same time.
    """

    layout: Layout | None = None
    head_position: Tensor | None = None
    head_index: Tensor | None = None


class Packing(Positions):
    """What the attention of one model reads during a packed batch. For a padded batch, it has no layout.

    Attributes:
        dropout: Draws the dropout masks; None: torch does.
        calls: How often packed attention ran. A model whose layers never call it cannot be packed.
    """

    dropout: Dropout | None = None
    calls = 0


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """The attention function that transformers calls; for a padded batch ``[B, H, S, C]`` to ``[B, S, H, C]``."""
    packing: Packing | None = getattr(module, "frostline_packing", None)
    if packing is None or packing.layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
    packing.calls += 1
    return _PackedAttention(packing, packing.layout, module, query, key, value, attention_mask, kwargs)(), None


@dataclass
class _PackedAttention:
    """One call of transformers' attention for a packed batch: heads ``[K, H, T, C]`` to ``[K, T, H, C]``."""

    packing: Packing
    layout: Layout
    module: nn.Module
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    options: dict[str, Any]

    def __post_init__(self) -> None:
        own = self.options.get("is_causal")
        self.causal = bool(getattr(self.module, "is_causal", True) if own is None else own)
        self.dropout_p = self.options.get("dropout") or 0.0
        if self.layout.capacity and self.mask is None:  # results must not depend on whether other examples need a mask
            self.mask = self.layout.full_mask(causal=self.causal)
        # whether attention must hide later tokens by itself, because there is no mask that hides them
        self.hides_later = self.mask is None and self.causal
        self.has_gradient = self.query.requires_grad and torch.is_grad_enabled()

    def __call__(self) -> Tensor:
        layout = self.layout
        if self.packing.head_index is not None and not self.hides_later:
            return self.of_head_tokens()
        if layout.groups:
            return self.by_group()
        if layout.length <= (MAX_SHORT if self.has_gradient else MAX_SHORT_SCORED) and self.is_plain():
            return self.short(layout)
        if self.needs_no_grid():
            return self.by_offsets(layout)
        return layout.pack(self.in_padded_grid(*self.spread(self.query, self.key, self.value), self.mask))

    def needs_no_grid(self) -> bool:
        """Whether torch's memory-efficient attention computes the same for examples one after another."""
        same_heads = self.key.shape == self.value.shape == self.query.shape
        hides_padding_only = getattr(self.mask, "frostline_causal", None) is not None and not self.is_special()
        x = self.query
        return self.layout.indexed and same_heads and hides_padding_only and has_kernel(x.device, x.dtype, x.shape[-1])

    def by_offsets(self, layout: Layout) -> Tensor:
        """Attention of examples that lie one after another, in one operation in each direction."""
        runs, heads, tokens, size = self.query.shape
        joint = _joint(self.query, self.key, self.value).view(1, runs * tokens, 3, heads, size)
        causal, scale = bool(self.mask.frostline_causal), self.options.get("scaling")  # type: ignore[union-attr]
        settings = _Kernel(
            layout.offsets, layout.length, self.dropout_p, causal, size**-0.5 if scale is None else scale
        )
        out: Tensor = _ByOffsets.apply(joint, settings, self.has_gradient)  # type: ignore[no-untyped-call]
        return out.view(runs, tokens, heads, size)

    def spread(self, *heads: Tensor) -> list[Tensor]:
        """Heads of packed tokens, ``[K, H, T, C]`` each, in the grid, ``[B, H, S, C]``."""
        by_token = [x.transpose(1, 2) for x in heads]
        if not self.layout.indexed:
            return [self.layout.unpack(x).transpose(1, 2) for x in by_token]
        if len({x.shape[-1] for x in heads}) > 1:
            return [self.layout.spread(x).transpose(1, 2) for x in by_token]
        together = self.layout.spread(_joint(*heads))
        # Split before the transpose: gradients arrive token by token, and then none has to be copied.
        return [x.transpose(1, 2) for x in torch.split(together, [x.shape[1] for x in heads], 2)]

    def is_plain(self) -> bool:
        """Whether :mod:`frostline.fast.attention` can compute this call: plain attention of one run on a CPU."""
        same_heads = self.key.shape == self.value.shape == self.query.shape  # no grouped-query attention
        own_dropout = self.packing.dropout is not None or not self.dropout_p
        on_cpu = self.query.device.type == "cpu" and self.layout.runs == 1
        plain = not self.is_special() and not self.hides_later
        return on_cpu and same_heads and own_dropout and plain and enabled("attention")

    def is_special(self) -> bool:
        return any(self.options.get(name) is not None for name in ("position_bias", "softcap", "cache"))

    def short(self, examples: Layout | LengthGroup) -> Tensor:
        """Attention of short examples, by :mod:`frostline.fast.attention`."""
        heads, grid = (self.query, self.key, self.value), examples.head_grid(self.query.shape[1])
        scale, dropout = self.options.get("scaling"), self.packing.dropout
        return attention(*heads, self.mask, grid, scale=scale, dropout=dropout, dropout_p=self.dropout_p)

    def by_group(self) -> Tensor:
        """Attention in which each group of examples of similar length has its own grid."""
        values = []
        use_fast = self.layout.capacity and not self.dropout_p and self.is_plain()
        bias = self.options.pop("position_bias", None)
        for group in self.layout.groups:
            if use_fast and group.layout.length <= MAX_SHORT:
                values.append(self.short(group))
                continue
            for part in group.one_per_example if self.layout.capacity else [group]:
                unpacked = (part.unpack(x) for x in (self.query, self.key, self.value))
                own_mask, own_bias = part.required_mask(self.mask, causal=self.causal), part.mask_of_group(bias)
                values.append(part.pack(self.in_padded_grid(*unpacked, own_mask, position_bias=own_bias)))
        return self.layout.from_groups(values)

    def of_head_tokens(self) -> Tensor:
        """Attention of the tokens that the head reads; the output for all other tokens is zero."""
        layout, position, index, mask = self.layout, self.packing.head_position, self.packing.head_index, self.mask
        assert position is not None and index is not None
        index = index if len(index) == layout.batch_size else index[: layout.batch_size]  # [B]
        query = head_rows(self.query.transpose(1, 2), index)[:, :, None]  # [B, H, 1, C]
        if mask is not None and mask.stride(2) == 0:  # all rows are the same
            mask = mask[:, :, :1]
        elif mask is not None and mask.shape[2] > 1:
            mask = mask.expand(layout.batch_size, *mask.shape[1:])
            mask = mask[torch.arange(layout.batch_size, device=position.device), :, position][:, :, None]
        if layout.capacity:
            out = self.of_head_tokens_by_group(query, mask)
        else:
            out = self.in_padded_grid(query, *self.spread(self.key, self.value), mask)[:, 0]
        return scattered(out, index, (self.query.shape[0], self.query.shape[2]))

    def of_head_tokens_by_group(self, query: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of these tokens for a batch with a capacity: query ``[B, H, 1, C]`` to ``[B, H, C]``."""
        values, parts = [], []
        same_heads = self.key.shape[1] == query.shape[1]  # with fewer key heads, one product may span all examples
        for group in self.layout.groups:
            together = same_heads and group.layout.length <= MAX_SHORT
            parts += [group] if together else group.one_per_example
        for part in parts:
            # The last bits of a single row may depend on its address, so each row is computed twice.
            # Without a mask, torch would treat two equal rows as the first two tokens of a causal example.
            twice = query[part.example_index].repeat(1, 1, 2, 1)
            own_mask = part.mask_of_group(mask) if self.causal else part.required_mask(mask, causal=False)
            values.append(self.in_padded_grid(twice, part.unpack(self.key), part.unpack(self.value), own_mask))
        order = to_device(torch.argsort(torch.cat([part.examples for part in parts])), query.device)
        return torch.cat(values)[order, 0]

    def in_padded_grid(self, *heads_and_mask: Tensor | None, **more: Any) -> Tensor:
        """transformers' attention with our dropout masks: heads ``[B, H, S, C]`` and a mask to ``[B, S, H, C]``."""
        dropout = self.packing.dropout
        with DropoutInAttention(dropout) if dropout and self.dropout_p else nullcontext():
            out: Tensor = sdpa_attention_forward(self.module, *heads_and_mask, **self.options, **more)[0]
        return out


def _joint(*heads: Tensor) -> Tensor:
    """Heads ``[K, H, T, C]`` as one tensor ``[K, T, all H, C]``. They are not copied, if they are parts of one tensor already."""
    by_token = [x.transpose(1, 2) for x in heads]
    counts, (runs, tokens, _, size) = [x.shape[2] for x in by_token], by_token[0].shape
    whole = by_token[0]._base
    if whole is not None and whole.is_contiguous() and whole.numel() == runs * tokens * sum(counts) * size:
        whole = whole.view(runs, tokens, sum(counts), size)
        parts = zip(by_token, torch.split(whole, counts, 2), strict=True)
        if all(
            x._base is y._base and x.storage_offset() == y.storage_offset() and x.stride() == y.stride()
            for x, y in parts
        ):
            return whole
    return torch.cat(by_token, 2)


@dataclass(frozen=True)
class _Kernel:
    """Arguments of torch's memory-efficient attention."""

    offsets: Tensor
    longest: int
    dropout_p: float
    causal: bool
    scale: float

    @property
    def places(self) -> tuple[Tensor, Tensor, int, int]:
        return self.offsets, self.offsets, self.longest, self.longest


class _ByOffsets(torch.autograd.Function):
    """Attention of packed tokens: queries, keys and values ``[1, N, 3, H, C]`` to ``[1, N, H, C]``."""

    @staticmethod
    def forward(ctx: Any, joint: Tensor, kernel: _Kernel, has_gradient: bool) -> Tensor:
        options = kernel.dropout_p, int(kernel.causal), has_gradient
        found = torch.ops.aten._efficient_attention_forward(
            *joint.unbind(2), None, *kernel.places, *options, scale=kernel.scale
        )
        out: Tensor = found[0]
        ctx.kernel = kernel
        ctx.save_for_backward(joint, *found[:4])
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        joint, out, sums, seed, offset = ctx.saved_tensors
        kernel: _Kernel = ctx.kernel
        options = kernel.dropout_p, seed, offset, int(kernel.causal), False
        of_query, *_ = torch.ops.aten._efficient_attention_backward(
            *(gradients[0], *joint.unbind(2), None, out, *kernel.places, sums, *options),
            scale=kernel.scale,
            shared_storage_dqdkdv=True,  # the gradients are parts of one tensor
        )
        return of_query.as_strided(joint.shape, joint.stride()), None, None


@cache
def has_kernel(device: torch.device, dtype: torch.dtype, size: int) -> bool:
    """Whether a device has torch's memory-efficient attention for heads of this size. ``meta`` stands for one that has it."""
    if device.type != "cuda" or torch.version.hip:
        return device.type == "meta"
    x = torch.empty(1, 1, 8, size, dtype=dtype, device=device)
    parameters = torch.backends.cuda.SDPAParams(x, x, x, None, 0.0, False, False)
    return size % 8 == 0 and torch.backends.cuda.can_use_efficient_attention(parameters)


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
            return _hiding_padding(attention_mask.bool()[:, None, None].expand(-1, -1, q_length, -1), mask_function)
        given |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    mask: Tensor | None = sdpa_mask(batch_size, q_length, kv_length, *args, **given)
    return _hiding_padding(mask, mask_function) if attention_mask is not None else mask


def _hiding_padding(mask: Tensor | None, mask_function: Callable[..., Any]) -> Tensor | None:
    """The mask, and whether it hides later tokens too, if it hides nothing else besides padding."""
    if mask is not None and mask_function in (bidirectional_mask_function, causal_mask_function):
        mask.frostline_causal = mask_function is causal_mask_function  # type: ignore[attr-defined]
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
