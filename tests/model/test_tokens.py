"""Encoded examples: batches equal those of the tokenizer; truncation, empty texts, digests, and unknown tokens."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.trainers import BpeTrainer
from transformers import (
    AlbertTokenizer,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertTokenizer,
    DebertaTokenizer,
    DebertaV2Tokenizer,
    GemmaTokenizer,
    GPT2Tokenizer,
    GPTNeoXTokenizer,
    MPNetTokenizer,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
    RobertaTokenizer,
    T5Tokenizer,
    XLMRobertaTokenizer,
)

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.tags import joined
from frostline.model.classifier import Classifier
from frostline.model.loading import load_tokenizer
from frostline.model.tokens import (
    CHUNK,
    Tokens,
    chunks_within,
    encode,
    notes_on_tokens,
    suited,
    vocabulary_size,
    vocabulary_tables,
)
from small_models import bare_tokenizer
from tagged import split_tokenizer

TEXTS = ["the film was good", "", "   ", "a", "unknown wörds 映画 😀 here", "good " * 50, "NA", "the\nplot\twas dull"]
PAIRS = ["bad", "cast", "", "the " * 60, "a", "b", "null", "warm"]

small = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def bert(tiny_bert):
    return AutoTokenizer.from_pretrained(tiny_bert)


def tokens_of(rows, **more):
    inputs = {"input_ids": np.concatenate(rows).astype(np.int32)} | more
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return Tokens(inputs, offsets, {"input_ids": 9}, np.zeros(len(rows), np.int32))


def same_batch(one, other):
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("pairs", [None, PAIRS])
@pytest.mark.parametrize("max_length", [8, 32])
def test_a_batch_equals_that_of_the_tokenizer(bert, pairs, max_length):
    tokens = encode(bert, TEXTS, pairs, max_length)
    own = bert(TEXTS, pairs, padding=True, truncation=True, max_length=max_length, return_tensors="pt")
    assert same_batch(tokens.batch(np.arange(len(TEXTS))), dict(own))
    assert (tokens.batch(np.arange(1))["token_type_ids"].max() > 0) == (pairs is not None)
    rows = np.array([4, 0, 7])
    some = bert(
        [TEXTS[n] for n in rows],
        None if pairs is None else [pairs[n] for n in rows],
        padding="max_length",
        truncation=True,
        max_length=max_length,
        return_tensors="pt",
    )
    assert same_batch(tokens.batch(rows, max_length), dict(some))


def test_more_texts_than_the_tokenizer_gets_in_one_call(bert):
    texts = [*TEXTS, "film"] * (CHUNK // 8)
    tokens, own = encode(bert, texts, None, 8), bert(texts, truncation=True, max_length=8)
    assert len(texts) > CHUNK and np.array_equal(tokens.inputs["input_ids"], np.concatenate(own["input_ids"]))
    assert tokens.lengths.tolist() == [*map(len, own["input_ids"])]


@pytest.mark.parametrize("pairs", [None, PAIRS])
def test_dropped_counts_truncated_tokens(bert, pairs):
    tokens = encode(bert, TEXTS, pairs, 8)
    whole = encode(bert, TEXTS, pairs, 10_000)
    assert whole.dropped.sum() == 0 and whole.lengths.max() > 50
    assert np.array_equal(tokens.dropped, whole.lengths - tokens.lengths)
    assert tokens.lengths.max() == 8 and tokens.dropped.max() > 40
    assert ((tokens.dropped > 0) == (whole.lengths > 8)).all()


def test_an_empty_text_without_tokens_becomes_one_end_of_text_token(tmp_path):
    bare = bare_tokenizer(tmp_path, pad_token="<end>", model_input_names=["input_ids", "attention_mask"])
    tokens = encode(bare, ["good film", "", "film"], None, 8)
    assert tokens.inputs["input_ids"].tolist() == [2, 3, 0, 3]
    assert tokens.lengths.tolist() == [2, 1, 1] and tokens.dropped.tolist() == [0, 0, 0]
    assert tokens.batch(np.array([1]))["attention_mask"].tolist() == [[1]]


def test_only_the_given_rows_are_encoded(bert):
    rows = np.array([7, 0, 4])
    some, whole = encode(bert, TEXTS, PAIRS, 8, rows), encode(bert, TEXTS, PAIRS, 8)
    assert len(some) == len(TEXTS) and set(np.flatnonzero(some.lengths)) == {0, 4, 7}
    assert same_batch(some.batch(rows), whole.batch(rows)) and np.array_equal(some.dropped[rows], whole.dropped[rows])
    assert some.truncated() == (whole.dropped[rows] > 0).mean() and 0 < whole.truncated() < 1
    assert np.isnan(some.truncated(np.arange(len(TEXTS)) == 1))
    for rows_without in (np.array([0, 1]), np.array([1])):
        with pytest.raises(AssertionError, match="not encoded"):
            some.batch(rows_without)
        with pytest.raises(AssertionError, match="not encoded"):
            some.one_token(rows_without, last=True)


def test_an_empty_table_has_no_tokens(bert):
    tokens = encode(bert, [], None, 8)
    assert len(tokens) == 0 and tokens.lengths.tolist() == [] and len(tokens.keys) == 0
    assert set(tokens.inputs) == {"input_ids", "token_type_ids"}


@given(small, st.data())
def test_a_batch_holds_its_rows_and_padding(rows, data):
    boxes = np.arange(sum(map(len, rows)) * 2, dtype=np.int32).reshape(-1, 2)  # two numbers per token
    tokens = tokens_of(rows, bbox=boxes)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=8)))
    more = data.draw(st.integers(0, 3))
    length = max(len(rows[n]) for n in chosen) + more
    batch = tokens.batch(chosen, length if more else None)
    for i, n in enumerate(chosen):
        size = len(rows[n])
        assert batch["input_ids"][i].tolist() == [*rows[n], *[9] * (length - size)]
        assert batch["attention_mask"][i].tolist() == [1] * size + [0] * (length - size)
        start = tokens.offsets[n]
        assert batch["bbox"][i].tolist() == [*boxes[start : start + size].tolist(), *[[0, 0]] * (length - size)]
    assert {x.dtype for x in batch.values()} == {torch.int64}


@given(small, st.data())
def test_one_token_is_the_first_or_the_last(rows, data):
    tokens = tokens_of(rows)
    chosen = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=8)))
    for last in (False, True):
        one = tokens.one_token(chosen, last=last)
        assert one["input_ids"].tolist() == [[rows[n][-1 if last else 0]] for n in chosen]
        assert one["attention_mask"].tolist() == [[1]] * len(chosen)


@given(small, small)
def test_join_concatenates_rows(first, second):
    joined = Tokens.join([tokens_of(first), tokens_of(second)])
    whole = tokens_of(first + second)
    assert np.array_equal(joined.inputs["input_ids"], whole.inputs["input_ids"])
    assert np.array_equal(joined.offsets, whole.offsets) and joined.offsets.dtype == whole.offsets.dtype
    assert len(joined) == len(first) + len(second) == len(joined.dropped)
    assert np.array_equal(joined.keys, whole.keys)


@given(small)
def test_keys_are_equal_exactly_where_tokens_are(rows):
    keys = tokens_of(rows).keys.tolist()
    for one in range(len(rows)):
        for other in range(len(rows)):
            assert (keys[one] == keys[other]) == (rows[one] == rows[other])


@given(st.lists(st.lists(st.integers(1, 50), min_size=6, max_size=6), min_size=1, max_size=3), st.integers(1, 400))
def test_chunks_hold_all_examples_in_order_and_are_as_large_as_the_capacity_allows(lengths, capacity):
    lengths = np.array(lengths)
    chunks = list(chunks_within(lengths, capacity))
    assert [chunk.start for chunk in chunks] == [0, *(chunk.stop for chunk in chunks[:-1])] and chunks[-1].stop == 6

    def grid_size(start, stop):
        return lengths[:, start:stop].max() * (stop - start)

    for chunk in chunks:
        assert grid_size(chunk.start, chunk.stop) <= capacity or chunk.stop == chunk.start + 1
        assert chunk.stop == 6 or grid_size(chunk.start, chunk.stop + 1) > capacity


def test_keys_depend_on_every_input():
    rows = [[1, 2], [3]]
    plain = tokens_of(rows, token_type_ids=np.zeros(3, np.int32))
    other = tokens_of(rows, token_type_ids=np.array([0, 1, 0], np.int32))
    assert plain.keys[0] != other.keys[0] and plain.keys[1] == other.keys[1]
    renamed = tokens_of(rows, segment_ids=np.zeros(3, np.int32))
    assert plain.keys[1] != renamed.keys[1]


def test_the_tokens_that_carry_a_tag():
    """Of the words 0 | 0 0 1 in two sentences, of which the first ends with the word with which the second begins."""
    ids = np.arange(5, dtype=np.int32)
    tokens = Tokens(
        {"input_ids": ids}, np.array([0, 1, 5]), {"input_ids": 9}, np.zeros(2, np.int32), np.array([0, 0, 0, 1, -1])
    )
    assert tokens.begins_word.tolist() == [True, True, False, True, False]
    first = tokens.labelled(np.array([1, 0]))
    assert (first.position.tolist(), first.example.tolist(), first.place.tolist()) == ([0, 2, 4], [0, 0, 1], [0, 1, 0])
    assert first.word.tolist() == first.place.tolist() and first.is_first.all()
    every = tokens.labelled(np.array([1, 0]), every_token=True)
    assert (every.position.tolist(), every.example.tolist()) == ([0, 1, 2, 4], [0, 0, 0, 1])
    assert every.place.tolist() == [0, 1, 2, 0] and every.word.tolist() == [0, 0, 1, 0]
    assert every.is_first.tolist() == [True, False, True, True]
    assert Tokens.join([tokens, tokens]).words.tolist() == [0, 0, 0, 1, -1] * 2


def byte_level(*, add_prefix_space):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)


DIGITS = pre_tokenizers.Sequence(  # as in Llama 3 and Qwen: the space before a number is a token of its own
    [
        pre_tokenizers.Split(Regex(r" ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)
LEGACY = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])  # as in Llama 2
WORDS = [
    "he", "liked", "don't", "U.S.", "(the", "😀", "x😀y", "1999", "naïve", "--", "映画", "New\u00a0York", "the", "<s>",
]  # fmt: skip
OF_WORDS = {  # the class that reads the folder, the type of the model, and how the tokenizer splits a text
    "RoBERTa": (RobertaTokenizer, "roberta", None),
    "Longformer": (RobertaTokenizer, "longformer", None),
    "DeBERTa": (DebertaTokenizer, "deberta", None),
    "GPT-2": (GPT2Tokenizer, "gpt2", None),
    "GPT-NeoX": (GPTNeoXTokenizer, "gpt_neox", None),
    "Qwen": (Qwen2Tokenizer, "qwen2", None),
    "Gemma": (GemmaTokenizer, "gemma2", None),
    "BERT": (BertTokenizer, "bert", None),
    "MPNet": (MPNetTokenizer, "mpnet", None),
    "XLM-R": (XLMRobertaTokenizer, "xlm-roberta", None),
    "ALBERT": (AlbertTokenizer, "albert", None),
    "DeBERTa-v3": (DebertaV2Tokenizer, "deberta-v2", None),
    "T5": (T5Tokenizer, "t5", None),
    "ModernBERT": (PreTrainedTokenizerFast, "modernbert", byte_level(add_prefix_space=False)),
    "ModernBERT with a first space": (PreTrainedTokenizerFast, "modernbert", byte_level(add_prefix_space=True)),
    "Llama 3": (PreTrainedTokenizerFast, "llama", DIGITS),
    "Llama 2": (PreTrainedTokenizerFast, "llama", LEGACY),
    "Mistral": (PreTrainedTokenizerFast, "mistral", pre_tokenizers.Metaspace(prepend_scheme="first")),
    "no first space": (PreTrainedTokenizerFast, "mistral", pre_tokenizers.Metaspace(prepend_scheme="never")),
    "words": (PreTrainedTokenizerFast, "nystromformer", pre_tokenizers.Whitespace()),
}


def learned_tokenizer(kind, splitting):
    """A tokenizer of this class, with a small vocabulary that it has learned from some of ``WORDS``."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "<|endoftext|>"]
    text = [" ".join(WORDS[:6]).replace("😀", "")] * 3
    if kind in (XLMRobertaTokenizer, AlbertTokenizer, DebertaV2Tokenizer, T5Tokenizer):
        letters = sorted({*"".join(text)} - {" "})
        return kind(vocab=[(x, -float(n)) for n, x in enumerate([*special, "▁", "▁he", "▁liked", "ed", *letters])])
    if kind in (BertTokenizer, MPNetTokenizer):
        letters = [chr(n) for n in range(33, 127)]
        return kind(vocab={x: n for n, x in enumerate([*special, "liked", *letters, *(f"##{x}" for x in letters)])})
    learned = Tokenizer(models.BPE(unk_token="<unk>"))
    of_text = isinstance(splitting, normalizers.Normalizer)
    learned.pre_tokenizer = pre_tokenizers.Metaspace() if of_text else splitting or byte_level(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    learned.train_from_iterator(text, BpeTrainer(special_tokens=special, initial_alphabet=letters, vocab_size=400))
    if of_text:
        learned.normalizer, learned.pre_tokenizer = splitting, None
    if kind is PreTrainedTokenizerFast:
        return kind(tokenizer_object=learned, unk_token="<unk>", pad_token="<pad>", bos_token="<s>")
    bpe = json.loads(learned.to_str())["model"]
    return kind(vocab=bpe["vocab"], merges=[tuple(pair) for pair in bpe["merges"]])


@pytest.mark.parametrize("family", OF_WORDS)
def test_sentences_of_words_have_the_tokens_of_running_text(tmp_path, family):
    kind, model_type, splitting = OF_WORDS[family]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    learned_tokenizer(kind, splitting).save_pretrained(tmp_path)
    tokenizer = load_tokenizer("m", tmp_path, of_words=True)
    plain = AutoTokenizer.from_pretrained(tmp_path)
    for words in (WORDS, WORDS[::-1], ["he"], ["liked", "", "he", "", ""], WORDS[5:8] * 3):
        running = plain(" ".join(word for word in words if word), return_offsets_mapping=True)
        tokens = encode(tokenizer, [joined(words)], None, 1000, of_words=True)
        assert tokens.inputs["input_ids"].tolist() == running["input_ids"]
        start = 0
        for n, word in enumerate(words):  # a word has the tokens of its characters
            spans = [running["offset_mapping"][token] for token in np.flatnonzero(tokens.words == n)]
            assert all(end > start and begin < start + len(word) for begin, end in spans) and bool(spans) == bool(word)
            start += len(word) + bool(word)
        cut = encode(tokenizer, [joined(words)], None, 12, of_words=True)
        assert set(cut.words.tolist()) <= set(tokens.words.tolist()) and cut.lengths[0] == min(12, tokens.lengths[0])


@pytest.mark.parametrize(("model_type", "noted"), [("llama", False), ("qwen2", True)])
def test_a_class_that_gives_other_tokens_than_the_file_is_noted(tmp_path, model_type, noted):
    """transformers reads every tokenizer of a Qwen 2 as that of Qwen 2, which splits digits in another way."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    learned_tokenizer(PreTrainedTokenizerFast, byte_level(add_prefix_space=True)).save_pretrained(tmp_path)
    tokenizer = load_tokenizer("m", tmp_path)
    notes = notes_on_tokens(encode(tokenizer, ["he"], None, 9), tokenizer, tmp_path)
    assert ["builds the tokenizer as a Qwen2Tokenizer, which gives texts other" in note for note in notes] == [
        True
    ] * noted


def test_sentences_of_words_are_encoded_word_by_word():
    tokenizer = split_tokenizer()
    tokens = encode(tokenizer, [joined(["Rome", "", "Oslo"]), joined(["Anna"] * 9)], None, 8, of_words=True)
    assert tokens.words.tolist() == [-1, 0, 2, 2, 2, 2, -1, -1, 0, 1, 2, 3, 4, 5, -1]
    assert tokens.dropped.tolist() == [0, 3]
    assert Tokens.join([tokens, tokens]).untagged.tolist() == [[0, 3] * 2, [1, 0] * 2]
    cut, without_token = notes_on_tokens(tokens, tokenizer, Path())
    assert cut.startswith("25 % of the words are cut off") and without_token.startswith(
        "8.3 % of the words have no token"
    )
    plain = encode(tokenizer, ["Rome Oslo"], None, 8)
    assert plain.words is None and np.array_equal(plain.inputs["input_ids"], tokens.inputs["input_ids"][:7])


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
