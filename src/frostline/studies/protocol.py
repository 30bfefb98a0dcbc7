"""The protocol of a published study: its settings, its published numbers (``published/STUDY.csv``) and its values of k.

Imports no torch.
"""

import csv
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from frostline import FrostlineError
from frostline.data.glue import GLUE
from frostline.data.wording import comma_separated, did_you_mean, normalized_name
from frostline.model.ways import NAMED_WAYS, NUMBERED_WAYS
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.recipe import FULL, NAMED, Recipe

FOLDER = files("frostline.studies")


class PublishedNumber(BaseModel):
    """One published number. A field that does not apply is None.

    Attributes:
        table: The table or figure of the publication.
        model: The study's name of the model.
        task: The task.
        metric: The metric of a score.
        train_size: The number of training examples.
        tuned: What was trained, as a recipe.
        of_layers: The number of layers of the model.
        statistic: What the number is, such as "mean" or "trainable_parameters".
        value: The number; scores are between 0 and 1.
    """

    model_config = ConfigDict(frozen=True)

    table: str
    model: str | None
    task: str | None
    metric: str | None
    train_size: int | None
    tuned: Recipe | None
    of_layers: int | None
    statistic: str
    value: float


class Protocol(BaseModel):
    """A study that ships with the package.

    Attributes:
        name: The name of its TOML file.
        title: The title of the publication.
        source: The authors and where it was published.
        question: The question that it answers.
        models: The short names of its models; their hub names and numbers of layers are in ``model``.
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
        with (FOLDER / "published" / f"{self.name}.csv").open(encoding="utf-8") as file:
            rows = [{name: cell or None for name, cell in row.items()} for row in csv.DictReader(file)]
        return tuple(PublishedNumber.model_validate(row) for row in rows)

    def short_name(self, model: str) -> str | None:
        """The study's name of a model, given that name or the hub name; None for any other model."""
        return next((short for short, facts in self.model.items() if model in (short, facts["hub"])), None)

    def layers_of(self, model: str) -> int | None:
        """The number of layers of a model of the study, L; None for any other model."""
        short = self.short_name(model)
        return None if short is None else self.model[short]["layers"]

    def require_tasks(self, tasks: Sequence[str], data: Mapping[str, str]) -> None:
        """Refuse a task without known data, and data for a task that is not run."""
        unknown = next((task for task in data if task not in tasks), None)
        if unknown is not None:
            raise FrostlineError(
                f"--data {unknown}={data[unknown]}: {unknown} is not a task of this study; choose from {', '.join(tasks)}."
            )
        for task in tasks:
            if task not in (*self.tasks, *data) and normalized_name(task) not in GLUE:
                raise FrostlineError(
                    f"{task} is a task neither of {self.name} ({', '.join(self.tasks)}) nor of GLUE: give its data with --data "
                    f"{task}=FOLDER."
                )

    def settings_of(self, model: str, task: str) -> dict[str, Any]:
        """The settings of the sweep of any model on one task."""
        short = self.short_name(model)
        of_model = dict(self.model[short]) if short else {}
        return {
            **self.settings,
            **self.task.get(task, {"glue": task} if normalized_name(task) in GLUE else {}),
            "task": task,
            "model": of_model.pop("hub", model),
            **{name: value for name, value in of_model.items() if name != "layers"},
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


TERM = r"(?:\d+|\d*L)(?:/[1-9]\d*)?"  # 3, L, 2L/3
RANGE = re.compile(rf"((?P<kind>[a-z][a-z0-9-]*)-)?(?P<first>{TERM})(\.\.(?P<last>{TERM})(:(?P<step>[1-9]\d*))?)?")
WORDS = (FULL, NAMED, *NAMED_WAYS)


def tune_values(expression: str | Sequence[Any], layers: int) -> list[Recipe]:
    """Values of k from terms separated by commas, or from a list of terms.

    ``0..L/2, full`` is every k from 0 to half of the layers, and full fine-tuning. ``0..L:2`` is every second k. ``2L/3`` is two
    thirds of the layers. Fractions are rounded down. The result has numbers first, in ascending order and without duplicates.
    ``lora-0..L/2`` is one way to tune for each of these numbers. ``transferred-L`` is full fine-tuning.

    Args:
        expression: The terms, as text or as a list.
        layers: The number of layers of the model, L.

    Raises:
        FrostlineError: A term cannot be read.
    """
    text = expression if isinstance(expression, str) else ",".join(map(str, expression))
    found: list[Recipe] = []
    for part in comma_separated(text):
        with suppress(ValueError):  # such as L/2 and 0..L
            recipe = Recipe(part)
            if recipe.k is not None or recipe in WORDS:
                found.append(recipe)
                continue
        match = RANGE.fullmatch(part)
        if match is None or match["kind"] not in (None, *NUMBERED_WAYS):
            raise FrostlineError(
                f"--tune {part!r} is not a number of layers: give numbers, shares of L such as L/2, ranges such as 0..L or "
                "0..L:2, full, named, or ways to tune such as lora-2, separated by commas."
            )
        ends = []
        for term in (match["first"], match["last"] or match["first"]):
            number, _, divisor = term.partition("/")
            factor = int(number.removesuffix("L") or 1) * (layers if number.endswith("L") else 1)
            ends.append(factor // int(divisor or 1))
        numbers = range(ends[0], ends[1] + 1, int(match["step"] or 1))
        if match["kind"] is None:
            found += map(Recipe, numbers)
        else:
            names = (
                FULL if match["kind"] == "transferred" and k >= layers else f"{match['kind']}-{k}" for k in numbers
            )
            found += map(Recipe, names)
    ks = sorted({one.k for one in found if one.k is not None})
    return [*map(Recipe, ks), *dict.fromkeys(one for one in found if one.k is None)]
