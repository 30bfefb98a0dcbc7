"""Loads models for the tests, and changes the files in their folders."""

import json

from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
)

from frostline.data.files import files_in, read_record, write_record
from frostline.model.loading import load_pretrained
from frostline.model.model_files import RECORD

CLASSES = {"labels": ("no", "yes"), "task_type": "text-classification"}


def load(folder, **more):
    return load_pretrained(str(folder), **(CLASSES | more))


def values(pretrained, names=None):
    return {n: p.detach().clone() for n, p in pretrained.model.named_parameters() if names is None or n in names}


def edit_config(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    if (record := folder / RECORD).exists():  # as whoever saves it so would
        write_record(record, read_record(record), files_in(folder).values(), inside=folder)


def edit_weights(folder, edit):
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def bare_tokenizer(folder, **more):
    """Write a tokenizer of whole words without a padding token, like GPT-2's."""
    words = Tokenizer(models.WordLevel({"<end>": 0, "<unknown>": 1, "good": 2, "film": 3}, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unknown>", eos_token="<end>", **more)
    fast.save_pretrained(folder)
