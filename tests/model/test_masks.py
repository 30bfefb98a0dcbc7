"""Masks of padded batches on devices other than CPUs."""

import pytest
import torch
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

from frostline.model.packing import padded_mask


@pytest.mark.parametrize("mask_function", [bidirectional_mask_function, causal_mask_function])
def test_devices_have_a_mask_without_being_asked_for_padding(mask_function):
    """A read of the device ``meta`` fails."""
    attention_mask = torch.ones(2, 4, dtype=torch.bool, device="meta")
    given = {"mask_function": mask_function, "attention_mask": attention_mask, "device": "meta"}
    mask = padded_mask(2, 4, 4, **given)
    assert mask.shape == (2, 1, 4, 4) and (mask.stride(2) == 0) == (mask_function is bidirectional_mask_function)


@pytest.mark.parametrize("lengths", [[4, 4], [4, 1]])
def test_a_cpu_has_the_mask_of_transformers(lengths):
    attention_mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    mask, expected = (make(2, 4, 4, attention_mask=attention_mask) for make in (padded_mask, sdpa_mask))
    assert (mask is None and expected is None) or torch.equal(mask, expected)
