"""Masks remember the window that they describe: a mask made from the window alone is equal."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    chunked_causal_mask_function,
    or_masks,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

from frostline.model.masks import ALL, EARLIER, padded_mask, window_of

KNOWN = {
    "full": lambda size: bidirectional_mask_function,
    "earlier": lambda size: causal_mask_function,
    "earlier and near": sliding_window_causal_mask_function,
    "near": sliding_window_bidirectional_mask_function,
}
OTHERS = [
    chunked_causal_mask_function(3, torch.zeros(2, dtype=torch.long)),
    or_masks(causal_mask_function, bidirectional_mask_function),
    and_masks(causal_mask_function, bidirectional_mask_function),
    and_masks(sliding_window_causal_mask_function(3), bidirectional_mask_function),
    lambda b, h, q, k: k <= q,
]


def mask_of(mask_function, lengths, size=None, device="cpu"):
    attention_mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return padded_mask(
        len(lengths),
        max(lengths),
        max(lengths),
        mask_function=mask_function,
        attention_mask=attention_mask.to(device),
        local_size=size,
        device=device,
        allow_is_causal_skip=False,
    )


@given(st.sampled_from(sorted(KNOWN)), st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 6))
def test_the_window_describes_the_mask(name, lengths, size):
    mask = mask_of(KNOWN[name](size), lengths, size if "near" in name else None)
    before, after = window_of(mask)
    length = max(lengths)
    distance = torch.arange(length) - torch.arange(length)[:, None]  # of the key, after the query
    expected = ((before == -1) | (distance >= -before)) & ((after == -1) | (distance <= after))
    real = torch.arange(length) < torch.tensor(lengths)[:, None]
    assert torch.equal(mask.expand(-1, -1, length, -1), expected & real[:, None, None])


@pytest.mark.parametrize("number", range(len(OTHERS)))
def test_other_masks_have_no_window(number):
    mask = mask_of(OTHERS[number], [5, 3], 3)
    assert window_of(mask) is None and window_of(None) is None and window_of(mask.clone()) is None


def test_devices_have_a_mask_with_its_window_without_asking_for_padding():
    """A read of the device ``meta`` fails."""
    for mask_function, window in ((bidirectional_mask_function, ALL), (causal_mask_function, EARLIER)):
        mask = mask_of(mask_function, [4, 4], device="meta")
        assert mask.shape == (2, 1, 4, 4) and window_of(mask) == window
    assert window_of(mask.clone()) is None
