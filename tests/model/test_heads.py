"""Heads that read the mean of all tokens or the last token, on the base models of several types."""

import pytest
import torch

from frostline import FrostlineError
from frostline.model.anatomy import find_layers
from frostline.model.heads import pooled, with_head
from frostline.model.terms import HEAD, LAST, MEAN, HeadKind
from small_models import small_batch, small_model


def test_a_mean_of_low_precision_is_summed_in_float32():
    hidden = torch.full((1, 4000, 1), 1.0, dtype=torch.bfloat16)  # beyond 256, a sum in bfloat16 stays as it is
    found = pooled(hidden, torch.ones(1, 4000, dtype=torch.long), MEAN)
    assert found.dtype == torch.bfloat16 and found.item() == 1


def test_both_classifiers_share_the_base_model_and_its_names():
    own = small_model("bert", layers=2)
    model = with_head(own, HeadKind(MEAN), find_layers(own))
    ours, theirs = (dict(one.named_parameters()) for one in (model, own))
    shared = ours.keys() & theirs.keys()
    assert ours.keys() - shared == {"head.linear.weight", "head.linear.bias"}
    assert theirs.keys() - shared == {"classifier.weight", "classifier.bias"}
    assert all(ours[name] is theirs[name] for name in shared) and model.config is own.config


def test_the_anatomy_follows_from_that_of_the_own_head():
    own = small_model("gpt2", layers=2)
    model = with_head(own, HeadKind(MEAN), find_layers(own))
    assert find_layers(own).of_head(model) == find_layers(model)
    assert {name for name, place in find_layers(model).places.items() if place == HEAD} == {
        "head.linear.weight",
        "head.linear.bias",
    }


def test_dropout_is_that_of_the_own_head():
    own = small_model("roberta", layers=2)
    own.classifier.dropout.p = 0.25
    assert with_head(own, HeadKind(MEAN), find_layers(own)).head.dropout.p == 0.25


def test_the_last_token_is_found_by_the_mask_even_if_it_has_the_id_of_padding():
    own = small_model("llama", layers=2)
    model, batch = with_head(own, HeadKind(LAST), find_layers(own)), small_batch(own, (6, 4))
    batch["input_ids"][:, 3] = own.config.pad_token_id
    whole = model(**batch).logits
    alone = model(**{name: x[1:, :4] for name, x in batch.items()}).logits
    assert torch.allclose(whole[1:], alone, atol=1e-5)


def test_a_model_without_a_base_model_is_refused():
    own = small_model("bert", layers=2)
    anatomy = find_layers(own)
    own.base_model_prefix = "missing"
    with pytest.raises(FrostlineError, match="The head of a bert cannot be replaced"):
        with_head(own, HeadKind(MEAN), anatomy)


def test_a_head_of_more_hidden_states_than_layers_is_refused():
    own = small_model("bert", layers=2)
    with_head(own, HeadKind(MEAN, 4, 2), find_layers(own))
    with pytest.raises(FrostlineError, match=r"reads 3 hidden states, but .* 2 layers: give lstm_states = 2 or less"):
        with_head(own, HeadKind(MEAN, 4, 3), find_layers(own))
