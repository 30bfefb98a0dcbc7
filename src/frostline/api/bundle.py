"""Several fine-tuned models that share their frozen layers in one folder: write it, and predict all tasks with it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from frostline import FrostlineError
from frostline.api.bundle_inputs import models_of_tasks
from frostline.api.prediction import Outputs, Predictions, as_texts, require_shape, text_cells, trained_task
from frostline.data.columns import Columns
from frostline.data.examples import Texts
from frostline.data.files import make_folder
from frostline.data.wording import first_line
from frostline.frozen.exactness import LAYER_ERRORS
from frostline.frozen.trunk import (
    Contents,
    branches,
    find_sharing,
    read_bundle,
    task_folder,
    task_names,
    write_bundle,
)
from frostline.model.anatomy import find_layers, probe_batch
from frostline.model.classifier import load_classifier, logits_of
from frostline.model.model_files import MODEL_FILES, is_bundle, model_written

if TYPE_CHECKING:
    import pandas as pd

LENGTHS = (40, 31, 22, 13) * 4  # tokens of the random texts on which a new bundle is checked and timed
REPETITIONS = 3  # of the timing


@dataclass(frozen=True)
class Cost:
    """What it costs to keep all tasks and to run them.

    Attributes:
        disk_bytes: The size of all files.
        memory_bytes: The size of all weights in memory.
        layers: How many layers run for a batch.
        seconds: The time of all tasks for 16 random texts of 13 to 40 tokens, without loading.
    """

    disk_bytes: int
    memory_bytes: int
    layers: int
    seconds: float


@dataclass(frozen=True)
class Bundled:
    """What :func:`bundle` wrote.

    Attributes:
        out: The folder.
        layers: The number of layers of each model.
        shared_layers: How many of the lowest layers each task shares, by name.
        cost: The cost of the bundle.
        separate: The cost of the separate models.
    """

    out: Path
    layers: int
    shared_layers: Mapping[str, int]
    cost: Cost
    separate: Cost


def bundle(
    models: Sequence[str | Path], *, out: str | Path, names: Sequence[str] | None = None, overwrite: bool = False
) -> Bundled:
    """Write several fine-tuned models of one pretrained model into one folder. Weights that they share are written once.

    The bundle is checked: for random texts, its logits must be bitwise identical to those of each model alone.

    Args:
        models: Folders of models, or folders of sweeps or searches, of which the recommended model is taken.
        out: The folder of the bundle.
        names: The names of the tasks. By default they are those of the folders.
        overwrite: Whether to replace an existing bundle.

    Raises:
        FrostlineError: The models cannot be in one bundle, or the folder cannot be written.
    """
    out = Path(out).expanduser()
    tasks = models_of_tasks(models, names, out, overwrite=overwrite)
    contents: dict[str, Contents] = {}
    for name, folder in tasks.items():
        classifier = load_classifier(folder)
        contents[name] = Contents.of(classifier, find_layers(classifier.model))
    sharing = find_sharing(contents)
    make_folder(out.parent, inside=out.parent)
    with model_written(out, "bundle") as aside:
        write_bundle(aside, tasks, sharing)
        cost, separate = _compare(aside, tasks)
    return Bundled(out, sharing.layers, dict(zip(tasks, sharing.cuts, strict=True)), cost, separate)


def _compare(folder: Path, tasks: Mapping[str, Path]) -> tuple[Cost, Cost]:
    """The costs of a bundle and of the separate models."""
    classifiers, anatomy, sharing = read_bundle(folder)
    models = [one.model for one in classifiers.values()]
    batch, kind = probe_batch(models[0], LENGTHS), models[0].config.model_type
    try:
        with branches(models, anatomy, sharing) as run:
            together, seconds = _timed(lambda: run(batch))
    except LAYER_ERRORS as error:
        raise FrostlineError(
            f"A model of type {kind!r} cannot be in a bundle, because its layers need more from the layers below than hidden "
            f"states ({first_line(error)}): run `frostline predict` with each model."
        ) from error
    disk, memory, alone_seconds = 0, 0, 0.0
    for (name, origin), logits in zip(tasks.items(), together, strict=True):
        model = load_classifier(origin).model
        (alone,), taken = _timed(lambda model=model: [model(**batch).logits])  # type: ignore[misc]
        if not torch.equal(alone, logits):
            raise FrostlineError(
                f"In the bundle, {name} has other logits than its model alone, so a model of type {kind!r} cannot be in a "
                "bundle: run `frostline predict` with each model."
            )
        disk += _size({file for pattern in MODEL_FILES for file in origin.glob(pattern)})
        memory += _weights([model])
        alone_seconds += taken
    own_disk = _size(file for file in folder.rglob("*") if file.is_file())
    cost = Cost(own_disk, _weights(models), sharing.layers_run, seconds)
    return cost, Cost(disk, memory, len(tasks) * sharing.layers, alone_seconds)


def _timed(run: Callable[[], list[Tensor]]) -> tuple[list[Tensor], float]:
    """The result of a forward pass and its shortest time in seconds, after one that is not timed."""
    with torch.no_grad():
        logits, seconds = run(), []
        for _ in range(REPETITIONS):
            start = perf_counter()
            run()
            seconds.append(perf_counter() - start)
    return logits, min(seconds)


def _size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _weights(models: Sequence[PreTrainedModel]) -> int:
    """The bytes of all weights. Those that several models share count once."""
    return sum({p.data_ptr(): p.nbytes for model in models for p in model.parameters()}.values())


class Bundle:
    """A loaded bundle, which is called with texts. :func:`load_bundle` makes it.

    Attributes:
        folder: The folder of the bundle.
        tasks: The names of the tasks.
    """

    def __init__(self, folder: Path) -> None:
        self._classifiers, self._anatomy, self._sharing = read_bundle(folder)
        self.folder, self.tasks = folder, tuple(self._classifiers)

    def __call__(
        self,
        texts: "str | Path | pd.DataFrame | Sequence[str] | Texts",
        *,
        text_column: str | None = None,
        text_pair_column: str | None = None,
        encoding: str | None = None,
    ) -> dict[str, Predictions]:
        """Predict all tasks for the same texts. The shared layers run once.

        Args:
            texts: As in :func:`frostline.predict`.
            text_column: The column of the texts in a table. By default it is that of the training data if it is the same for
                all tasks, or found by its name.
            text_pair_column: The column of the second texts of pairs, likewise.
            encoding: The encoding of a text file that is not UTF-8.

        Returns:
            The predictions of each task, by name. On a CPU they are bitwise identical to those of its model alone.

        Raises:
            FrostlineError: The table cannot be read, or has single texts for a bundle of pairs or the reverse.
        """
        texts = as_texts(
            *(texts, bundle_columns(self.folder)),
            text_column=text_column,
            text_pair_column=text_pair_column,
            encoding=encoding,
        )
        for task in self.tasks:
            require_shape(task_folder(self.folder, task), texts)
        tokens = self._classifiers[self.tasks[0]].encode(texts)
        models = [one.model for one in self._classifiers.values()]
        with branches(models, self._anatomy, self._sharing) as run:
            logits = logits_of(tokens, lambda batches: (run(tokens.batch(rows)) for rows in batches))
        truncated = int((tokens.dropped > 0).sum())
        return {
            task: Outputs.of_config(model.config).of_logits(texts, of_task.numpy(), truncated)
            for task, of_task, model in zip(self.tasks, logits, models, strict=True)
        }


def load_bundle(folder: str | Path) -> Bundle:
    """Load a bundle. Weights that its tasks share are in memory once.

    Args:
        folder: The folder that ``frostline bundle`` wrote. Nothing else is needed.

    Raises:
        FrostlineError: The folder is not a bundle, or is damaged.
    """
    folder = Path(folder)
    if not is_bundle(folder):
        raise FrostlineError(f"{folder} is not a bundle (it has no bundle.json): make one with `frostline bundle`.")
    return Bundle(folder)


def bundle_columns(folder: str | Path) -> Columns | None:
    """The columns of the texts that all tasks of a bundle were trained on; None if they differ or are not known."""
    tasks = [trained_task(task_folder(folder, task)) for task in task_names(folder)]
    known = {Columns(text=one.columns.text, text_pair=one.columns.text_pair) if one else None for one in tasks}
    return known.pop() if len(known) == 1 else None


def joined(predictions: Mapping[str, Predictions]) -> Iterator[dict[str, Any]]:
    """One dictionary per text, with the predictions of all tasks, such as ``sst2.label``."""
    texts = next(iter(predictions.values())).texts
    for n in range(len(texts)):
        of_tasks = {f"{task}.{key}": x for task, one in predictions.items() for key, x in one.cells(n).items()}
        yield {**text_cells(texts, n), **of_tasks}
