"""The folder of a classifier with a BiLSTM, as frostline and transformers read it."""

import json

import pytest
import torch
from transformers import AutoModel

from frostline import FrostlineError
from frostline.model.classifier import format_of, is_tagger, load_classifier, write_classifier
from frostline.model.model_files import quiet_loading
from frostline.model.terms import MEAN, HeadKind
from small_models import load, random_texts, write_base

TEXTS = random_texts(5)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    return load(write_base(tmp_path_factory.mktemp("base"), "roberta"))


def written(pretrained, folder, kind):
    """The folder of the classifier, and its model."""
    model = pretrained.with_head(kind).model
    with quiet_loading():
        write_classifier(folder, model, 32)
    pretrained.tokenizer.save_pretrained(folder)
    return model


def logits(model, tokenizer):
    with torch.no_grad():
        return model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits


@pytest.mark.parametrize("kind", [HeadKind(MEAN, 5), HeadKind(MEAN, 5, 3), HeadKind("type", 5, 2)], ids=str)
def test_frostline_opens_it(pretrained, tmp_path, kind):
    model = written(pretrained, tmp_path, kind)
    of_words = kind.reads == "type"
    assert format_of(tmp_path) == "frostline" and is_tagger(tmp_path) == of_words
    found = load_classifier(tmp_path, of_words=of_words)
    assert torch.allclose(logits(found.model, found.tokenizer), logits(model, pretrained.tokenizer), atol=1e-6)


def test_transformers_opens_the_base_model(pretrained, tmp_path):
    written(pretrained, tmp_path, HeadKind(MEAN, 5))
    with quiet_loading():
        base = AutoModel.from_pretrained(tmp_path)
    expected = dict(pretrained.model.base_model.named_parameters())
    assert all(torch.equal(p, expected[name]) for name, p in base.named_parameters() if "pooler" not in name)


@pytest.mark.parametrize("damage", ["{}", "{", '{"width": 64, "outputs": 3}'])
def test_a_damaged_head_is_named(pretrained, tmp_path, damage):
    written(pretrained, tmp_path, HeadKind(MEAN, 5))
    (tmp_path / "head.json").write_text(damage)
    assert not is_tagger(tmp_path)
    with pytest.raises(FrostlineError, match=r"the head in head\.json and head\.safetensors cannot be loaded"):
        load_classifier(tmp_path)


def test_the_head_describes_itself(pretrained, tmp_path):
    written(pretrained, tmp_path, HeadKind(MEAN, 5, 3))
    facts = json.loads((tmp_path / "head.json").read_text())
    assert facts == {"reads": "mean", "lstm_width": 5, "states": 3, "width": 64, "outputs": 2}
