"""Tests of the small models that other tests use: each can be built, predicts, trains, and is reproducible."""

import pytest
import torch
import torch.nn.functional as F
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from small_models import EOS, FIRST_WORD, PAD, REASONS, SPECIAL, TAG_TYPES, TYPES, small_batch, small_model

LENGTHS = (40, 31, 7, 22)
SAMPLE = ("bart", "bert", "gemma3", "gpt2", "jamba", "llama", "perceiver", "reformer", "t5")
EACH = [
    name if name in SAMPLE else pytest.param(name, marks=pytest.mark.every) for name in TYPES if name not in REASONS
]


def test_every_type_has_a_model_or_a_reason_why_not() -> None:
    assert set(TYPES) == set(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES) and set(SAMPLE) <= set(TYPES)
    assert set(REASONS) <= set(TYPES) and set(SPECIAL) <= {*TYPES, *TAG_TYPES} and len(REASONS) <= 1


@pytest.mark.parametrize("model_type", EACH)
def test_a_model_predicts_trains_and_is_reproducible(model_type: str) -> None:
    state = torch.get_rng_state()
    model, again, other = small_model(model_type), small_model(model_type), small_model(model_type, seed=1)
    assert torch.equal(torch.get_rng_state(), state) and not model.training
    for one, same, different in zip(model.parameters(), again.parameters(), other.parameters(), strict=True):
        assert one.dtype == torch.float32 and torch.equal(one, same) and not torch.equal(one, different)
        assert one.numel() == 1 or one.std() > 0
    batch = small_batch(model, LENGTHS)
    with torch.no_grad():
        logits = model(**batch).logits
    assert logits.shape == (4, 3) and logits.isfinite().all()
    assert torch.pdist(logits).min() > 0.01  # the logits of all texts differ
    if model_type == "reformer":  # its reversible layers cannot run backward in evaluation mode
        model.train()
    F.cross_entropy(model(**batch).logits, torch.tensor([0, 1, 2, 0])).backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert sum(bool(gradient.any()) for gradient in gradients) > 8
    assert all(gradient.isfinite().all() for gradient in gradients)
    ends = [EOS] * bool(model.config.is_encoder_decoder)
    for ids, mask, length in zip(batch["input_ids"], batch["attention_mask"], LENGTHS, strict=True):
        assert mask.tolist() == [1] * length + [0] * (40 - length) and (ids[length:] == PAD).all()
        assert ids[length - len(ends) : length].tolist() == ends and (ids[: length - len(ends)] >= FIRST_WORD).all()
