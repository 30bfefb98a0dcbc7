"""The vocabulary of a model: its tables, and tokens that it does not know."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.model.classifier import Classifier
from frostline.model.tokens import encode, suited, vocabulary_size, vocabulary_tables


@pytest.fixture(scope="module")
def model(tiny_bert):
    return AutoModelForSequenceClassification.from_pretrained(tiny_bert)


@pytest.fixture
def tokenizer(tiny_bert):
    return AutoTokenizer.from_pretrained(tiny_bert)


def test_size_and_tables(model, tokenizer):
    assert vocabulary_size(model) == len(tokenizer)
    assert [*vocabulary_tables(model)] == ["bert.embeddings.word_embeddings"]


def test_every_token_of_the_own_tokenizer_is_known(model, tokenizer):
    last = tokenizer.convert_ids_to_tokens(len(tokenizer) - 1)
    tokens = encode(tokenizer, [last], None, 8)
    assert len(tokenizer) - 1 in tokens.inputs["input_ids"]
    assert suited(tokens, model, tokenizer).keys.tolist() == tokens.keys.tolist()
    suited(encode(tokenizer, [], None, 8), model, tokenizer)


def test_an_added_token_that_the_model_does_not_know_is_refused(model, tokenizer):
    size = len(tokenizer)
    tokenizer.add_tokens(["zzq"])
    suited(encode(tokenizer, ["good film"], None, 8), model, tokenizer)
    text = f"the token 'zzq' the number {size}, and the model knows {size} tokens, from 0 to {size - 1}"
    classifier = Classifier(model, tokenizer, 8)
    with pytest.raises(FrostlineError, match=re.escape(text)):
        classifier.encode(Texts(texts=("good film", "zzq film"), pairs=None, rows=np.arange(2), name="two texts"))


VOCABULARY = {"[PAD]": 0, "good": 1, "film": 2}
WITHOUT_UNKNOWN = {  # tokenizers that have no token for a word that they do not know
    "words": models.WordLevel(VOCABULARY),
    "words, and the unknown one is not among them": models.WordLevel(VOCABULARY, unk_token="[UNK]"),
    "pieces of words": models.WordPiece(VOCABULARY, unk_token="[UNK]"),
    "unigrams": models.Unigram([(word, -1.0) for word in VOCABULARY], None),
    "merged pairs": models.BPE(VOCABULARY, [], unk_token="[UNK]"),
}


@pytest.mark.parametrize("of_words", [False, True])
@pytest.mark.parametrize("kind", WITHOUT_UNKNOWN)
def test_a_word_for_which_a_tokenizer_has_no_token_is_an_error(kind, of_words):
    words = Tokenizer(WITHOUT_UNKNOWN[kind])
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
    with pytest.raises(FrostlineError, match=r"^The tokenizer cannot encode a text \(.+[^.]\): use the model's own"):
        encode(tokenizer, ["film", "odd film"], None, 8, of_words=of_words)


def test_a_model_of_characters_knows_all(tokenizer):
    characters = SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: object()))
    tokens = encode(tokenizer, ["good"], None, 8)
    tokens.inputs["input_ids"][:] = np.iinfo(np.int32).max
    assert vocabulary_size(characters) is None
    suited(tokens, characters, tokenizer)
