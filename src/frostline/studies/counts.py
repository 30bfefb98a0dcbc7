"""How many parameters each k trains, from a model's configuration alone: no weights, no network."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig

from frostline.errors import FrostlineError
from frostline.layers import count_parameters, find_layers
from frostline.parts import parameters_of
from frostline.specification import Tune
from frostline.studies.protocol import HERE, Protocol


@dataclass(frozen=True)
class Counts:
    """Parameters of a classifier, by place and by what is trained."""

    layers: int  # L
    places: Mapping[str, int]  # embeddings, layer 0 .., final norm, pooler, head
    trainable: Mapping[Tune, int]

    @property
    def total(self) -> int:
        return sum(self.places.values())


def configuration(protocol: Protocol, model: str) -> PreTrainedConfig:
    """The configuration of a model: the one that the study carries, else that of a local folder.

    Raises:
        FrostlineError: neither is there.
    """
    short = protocol.short_name(model)
    if short is not None:
        facts = json.loads((HERE / "configurations" / f"{short}.json").read_text(encoding="utf-8"))
        return AutoConfig.for_model(**facts)
    if not (Path(model).expanduser() / "config.json").is_file():
        raise FrostlineError(
            f"{model} is no model of {protocol.name} ({', '.join(protocol.model)}) and no folder with a config.json: "
            "give one of these."
        )
    return AutoConfig.from_pretrained(Path(model).expanduser())


def count(
    config: PreTrainedConfig,
    ks: Sequence[Tune],
    *,
    classes: int = 2,
    tune_pooler: bool = True,
    tune_modules: Sequence[str] | None = None,
) -> Counts:
    """Build the classifier on the meta device, where tensors have shapes and no numbers, and count."""
    config.num_labels = classes
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config)
        anatomy = find_layers(model, {"input_ids": torch.zeros(2, 8, dtype=torch.long)})
    places: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        places[anatomy.places[name]] = places.get(anatomy.places[name], 0) + parameter.numel()
    trainable = {
        k: count_parameters(model, parameters_of(k, anatomy, tune_modules, tune_pooler=tune_pooler)) for k in ks
    }
    return Counts(anatomy.count, places, trainable)
