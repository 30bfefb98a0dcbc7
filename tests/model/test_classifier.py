"""The folder of a classifier with a pooled head or a BiLSTM, as frostline, transformers and sentence-transformers read it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

import frostline
from frostline import FrostlineError
from frostline.model.classifier import format_of, is_tagger, load_classifier
from frostline.model.model_files import quiet_loading
from frostline.model.packed_layout import ALIGNED
from frostline.model.terms import LAST, MEAN, HeadKind
from small_models import edit_config, load, random_texts, write_base, write_head
from tiny import sentences


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same classifier in three folders. The files store its weights at different addresses."""
    folders = []
    for n in range(3):
        folder = write_base(tmp_path_factory.mktemp("moved"), "bert")
        weights = load_file(folder / "model.safetensors")
        save_file(weights, folder / "model.safetensors", {"format": "pt", "note": "." * 8 * n})
        folders.append(folder)
    return folders


def test_predictions_are_bitwise_identical_wherever_the_file_stores_the_weights(moved: list[Path]) -> None:
    """All weights but the table of the vocabulary are aligned."""
    for text in random_texts(6):  # a product with a single row depends on the address of the weights
        values = [frostline.predict(folder, [text]).values for folder in moved]
        for other in values[1:]:
            np.testing.assert_array_equal(values[0], other)
    for folder in moved:
        model = load_classifier(folder).model
        table = model.get_input_embeddings().weight
        assert all(p.data_ptr() % ALIGNED == 0 for p in model.parameters() if p is not table)


TEXTS = [row["text"] for row in sentences(9)]


def logits(model, tokenizer, texts, pairs=None, max_length=12):
    batch = tokenizer(texts, pairs, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    with torch.no_grad():
        return model(**batch).logits.numpy()


@pytest.fixture(scope="module")
def pretrained(tiny_bert):
    return load(tiny_bert)


@pytest.fixture
def model(pretrained, tmp_path):
    return write_head(pretrained, HeadKind(MEAN), tmp_path / "m", max_length=12)


@pytest.fixture
def folder(model, tmp_path):
    """The folder of the model."""
    return tmp_path / "m"


def opened(folder):
    """The folder as sentence-transformers opens it."""
    from sentence_transformers import SentenceTransformer  # takes seconds

    with quiet_loading():
        return SentenceTransformer(str(folder), device="cpu")


@pytest.mark.parametrize("reads", [MEAN, LAST])
def test_sentence_transformers_gives_the_logits(pretrained, tmp_path, reads):
    model = write_head(pretrained, HeadKind(reads), tmp_path / "m", max_length=12)
    found = opened(tmp_path / "m")
    assert np.abs(found.encode(TEXTS) - logits(model, pretrained.tokenizer, TEXTS)).max() < 1e-5
    pairs = [("good film", "a bad plot"), ("it was warm", "the cast")]
    expected = logits(model, pretrained.tokenizer, *map(list, zip(*pairs, strict=True)))
    assert np.abs(found.encode(pairs) - expected).max() < 1e-5
    assert found.max_seq_length == 12 and found[0].auto_model.config.id2label == {0: "no", 1: "yes"}


def test_the_last_token_of_a_decoder_is_that_before_the_padding(tmp_path):
    pretrained = load(write_base(tmp_path / "base", "llama"))
    model, texts = write_head(pretrained, HeadKind(LAST), tmp_path / "m", max_length=64), random_texts(9)
    expected = logits(model, pretrained.tokenizer, texts, max_length=64)
    assert np.abs(opened(tmp_path / "m").encode(texts) - expected).max() < 1e-5


def test_transformers_opens_the_base_model(pretrained, folder):
    with quiet_loading():
        base, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    expected = dict(pretrained.model.base_model.named_parameters())
    assert all(torch.equal(p, expected[name]) for name, p in base.named_parameters())


def test_frostline_opens_it_as_sentence_transformers_wrote_it_again(pretrained, model, folder, tmp_path):
    with quiet_loading():
        opened(folder).save(str(tmp_path / "again"))
    for one in (folder, tmp_path / "again"):
        classifier = load_classifier(one)
        assert format_of(one) == "sentence-transformers"
        found = logits(classifier.model, classifier.tokenizer, TEXTS)
        assert np.abs(found - logits(model, pretrained.tokenizer, TEXTS)).max() < 1e-5
        assert classifier.model.config.id2label == {0: "no", 1: "yes"}


def test_other_folders_are_none(tiny_bert, folder):
    assert format_of(tiny_bert) == "transformers"
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[::-1]))  # another order of the modules
    assert format_of(folder) == "transformers"
    (folder / "modules.json").write_text("[1]")
    assert format_of(folder) == "transformers"


def edited(folder, name, **values):
    file = folder / name / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


THREE = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda folder: edited(folder, "2_Dense", activation_function="torch.nn.modules.activation.Tanh"),
            r"the head in 1_Pooling and 2_Dense cannot be loaded .*Tanh",
        ),
        (lambda folder: edited(folder, "1_Pooling", pooling_mode_cls_token=True), "pooling_mode_cls_token"),
        (lambda folder: (folder / "2_Dense" / "model.safetensors").unlink(), "cannot be loaded"),
        (lambda folder: edit_config(folder, **THREE), "it has 3 labels, but 2_Dense has 2 outputs"),
    ],
)
def test_what_frostline_does_not_compute_is_refused(folder, change, message):
    change(folder)
    with pytest.raises(FrostlineError, match=message):
        load_classifier(folder)


LSTM_TEXTS = random_texts(5)


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    return load(write_base(tmp_path_factory.mktemp("base"), "roberta"))


def lstm_logits(model, tokenizer):
    with torch.no_grad():
        return model(**tokenizer(LSTM_TEXTS, padding=True, return_tensors="pt")).logits


@pytest.mark.parametrize("kind", [HeadKind(MEAN, 5, 3), HeadKind("type", 5, 2)], ids=str)
def test_frostline_opens_it(roberta, tmp_path, kind):
    model = write_head(roberta, kind, tmp_path)
    of_words = kind.reads == "type"
    assert format_of(tmp_path) == "frostline" and is_tagger(tmp_path) == of_words
    found = load_classifier(tmp_path, of_words=of_words)
    assert torch.allclose(lstm_logits(found.model, found.tokenizer), lstm_logits(model, roberta.tokenizer), atol=1e-6)


@pytest.mark.parametrize("damage", ["{}", "{", '{"width": 64, "outputs": 3}'])
def test_a_damaged_head_is_named(roberta, tmp_path, damage):
    write_head(roberta, HeadKind(MEAN, 5), tmp_path)
    (tmp_path / "head.json").write_text(damage)
    assert not is_tagger(tmp_path)
    with pytest.raises(FrostlineError, match=r"the head in head\.json and head\.safetensors cannot be loaded"):
        load_classifier(tmp_path)


def test_the_head_describes_itself_and_transformers_opens_the_base_model(roberta, tmp_path):
    write_head(roberta, HeadKind(MEAN, 5, 3), tmp_path)
    with quiet_loading():
        base = AutoModel.from_pretrained(tmp_path)
    expected = dict(roberta.model.base_model.named_parameters())
    assert all(torch.equal(p, expected[name]) for name, p in base.named_parameters() if "pooler" not in name)
    facts = json.loads((tmp_path / "head.json").read_text())
    assert facts == {"reads": "mean", "lstm_width": 5, "states": 3, "width": 64, "outputs": 2}
