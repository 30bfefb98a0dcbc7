"""The sweeps of a study: one for each model and task, each in its own folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.data.files import file_name, require_inside
from frostline.data.wording import model_name
from frostline.model.model_files import layers_in_config, model_folder
from frostline.report.answer.run_groups import sweep_groups
from frostline.statistics.analysis_settings import AnalysisSettings
from frostline.statistics.answer import Answer
from frostline.statistics.cells import best_learning_rate
from frostline.statistics.recipe import FULL
from frostline.studies.protocol import Protocol, tune_values
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import Folder
from frostline.sweeps.settings import make_settings


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
        from frostline.api.sweep import sweep  # imports torch, which a plan does not need

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
        FrostlineError: A link leads out of ``out``, a model does not show how many layers it has, or a setting is unusable.
    """
    models, tasks, data = models or protocol.models, tasks or protocol.tasks, data or {}
    protocol.require_tasks(tasks, data)
    sweeps = []
    for model in models:
        layers = protocol.layers_of(model) or layers_in_config(model_folder(model, None, ["config.json"])[0])
        if layers is None:
            raise FrostlineError(
                f"The configuration of {model} does not show how many layers it has: use `frostline sweep`."
            )
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
            spec = make_settings({**given, "out": str(own)})  # what is wrong is refused before the first sweep
            for recipe in spec.values_of("tune"):
                spec.way_of(recipe).require_layers(spec.depth or layers, model)
            sweeps.append(StudySweep(model, task, own, given, protocol.as_published, search))
    return sweeps
