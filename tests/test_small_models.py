"""Tests of the small models that other tests use: each can be built, predicts, trains, and is reproducible."""

import pytest
import torch
import torch.nn.functional as F
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from small_models import EOS, FIRST_WORD, PAD, REASONS, SPECIAL, TAG_TYPES, TYPES, small_batch, small_model

LENGTHS = (40, 31, 7, 22)
every_type = pytest.mark.parametrize("model_type", [name for name in TYPES if name not in REASONS])


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_every_type_has_a_model_or_a_reason_why_not():
    assert set(TYPES) == set(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES)
    assert set(REASONS) <= set(TYPES)
    assert set(SPECIAL) <= {*TYPES, *TAG_TYPES}
    assert len(REASONS) <= 1


@every_type
def test_a_model_predicts_trains_and_is_reproducible(model_type):
    state = torch.get_rng_state()
    model, again, other = small_model(model_type), small_model(model_type), small_model(model_type, seed=1)
    assert torch.equal(torch.get_rng_state(), state) and not model.training
    for one, same, different in zip(model.parameters(), again.parameters(), other.parameters(), strict=True):
        assert one.dtype == torch.float32 and torch.equal(one, same) and not torch.equal(one, different)
        assert one.numel() == 1 or one.std() > 0
    with torch.no_grad():
        logits = model(**small_batch(model, LENGTHS)).logits
    assert logits.shape == (4, 3) and logits.isfinite().all()
    assert torch.pdist(logits).min() > 0.01  # the logits of all texts differ
    if model_type == "reformer":  # its reversible layers cannot run backward in evaluation mode
        model.train()
    F.cross_entropy(model(**small_batch(model, LENGTHS)).logits, torch.tensor([0, 1, 2, 0])).backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert sum(bool(gradient.any()) for gradient in gradients) > 8
    assert all(gradient.isfinite().all() for gradient in gradients)


@every_type
def test_texts_differ_in_length_and_are_padded_on_the_right(model_type):
    model = small_model(model_type)
    batch = small_batch(model, LENGTHS)
    assert not torch.equal(batch["input_ids"], small_batch(model, LENGTHS, seed=1)["input_ids"])
    assert model.config.get_text_config().pad_token_id == PAD
    for ids, mask, length in zip(batch["input_ids"], batch["attention_mask"], LENGTHS, strict=True):
        assert mask.tolist() == [1] * length + [0] * (40 - length)
        assert (ids[length:] == PAD).all()
        words = ids[:length]
        if model.config.is_encoder_decoder:
            assert words[-1] == EOS
            words = words[:-1]
        assert (words >= FIRST_WORD).all()


@pytest.mark.parametrize("layers", [2, 3, 6])
@pytest.mark.parametrize("model_type", ["bert", "gpt_neo", "qwen2_moe", "jamba", "gemma3", "t5", "perceiver"])
def test_a_model_has_the_requested_number_of_layers(model_type, layers):
    model = small_model(model_type, layers=layers)
    blocks = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    assert any(len(block) == layers for block in blocks)
    with torch.no_grad():
        assert model(**small_batch(model)).logits.isfinite().all()
