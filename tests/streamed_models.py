"""Small models in several shards, loaded and streamed."""

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification

from frostline.model.pretrained import Pretrained
from model_folders import load
from small_models import small_config
from tiny import tiny_tokenizer


def sharded(folder: Path, model_type: str, *, layers: int = 4, dtype: torch.dtype = torch.float32) -> Path:
    """Write a small model of this type without a head in several shards, and a tokenizer. Layers are spread over shards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModel.from_config(small_config(model_type, layers)).float()
        with torch.no_grad():
            for weight in model.parameters():  # none is left at its constant initial value
                weight += 0.1 * torch.randn_like(weight)
    model.to(dtype).save_pretrained(folder, max_shard_size="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    tiny_tokenizer("input_ids", "attention_mask").save_pretrained(folder)
    return folder


def sharded_classifier(
    folder: Path, model_type: str, *, of_words: bool = False, dtype: torch.dtype = torch.float32, shard: str = "100KB"
) -> Path:
    """Write a small classifier of this type with random weights and a tokenizer, in files of at most the size ``shard``."""
    kind = AutoModelForTokenClassification if of_words else AutoModelForSequenceClassification
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind.from_config(small_config(model_type, 4)).float()
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.1 * torch.randn_like(weight)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    tiny_tokenizer("input_ids", "attention_mask").save_pretrained(folder)
    return folder


def both(folder: Path) -> tuple[Pretrained, Pretrained]:
    """The model in the folder with all weights in memory, and with streamed layers."""
    return load(folder), load(folder, streams=lambda weight_bytes: True)


def same_weights(expected: Path, found: Path) -> None:
    """Two folders of models have the same files except for shards, and the same weights; transformers opens the second."""
    first, second = (
        {path.name for path in folder.iterdir() if "safetensors" not in path.name} for folder in (expected, found)
    )
    assert first == second
    assert (expected / "config.json").read_bytes() == (found / "config.json").read_bytes()
    values = [dict(all_weights(folder)) for folder in (expected, found)]
    assert values[0] == values[1]
    _, info = AutoModelForSequenceClassification.from_pretrained(found, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]


def all_weights(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The bytes of every weight in the folder, by name."""
    for file in folder.glob("*.safetensors"):
        for name, value in load_file(file).items():
            yield name, value.view(torch.uint8).numpy().tobytes()
