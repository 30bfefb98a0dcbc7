"""The parameters that each k of a study trains, from the model configuration. Needs neither weights nor network."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel

from frostline import FrostlineError
from frostline.data.specification import CLASSIFICATION
from frostline.model.anatomy import Anatomy, find_layers
from frostline.model.loading import load_config
from frostline.model.reading import OWN_HEAD
from frostline.model.with_head import with_head
from frostline.statistics.recipe import NAMED, Recipe
from frostline.studies.protocol import FOLDER, Protocol
from frostline.sweep.make_spec import make_spec
from frostline.sweep.parameter_groups import Group, groups_by_tune
from frostline.training.context import head_of
from frostline.training.specification import RunSpec
from frostline.training.ways.names import way_named
from frostline.training.ways.start import planned
from frostline.training.ways.way import PLAIN, Way


@dataclass(frozen=True)
class ParameterCounts:
    """Parameter counts of a classifier.

    Attributes:
        layers: The number of layers, L.
        places: Parameter counts by place: embeddings, layer 0 to layer L - 1, final norm, pooler, head.
        trained: The number of trainable parameters of each k.
    """

    layers: int
    places: Mapping[str, int]
    trained: Mapping[Recipe, int]

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(self.places.values())


def model_config(protocol: Protocol, model: str) -> PreTrainedConfig:
    """The configuration of a model: from the files of the study if it is one of its models, else from a folder or the hub.

    Raises:
        FrostlineError: There is no such model.
    """
    short = protocol.short_name(model)
    if short is None:
        return load_config(model)
    facts = json.loads((FOLDER / "configurations" / f"{short}.json").read_text(encoding="utf-8"))
    return AutoConfig.for_model(**facts)


def parameter_counts(
    config: PreTrainedConfig,
    ks: Sequence[Recipe],
    *,
    classes: int = 2,
    tune_pooler: bool = True,
    tune_modules: Sequence[str] | None = None,
) -> ParameterCounts:
    """The parameter counts of the classifier with this configuration."""
    model, anatomy = _meta_classifier(config, classes)
    places: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        places[anatomy.places[name]] = places.get(anatomy.places[name], 0) + parameter.numel()
    facts = {"tune_pooler": tune_pooler, "tune_modules": tune_modules, "learning_rate": 1.0}
    runs = {k: _run(k, way_named(k, {}) or PLAIN, facts) for k in ks}
    trained = {
        k: sum(p.numel() for p in planned(run, *_with_head_of(run, model, anatomy)).values()) for k, run in runs.items()
    }
    return ParameterCounts(anatomy.count, places, trained)


def parameter_groups(config: PreTrainedConfig, settings: Mapping[str, Any]) -> dict[Recipe, tuple[Group, ...]]:
    """All parameter groups of a sweep with these settings, for each value of ``tune``."""
    spec = make_spec({**settings, "out": "-"})
    facts = {name: value for name, value in spec.model_dump().items() if name in RunSpec.model_fields}
    runs = [
        _run(k, spec.way_of(k), {**facts, "learning_rate": layers, "head_learning_rate": head})
        for k in spec.values_of("tune")
        for part in spec.grids()
        if k in part.tune
        for layers, head in part.learning_rate_pairs(k)
    ]
    classifier = _meta_classifier(config)
    return groups_by_tune(runs, lambda run: _with_head_of(run, *classifier))


def _with_head_of(run: RunSpec, own: PreTrainedModel, anatomy: Anatomy) -> tuple[PreTrainedModel, Anatomy]:
    """The classifier ``own`` with the head that a run trains, and its layers."""
    kind = head_of(run, CLASSIFICATION)
    if kind == OWN_HEAD:
        return own, anatomy
    model = with_head(own, kind, anatomy)
    return model, anatomy.of_head(model)


def _run(tune: Recipe, way: Way, facts: Mapping[str, Any]) -> RunSpec:
    """A run without data."""
    if way.chooses_by_weights:
        raise FrostlineError(f"{tune} chooses matrices by their weights, which a configuration has not: leave it out.")
    of_data = {"weights": "", "vocabulary": "", "data": "", "seed": 0, "train_size": 1}
    modules = facts["tune_modules"] if tune == NAMED else None
    return RunSpec.model_validate({**facts, **of_data, "recipe": tune, "way": way, "tune_modules": modules})


def _meta_classifier(config: PreTrainedConfig, classes: int = 2) -> tuple[PreTrainedModel, Anatomy]:
    """The classifier on the meta device, where tensors have no data, and its anatomy."""
    config.num_labels = classes
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)
        return model, find_layers(model, {"input_ids": torch.zeros(2, 8, dtype=torch.long)})
