"""Carry a protocol out: a sweep for each model and task, each in a folder of its own that resumes like any other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.api.sweep import Sweep
from frostline.data.folding import plain
from frostline.data.glue import GLUE
from frostline.report.answer.gather import sweep_groups
from frostline.report.formatting import model_name
from frostline.statistics.cells import FULL, best_rate
from frostline.statistics.choices import Choices
from frostline.studies.counts import configuration
from frostline.studies.protocol import Protocol, depths
from frostline.sweep.execution.progress import Progress
from frostline.sweep.results.store import file_name


@dataclass(frozen=True)
class Part:
    """One model on one task: the settings of its sweep, and the rates that are tried on full first."""

    model: str
    task: str
    out: Path
    settings: Mapping[str, Any]
    choices: Choices
    line_search: tuple[float, ...] = ()

    def sweep(self, progress: Progress | None = None, **other: Any) -> Sweep:
        return Sweep(progress=progress, **{**self.settings, "out": self.out, **other})


def parts(
    protocol: Protocol,
    out: str | Path,
    *,
    models: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
    data: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> list[Part]:
    """The sweeps of a study. ``models``, ``tasks``: others, or fewer; ``data``: a folder or hub set by task;
    ``settings``: fields of a sweep that replace the protocol's.

    Raises:
        FrostlineError: a task that nobody knows, or data for a task that is not run.
    """
    models, tasks, data, given = models or protocol.models, tasks or protocol.tasks, data or {}, dict(settings or {})
    unknown = next((task for task in data if task not in tasks), None)
    if unknown is not None:
        raise FrostlineError(
            f"--data {unknown}={data[unknown]}: {unknown} is no task of this study; its tasks are {', '.join(tasks)}."
        )
    for task in tasks:
        if task not in (*protocol.tasks, *data) and plain(task) not in GLUE:
            raise FrostlineError(
                f"{task} is no task of {protocol.name} ({', '.join(protocol.tasks)}) and none of GLUE: give its data with --data "
                f"{task}=FOLDER."
            )
    return [_part(protocol, Path(out), model, task, data, given) for model in models for task in tasks]


def carry_out(all_parts: Sequence[Part], progress: Progress | None = None) -> Iterator[tuple[Part, dict[str, Any]]]:
    """Run what has no result yet; each part with the answer of its sweep, as it comes. No models are saved."""
    for part in all_parts:
        chosen: dict[str, Any] = {}
        if part.line_search:
            part.sweep(progress, tune="all", tune_modules=None, learning_rate=part.line_search).run(save_model=False)
            chosen["learning_rate"] = _best(part)
        yield part, part.sweep(progress, **chosen).run(save_model=False)


def _best(part: Part) -> float | None:
    """The rate of the line search that is best for full, as the study chooses."""
    group = next(iter(sweep_groups(part.out)))
    full = [run for run in group.runs if run["trainable"] == FULL and run["learning_rate"] in part.line_search]
    largest = max(run["train_size"] for run in full)
    return best_rate([run for run in full if run["train_size"] == largest], group.evidence.chance, part.choices)


def _part(
    protocol: Protocol, out: Path, model: str, task: str, data: Mapping[str, str], given: Mapping[str, Any]
) -> Part:
    settings = {**protocol.settings_of(model, task), **({"data": data[task]} if task in data else {}), **given}
    settings["tune"] = depths(settings.get("tune", protocol.tune), _layers(protocol, model))
    search: tuple[float, ...] = ()
    if "learning_rate" not in settings:
        rates = protocol.line_search
        search, settings["learning_rate"] = (rates, rates) if protocol.as_published.one_rate else ((), rates)
    folder = out / file_name(model_name(model)) / file_name(task)
    return Part(model, task, folder, settings, protocol.as_published, search)


def _layers(protocol: Protocol, model: str) -> int:
    layers = getattr(configuration(protocol, model), "num_hidden_layers", None)
    if layers is None:
        raise FrostlineError(f"The configuration of {model} does not say how many layers it has: give --tune.")
    return int(layers)
