"""Sentences of words with tags of entities, and small models with a tokenizer that splits words, for tests."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, PreTrainedTokenizerFast

from small_models import CLS, PAD, SEP, small_config

LABELS = ("O", "B-person", "I-person", "B-place")
NAMES = (("Anna", "Lee"), ("Ben",), ("Carla", "Maria", "Diaz"))
PLACES, OTHER = ("Rome", "Oslo", "Lima"), ("sings", "lives", "in", "and", "goes", "to")


def tagged(count: int, *, seed: int = 0) -> tuple[list[list[str]], list[list[str]]]:
    """``count`` sentences of words, and their tags."""
    draw = np.random.default_rng(seed)
    words: list[list[str]] = []
    tags: list[list[str]] = []
    for _ in range(count):
        sentence: list[tuple[str, str]] = []
        for _ in range(draw.integers(1, 4)):
            name = NAMES[draw.integers(len(NAMES))]
            sentence += [(word, "I-person" if n else "B-person") for n, word in enumerate(name)]
            sentence += [(OTHER[n], "O") for n in draw.integers(len(OTHER), size=draw.integers(1, 4))]
            sentence += [(PLACES[draw.integers(len(PLACES))], "B-place")] * int(draw.integers(2))
        words.append([word for word, _ in sentence])
        tags.append([tag for _, tag in sentence])
    return words, tags


def table(count: int, seed: int = 0) -> pd.DataFrame:
    """The same as a table."""
    return pd.DataFrame(dict(zip(("tokens", "ner_tags"), tagged(count, seed=seed), strict=True)))


def conll(words: Sequence[list[str]], tags: Sequence[list[str]]) -> str:
    """The content of a CoNLL file."""
    return "\n".join(
        "".join(f"{w}\t{t}\n" for w, t in zip(*both, strict=True)) for both in zip(words, tags, strict=True)
    )


def split_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that splits a word into its letters, unless the word is one of a few."""
    known = ["Rome", "in", "and", "Anna"]
    letters = [chr(n) for n in (*range(65, 91), *range(97, 123))]
    special = ["[PAD]", "[BOS]", "[EOS]", "[SEP]", "[CLS]", "[MASK]", "[IMG]", "[UNK]"]
    vocabulary = {token: n for n, token in enumerate([*special, *known, *letters, *(f"##{x}" for x in letters)])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    assert vocabulary["[PAD]"] == PAD
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=96, model_input_names=inputs, **names)


def small_base(folder: Path, model_type: str, *, layers: int = 3) -> Path:
    """Write a small model of this type without a head, and a tokenizer that splits words."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModel.from_config(small_config(model_type, layers))
    model.save_pretrained(folder)
    split_tokenizer().save_pretrained(folder)
    return folder


def aligned_labels(
    tokenizer: Any, words: Sequence[list[str]], tags: Sequence[list[str]], max_length: int, *, every_token: bool = False
) -> Any:
    """Inputs and labels as transformers' example of token classification makes them: the first token carries the label."""
    encoded = tokenizer(list(words), is_split_into_words=True, truncation=True, max_length=max_length)
    examples = []
    for n, own in enumerate(tags):
        labels, before = [], None
        for word in encoded.word_ids(n):
            if word is not None and word == before:
                tag = own[word].replace("B-person", "I-person")  # there is no I-place
                labels.append(LABELS.index(tag) if every_token else -100)
            else:
                labels.append(-100 if word is None else LABELS.index(own[word]))
            before = word
        examples.append({"input_ids": encoded["input_ids"][n], "labels": labels})
    return examples
