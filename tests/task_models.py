"""Folders of models that look fine-tuned from one pretrained model: the weights of their last layers differ."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast

from frostline.model.anatomy import find_layers
from frostline.model.model_files import quiet_loading
from frostline.model.trainable import Trainable
from frostline.statistics.recipe import Recipe
from small_model_settings import CLS, EOS, GENERIC, PAD, SEP
from small_models import small_model


def write_task(
    folder: Path, base: Path, k: Recipe, *, labels: Sequence[str] = ("no", "yes"), seed: int = 0, **config: Any
) -> Path:
    """Write the model of ``base`` with other weights in its last ``k`` layers and its head. No labels: a regression."""
    task = {"num_labels": 1, "problem_type": "regression"}
    if labels:
        names = {"id2label": dict(enumerate(labels)), "label2id": {label: n for n, label in enumerate(labels)}}
        task = {"problem_type": "single_label_classification", **names}
    with quiet_loading(), torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_pretrained(base, **task, **config, ignore_mismatched_sizes=True)
        trained = Trainable(Recipe(k)).parameters(find_layers(model.eval()))
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if name in trained:
                    weight += 0.05 * torch.randn_like(weight)
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


def write_base(folder: Path, model_type: str, *, layers: int = 4, seed: int = 0) -> Path:
    """Write a small model of this type with random weights, and a tokenizer of the words w0, w1, ..."""
    words = {f"w{n}": n for n in range(GENERIC["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w7"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"w{CLS} $A w{SEP}", special_tokens=[(f"w{CLS}", CLS), (f"w{SEP}", SEP)]
    )
    marks = {"pad_token": f"w{PAD}", "eos_token": f"w{EOS}", "unk_token": "w7"}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **marks, model_max_length=64, model_input_names=["input_ids", "attention_mask"]
    )
    with quiet_loading():
        small_model(model_type, seed=seed, layers=layers).save_pretrained(folder)
        fast.save_pretrained(folder)
    return folder


def random_texts(count: int, *, seed: int = 0, longest: int = 50) -> list[str]:
    """Texts of 1 to ``longest`` words for the tokenizer of :func:`write_base`."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=draw).tolist()
    return [" ".join(f"w{n}" for n in torch.randint(10, 300, (length,), generator=draw).tolist()) for length in lengths]
