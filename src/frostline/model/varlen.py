"""Attention of a packed batch without padding, by torch's kernel for sequences of different lengths.

It computes what attention in the padded grid computes, and reads queries, keys and values where they are. It has no
dropout and no bias, and no masks but windows (:mod:`frostline.model.masks`). Everything else takes the padded grid.

Shapes: K stacked runs, T tokens of the packed batch, H attention heads, C head size.
"""

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from frostline.model.masks import window_of
from frostline.model.packed_layout import Layout

DTYPES = (torch.bfloat16, torch.float16)
LARGEST_HEAD, HEAD_MULTIPLE = 256, 8
OLDEST_GPU = (8, 0)  # compute capability: Ampere
ARGUMENTS = {"scale", "window_size"}  # that some versions of torch do not have
# What a model may ask of attention, and the kernel does not do.
SPECIAL = ("position_bias", "softcap", "s_aux", "cache")

Kernel = Callable[..., Tensor]


@cache
def torch_kernel() -> Kernel | None:
    """torch's attention for variable lengths; None if this version of torch lacks it or one of its :data:`ARGUMENTS`."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    kernel: Kernel = varlen_attn  # type: ignore[assignment]
    return kernel if signature(kernel).parameters.keys() >= ARGUMENTS else None


@cache
def has_kernel(device: torch.device) -> bool:
    """Whether torch's kernel runs on this device: a GPU of NVIDIA from Ampere on."""
    if device.type != "cuda" or torch.version.cuda is None or torch_kernel() is None:
        return False
    return torch.backends.cuda.is_flash_attention_available() and torch.cuda.get_device_capability(device) >= OLDEST_GPU


def shares_key_heads() -> bool:
    """Whether a key head of torch's kernel may serve several query heads. It may in torch 2.13, and not in 2.11."""
    kernel = torch_kernel()
    return kernel is not None and "enable_gqa" in signature(kernel).parameters


def is_possible(layout: Layout, mask: Tensor | None, query: Tensor, key: Tensor, value: Tensor, **kwargs: Any) -> bool:
    """Whether torch's kernel can compute this call of transformers' attention, with heads ``[K, H, T, C]``."""
    heads, tokens, size = query.shape[1:]
    return (
        has_kernel(query.device)
        and _dtype(query) in DTYPES
        and window_of(mask) is not None
        and not kwargs.get("dropout")
        and all(kwargs.get(name) is None for name in SPECIAL)
        and key.shape == value.shape
        and key.shape[2:] == (tokens, size)
        and tokens == layout.tokens
        and (heads == key.shape[1] or (heads % key.shape[1] == 0 and shares_key_heads()))
        and size % HEAD_MULTIPLE == 0
        and size <= LARGEST_HEAD
    )


def attention(
    layout: Layout, mask: Tensor | None, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None
) -> Tensor:
    """Attention of each example's tokens to its own tokens: heads ``[K, H, T, C]`` to ``[K, T, H, C]``.

    Tokens that fill up the batch attend to each other only.
    """
    kernel, window, sequences = torch_kernel(), window_of(mask), layout.sequences
    assert kernel is not None
    dtype = _dtype(query)  # torch has no autocast for this operation
    out = kernel(
        *(x.transpose(1, 2).flatten(0, 1).to(dtype) for x in (query, key, value)),
        sequences.starts,
        sequences.starts,
        sequences.longest,
        sequences.longest,
        scale=scale,
        window_size=window,
        **({"enable_gqa": True} if key.shape[1] < query.shape[1] else {}),
    )
    return out.view(layout.runs, layout.tokens, *out.shape[1:])


def _dtype(x: Tensor) -> torch.dtype:
    """The data type in which attention is computed, as autocast would choose it."""
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype
