"""Random models and random texts, for model sizes whose weights are not on this machine."""

import csv
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from frostline.model.model_files import quiet_loading

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES = {  # layers, width, heads, vocabulary
    "tiny": (2, 32, 2, 1000),
    "bert-base": (12, 768, 12, 30522),
}


def write_model(folder: Path, layers: int, width: int, heads: int, vocabulary: int, positions: int = 512) -> None:
    """Write a BERT with random weights and a tokenizer."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=positions,
    )
    with quiet_loading():
        BertForSequenceClassification(config).save_pretrained(folder)
    write_tokenizer(folder, vocabulary, positions)


def write_tokenizer(folder: Path, vocabulary: int, positions: int, **settings: object) -> None:
    """Write a tokenizer that has the words w0, w1, ..., with further settings of transformers."""
    words = (*SPECIAL, *(f"w{n}" for n in range(vocabulary - len(SPECIAL))))
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=positions,
        **settings,
        **{f"{name[1:-1].lower()}_token": name for name in SPECIAL},
    ).save_pretrained(folder)


def write_rows(path: Path, rows: int, lengths: tuple[int, int], vocabulary: int, seed: int = 0) -> None:
    """Write texts of random words whose lengths are uniform in a range.

    Lengths are in tokens, including two special tokens. A text is positive if more than half of its words come from the upper
    half of the vocabulary.
    """
    rng = np.random.default_rng(seed)
    most = vocabulary - len(SPECIAL)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("text", "label"))
        for length in rng.integers(lengths[0], lengths[1] + 1, size=rows) - 2:
            words = rng.integers(most, size=length)
            table.writerow((" ".join(f"w{word}" for word in words), int((words > most / 2).mean() > 0.5)))
