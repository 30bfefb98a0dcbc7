"""Attention masks of padded batches, which remember the window that they describe.

Beside padding, the masks of most models hide what is outside a window: all tokens of an example are in it, or the earlier ones,
or the near ones. A kernel that knows the window needs no mask.

Shapes: B examples, S padded length.
"""

from collections.abc import Callable
from inspect import getclosurevars
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    sdpa_mask,
    sliding_window_bidirectional_overlay,
    sliding_window_overlay,
)

Window = tuple[int, int]  # how many tokens before and after itself a token attends to; -1: all of its example
ALL, EARLIER = (-1, -1), (-1, 0)

# From what transformers composes a mask to its window, given the size of a sliding window. Functions are known by their code.
_WINDOWS: dict[tuple[object, ...], Callable[[int], Window]] = {
    (bidirectional_mask_function.__code__,): lambda size: ALL,
    (causal_mask_function.__code__,): lambda size: EARLIER,
    (sliding_window_overlay(1).__code__, causal_mask_function.__code__): lambda size: (size - 1, 0),
    (sliding_window_bidirectional_overlay(1).__code__, bidirectional_mask_function.__code__): lambda size: (size, size),
}


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
    found: Tensor | None
    given = {**kwargs, "mask_function": mask_function, "attention_mask": attention_mask, "device": device}
    of_keys = attention_mask is not None and attention_mask.shape == (batch_size, kv_length)
    window = _window(mask_function, kwargs.get("local_size")) if of_keys else None
    if torch.device(device).type != "cpu" and attention_mask is not None:
        if window == ALL:
            return _with_window(attention_mask.bool()[:, None, None].expand(-1, -1, q_length, -1), window)
        given |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    found = sdpa_mask(batch_size, q_length, kv_length, *args, **given)
    return None if found is None else _with_window(found, window)


def window_of(mask: Tensor | None) -> Window | None:
    """The window of a mask from :func:`padded_mask`; None if it hides something else, and for all other masks."""
    return getattr(mask, "frostline_window", None)


def _with_window(mask: Tensor, window: Window | None) -> Tensor:
    mask.frostline_window = window  # type: ignore[attr-defined]
    return mask


def _window(mask_function: Callable[..., Any], size: int | None) -> Window | None:
    parts = getclosurevars(mask_function).nonlocals.get("mask_functions", (mask_function,))
    window = _WINDOWS.get(tuple(getattr(part, "__code__", None) for part in parts))
    return None if window is None else window(size or 0)
