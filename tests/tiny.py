"""A tiny BERT and a tiny sentiment task, for tests that need a model and data but no good scores."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from frostline.api.sweep import Sweep
from frostline.sweep.execution.execute import execute
from frostline.sweep.progress import Progress
from frostline.sweep.results.folder import register

GOOD = ("good", "great", "fine", "lovely", "warm", "bright")
BAD = ("bad", "poor", "dull", "awful", "cold", "grim")
OTHER = ("the", "film", "was", "a", "plot", "and", "very", "not", "story", "cast", "with", "it")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def tiny_tokenizer(*inputs: str) -> PreTrainedTokenizerFast:
    """A tokenizer of the words of :func:`sentences`, for a model with these inputs."""
    vocabulary = {word: n for n, word in enumerate((*SPECIAL, *GOOD, *BAD, *OTHER))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=32,
        model_input_names=list(inputs),
    )


def tiny_bert_folder(folder: Path, *, layers: int = 3, seed: int = 0, dropout: float = 0.1) -> Path:
    """Write the model and its tokenizer into ``folder``."""
    fast = tiny_tokenizer("input_ids", "token_type_ids", "attention_mask")
    config = BertConfig(
        vocab_size=len(fast),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        initializer_range=0.2,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def sentences(count: int, *, seed: int = 0) -> list[dict[str, str]]:
    """``count`` distinct rows of text and label. The labels alternate, and each text has one word that decides its label."""
    generator = torch.Generator().manual_seed(seed)

    def pick(words: tuple[str, ...]) -> str:
        return words[int(torch.randint(len(words), (), generator=generator))]

    rows: dict[str, str] = {}
    while len(rows) < count:
        label = ("negative", "positive")[len(rows) % 2]
        words = [pick(OTHER) for _ in range(2 + int(torch.randint(6, (), generator=generator)))]
        words.insert(len(words) // 2, pick(GOOD if label == "positive" else BAD))
        rows.setdefault(" ".join(words), label)
    return [{"text": text, "label": label} for text, label in rows.items()]


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    """Write rows as a CSV file with a header."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


QUICK = {  # with these settings, the tiny model learns a little within a second
    "num_train_epochs": 4,
    "per_device_train_batch_size": 8,
    "learning_rate": 1e-3,
    "head_learning_rate": 1e-2,
    "warmup_steps": 0,
    "precision": "float32",
}
SMALL = {**QUICK, "num_train_epochs": 1, "train_size": 20, "test": "none"}


def contents(folder: Path) -> dict[str, bytes]:
    """The content of every file in a folder, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run_sweep(settings: Mapping[str, Any], **other: Any) -> Sweep:
    """Train the runs of a sweep, without report and model."""
    sweep = Sweep(progress=Progress(), **{**settings, **other})
    prepared = sweep._prepare(Progress())
    requested = sweep._requested(prepared)
    prepared.store.retry({run.digest for run in requested}, ("failed",))
    register(prepared)
    execute(prepared, requested, Progress())
    return sweep


class CommandResult(NamedTuple):
    """The exit code, stdout and stderr of a command."""

    code: int
    out: str
    err: str


Frostline = Callable[..., CommandResult]
