"""A small, randomly initialised classifier of every model type that transformers classifies or tags with, and a batch for it.

Models are as transformers builds them on this machine. Without its CUDA kernel, the attention of MRA returns zeros; mamba and
linear attention run in plain PyTorch. Shapes: B texts in a batch, S padded length.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES,
)

from small_model_settings import EOS, GENERIC, SPECIAL

TYPES: tuple[str, ...] = tuple(sorted(MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES))
TAG_TYPES: tuple[str, ...] = tuple(sorted(MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES))

REASONS: dict[str, str] = {
    "layoutlmv2": "its visual backbone needs detectron2, which is not on PyPI",
}

FIRST_WORD = 10  # lower ids are special tokens; texts contain none, except EOS for encoder-decoders


def small_config(model_type: str, layers: int = 4) -> PreTrainedConfig:
    """The configuration of a small classifier of three classes."""
    kind = CONFIG_MAPPING[model_type]
    return kind(
        **_settings(kind, SPECIAL.get(model_type, {}), layers), num_labels=3, problem_type="single_label_classification"
    )


def small_model(
    model_type: str, *, seed: int = 0, layers: int = 4, head: Any = AutoModelForSequenceClassification
) -> torch.nn.Module:
    """A small classifier with the head of this class, in float32 and evaluation mode.

    Noise on all weights leaves none at its constant initial value.
    """
    config = small_config(model_type, layers)
    kind = head._model_mapping[type(config)]
    attention = {"attn_implementation": "sdpa"} if kind._supports_sdpa else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = head.from_config(config, **attention).float().eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.1 * torch.randn_like(weight)
    return model


def small_batch(
    model: torch.nn.Module, lengths: Sequence[int] = (40, 31, 7, 22), *, seed: int = 0
) -> dict[str, torch.Tensor]:
    """Random texts of these lengths, padded on the right, with the other inputs of this model type."""
    draw = torch.Generator().manual_seed(seed)
    config, longest = model.config, max(lengths)
    ids = torch.randint(FIRST_WORD, GENERIC["vocab_size"], (len(lengths), longest), generator=draw)  # [B, S]
    mask = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()  # [B, S]
    if config.is_encoder_decoder:  # many of them classify by the last EOS token
        ids[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = EOS
    batch = {"input_ids": ids * mask, "attention_mask": mask}
    if config.model_type in EXTRA:
        batch |= EXTRA[config.model_type](ids, draw)
    return batch


def _boxes(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """The bounding box of each token on its page: left, top, right, bottom, each from 0 to 1000."""
    start = torch.randint(0, 500, (*ids.shape, 2), generator=draw)
    extent = torch.randint(1, 500, (*ids.shape, 2), generator=draw)
    return {"bbox": torch.cat([start, start + extent], dim=-1)}  # [B, S, 4]


def _segments(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Token types of pairs of texts: 0 for the first text, 1 for the second."""
    first = torch.randint(1, 20, (len(ids), 1), generator=draw)
    return {"token_type_ids": (torch.arange(ids.shape[1]) >= first).long()}  # [B, S]


def _table(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Token types of a question and a table: segment, column, row, and four ranks, which stay 0."""
    kinds = torch.zeros(*ids.shape, 7, dtype=torch.long)
    kinds[..., 0] = 1
    kinds[..., 1:3] = torch.randint(1, 4, (*ids.shape, 2), generator=draw)
    kinds[:, :5] = 0
    return {"token_type_ids": kinds}  # [B, S, 7]


def _xpaths(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """The XPath of each token in its web page: tags and their indices, from the root downwards."""
    names = ("xpath_tags_seq", "xpath_subs_seq")
    return {name: torch.randint(0, 200, (*ids.shape, 8), generator=draw) for name in names}  # [B, S, 8]


def _shapes_and_sounds(ids: torch.Tensor, draw: torch.Generator) -> dict[str, torch.Tensor]:
    """Ids of the shape and of the pronunciation of each Chinese character."""
    names = ("input_shape_ids", "input_pronunciation_ids")
    return {name: torch.randint(1, 50, ids.shape, generator=draw) for name in names}  # [B, S]


EXTRA: dict[str, Callable[[torch.Tensor, torch.Generator], dict[str, torch.Tensor]]] = {
    "bert": _segments,
    "bros": _boxes,
    "funnel": _segments,
    "layoutlm": _boxes,
    "layoutlmv3": _boxes,
    "lilt": _boxes,
    "markuplm": _xpaths,
    "roc_bert": _shapes_and_sounds,
    "tapas": _table,
    "xlnet": _segments,
}


def _settings(kind: type, special: dict[str, Any], layers: int) -> dict[str, Any]:
    """The arguments of a configuration class: the generic ones that it has a field for, and the special ones."""
    known = {field.name for field in dataclasses.fields(kind)}
    parts = getattr(kind, "sub_configs", {})
    settings = {name: value for name, value in GENERIC.items() if name in known} | special
    for name, value in settings.items():
        if callable(value):
            settings[name] = value(layers)
        elif name in parts and isinstance(value, dict):
            part = CONFIG_MAPPING[value["model_type"]] if "model_type" in value else parts[name]
            settings[name] = _settings(part, value, layers)
    return settings
