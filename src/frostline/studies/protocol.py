"""The protocol of a published study: its settings, its published numbers, and the settings of its analysis. Imports no torch."""

import tomllib
from collections.abc import Mapping
from functools import cached_property
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from frostline import FrostlineError
from frostline.data.glue import GLUE
from frostline.data.parsing import normalized_name
from frostline.data.wording import did_you_mean
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.studies.published_numbers import PublishedNumber, read_published

FOLDER = files("frostline.studies")


class Protocol(BaseModel):
    """A study that ships with the package.

    Attributes:
        name: The name of its TOML file.
        title: The title of the publication.
        source: The authors and where it was published.
        question: The question that it answers.
        models: The short names of its models; their hub names are in ``model``.
        tasks: Its tasks.
        tune: Its values of k, which may be relative to L (see ``tune_values``).
        line_search: Learning rates to try. The best one for full fine-tuning is used for every k.
        differences: How runs of frostline differ from the publication, one sentence each.
        contradictions: Where the publication contradicts itself or others, one sentence each.
        settings: The settings of all its sweeps.
        model: The settings of each model.
        task: The settings of each task.
        as_published: The options of the analysis behind its main conclusion.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    name: str
    title: str
    source: str
    question: str
    models: tuple[str, ...]
    tasks: tuple[str, ...]
    tune: str
    line_search: tuple[float, ...] = ()
    differences: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    settings: Mapping[str, Any]
    model: Mapping[str, Mapping[str, Any]]
    task: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    as_published: AnalysisSettings = AnalysisSettings()

    @cached_property
    def published(self) -> tuple[PublishedNumber, ...]:
        """All published numbers."""
        return read_published(self.name)

    def short_name(self, model: str) -> str | None:
        """The study's name of a model, given that name or the hub name; None for any other model."""
        return next((short for short, facts in self.model.items() if model in (short, facts["hub"])), None)

    def settings_of(self, model: str, task: str) -> dict[str, Any]:
        """The settings of the sweep of any model on one task."""
        short = self.short_name(model)
        of_model = dict(self.model[short]) if short else {}
        return {
            **self.settings,
            **self.task.get(task, {"glue": task} if normalized_name(task) in GLUE else {}),
            "task": task,
            "model": of_model.pop("hub", model),
            **of_model,
        }


def protocol_names() -> list[str]:
    """The names of the studies that ship with the package."""
    return sorted(entry.name.removesuffix(".toml") for entry in FOLDER.iterdir() if entry.name.endswith(".toml"))


def load_protocol(name: str) -> Protocol:
    """The protocol of a study.

    Raises:
        FrostlineError: There is no such study; the message lists all of them.
    """
    known = protocol_names()
    if name not in known:
        raise FrostlineError(f"There is no study {name!r}{did_you_mean(name, known)}: choose from {', '.join(known)}.")
    return Protocol(name=name, **tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8")))
