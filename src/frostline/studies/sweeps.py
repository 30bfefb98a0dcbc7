"""The sweeps of a study: one for each model and task, each in its own folder, and the parameters that each k trains."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel

from frostline import FrostlineError
from frostline.api.sweep import sweep
from frostline.data.files import file_name, require_inside
from frostline.data.kinds import CLASSIFICATION
from frostline.data.wording import model_name
from frostline.model.anatomy import Anatomy, find_layers
from frostline.model.heads import with_head
from frostline.model.loading import load_config
from frostline.model.terms import OWN_HEAD
from frostline.model.ways import Way
from frostline.report.answer.run_groups import sweep_groups
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Answer
from frostline.statistics.cells import best_learning_rate
from frostline.statistics.recipe import FULL, Recipe
from frostline.studies.protocol import FOLDER, Protocol, tune_values
from frostline.sweeps.parameter_groups import Group, groups_by_tune
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.settings import make_settings
from frostline.training.experiment import head_of
from frostline.training.run import Run


@dataclass(frozen=True)
class ParameterCounts:
    """Parameter counts of a classifier.

    Attributes:
        layers: The number of layers, L.
        places: Parameter counts by place: embeddings, layer 0 to layer L - 1, final norm, pooler, head.
        groups: The parameter groups of each value of ``tune``.
    """

    layers: int
    places: Mapping[str, int]
    groups: Mapping[Recipe, Sequence[Group]]

    @property
    def trained(self) -> dict[Recipe, int]:
        """The number of trainable parameters of each value of ``tune``."""
        return {
            recipe: sum(group.parameters for group in groups if group.trained) for recipe, groups in self.groups.items()
        }

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


def parameter_counts(config: PreTrainedConfig, settings: Mapping[str, Any]) -> ParameterCounts:
    """The parameters of the classifier of two classes with this configuration, and what a sweep with these settings trains."""
    spec = make_settings({**settings, "out": "-"})
    facts = {name: value for name, value in spec.model_dump().items() if name in Run.model_fields}
    del facts["num_train_epochs"]  # several, and no group depends on them
    runs = [
        _run(k, spec.way_of(k), {**facts, "learning_rate": layers, "head_learning_rate": head})
        for k in spec.values_of("tune")
        for part in spec.grids()
        if k in part.tune
        for layers, head in part.learning_rate_pairs(k)
    ]
    model, anatomy = _meta_classifier(config)
    places: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        places[anatomy.places[name]] = places.get(anatomy.places[name], 0) + parameter.numel()
    groups = groups_by_tune(runs, lambda run: _with_head_of(run, model, anatomy))
    return ParameterCounts(anatomy.count, places, groups)


def _with_head_of(run: Run, own: PreTrainedModel, anatomy: Anatomy) -> tuple[PreTrainedModel, Anatomy]:
    """The classifier ``own`` with the head that a run trains, and its layers."""
    kind = head_of(run, CLASSIFICATION)
    if kind == OWN_HEAD:
        return own, anatomy
    model = with_head(own, kind, anatomy)
    return model, anatomy.of_head(model)


def _run(tune: Recipe, way: Way, facts: Mapping[str, Any]) -> Run:
    """A run without data."""
    if way.chooses_by_weights:
        raise FrostlineError(f"{tune} chooses matrices by their weights, which a configuration has not: leave it out.")
    of_data = {"weights": "", "vocabulary": "", "data": "", "seed": 0, "train_size": 1}
    return Run.model_validate({**facts, **of_data, "recipe": tune, "way": way})


def _meta_classifier(config: PreTrainedConfig) -> tuple[PreTrainedModel, Anatomy]:
    """The classifier of two classes on the meta device, where tensors have no data, and its anatomy."""
    config.num_labels = 2
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)
        return model, find_layers(model, {"input_ids": torch.zeros(2, 8, dtype=torch.long)})


@dataclass(frozen=True)
class StudySweep:
    """One model on one task.

    Attributes:
        model: The name of the model, from the user or the study.
        task: The task.
        out: The folder of the sweep.
        settings: All settings of the sweep.
        analysis: The settings of the study's analysis.
        line_search: Learning rates to try. The best one for full fine-tuning is used for every k. Empty: there is no search.
    """

    model: str
    task: str
    out: Path
    settings: Mapping[str, Any]
    analysis: AnalysisSettings
    line_search: tuple[float, ...] = ()

    def run(self, progress: Progress | None = None) -> Answer:
        """Run the learning rate search, then the sweep, and return the answer. Finished runs are skipped. No model is saved."""
        settings = {**self.settings, "out": self.out, "progress": progress}
        if self.line_search:
            search = {"tune": FULL, "tune_modules": None, "learning_rate": self.line_search}
            sweep(save_model=False, **{**settings, **search})
            group = next(sweep_groups(Folder(self.out)))
            full = [run for run in group.runs if run.recipe.is_full and run.learning_rate in self.line_search]
            largest = max((run.train_size or 0, run.num_train_epochs or 0.0) for run in full)
            full = [run for run in full if (run.train_size, run.num_train_epochs) == largest]
            settings["learning_rate"] = best_learning_rate(full, group.evidence.chance, self.analysis)
        return sweep(save_model=False, **settings).answer


def study_sweeps(
    protocol: Protocol,
    out: str | Path,
    *,
    models: Sequence[str] | None,
    tasks: Sequence[str] | None = None,
    data: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[StudySweep]:
    """The sweeps of a study.

    Args:
        protocol: The study.
        out: The folder for all sweeps.
        models: Models to use instead of those of the study.
        tasks: Tasks to use instead of those of the study.
        data: The folder or hub data set of a task.
        settings: Settings of a sweep that replace those of the protocol.

    Raises:
        FrostlineError: A link leads out of ``out``, or a model does not show how many layers it has.
    """
    models, tasks, data = models or protocol.models, tasks or protocol.tasks, data or {}
    sweeps = []
    for model in models:
        layers = getattr(model_config(protocol, model), "num_hidden_layers", None)
        if layers is None:
            raise FrostlineError(f"The configuration of {model} does not show how many layers it has: give --tune.")
        for task in tasks:
            own = Path(out) / file_name(model_name(model)) / file_name(task)
            require_inside(own, Path(out))
            of_task = {"data": data[task]} if task in data else {}
            given = {**protocol.settings_of(model, task), **of_task, **(settings or {})}
            given["tune"] = tune_values(given.get("tune", protocol.tune), layers)
            search: tuple[float, ...] = ()
            if "learning_rate" not in given:
                given["learning_rate"] = protocol.line_search
                search = protocol.line_search if protocol.as_published.one_learning_rate else ()
            sweeps.append(StudySweep(model, task, own, given, protocol.as_published, search))
    return sweeps
