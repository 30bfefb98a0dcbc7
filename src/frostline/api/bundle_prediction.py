"""``frostline.load_bundle``: predict all tasks of a bundle at once."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frostline import FrostlineError
from frostline.api.outputs import Outputs, Predictions, text_cells, text_columns
from frostline.api.prediction import as_texts, require_shape, trained_columns
from frostline.data.examples import Texts
from frostline.frozen.trunk import LoadedBundle, branches, is_bundle, read_bundle, task_folder, task_names
from frostline.model.classifier import logits_of

if TYPE_CHECKING:
    import pandas as pd


class Bundle:
    """A loaded bundle, which is called with texts. :func:`load_bundle` makes it.

    Attributes:
        folder: The folder of the bundle.
        tasks: The names of the tasks.
    """

    def __init__(self, folder: Path, loaded: LoadedBundle) -> None:
        self.folder, self.tasks, self._loaded = folder, loaded.tasks, loaded

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
        loaded = self._loaded
        texts = as_texts(texts, text_column, text_pair_column, bundle_columns(self.folder), encoding)
        for task in self.tasks:
            require_shape(task_folder(self.folder, task), texts)
        tokens = loaded.classifiers[0].encode(texts)
        with branches(loaded.models, loaded.anatomy, loaded.sharing) as run:
            logits = logits_of(tokens, lambda batches: (run(tokens.batch(rows)) for rows in batches))
        truncated = int((tokens.dropped > 0).sum())
        return {
            task: Outputs.of_config(model.config).of_logits(texts, of_task, truncated)
            for task, of_task, model in zip(self.tasks, logits, loaded.models, strict=True)
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
    return Bundle(folder, read_bundle(folder))


def bundle_columns(folder: str | Path) -> Mapping[str, str | None] | None:
    """The columns that all tasks of a bundle were trained on; None if they differ or are not known."""
    columns = [trained_columns(task_folder(folder, task)) for task in task_names(folder)]
    inputs = [None if one is None else {name: one.get(name) for name in ("text", "text_pair")} for one in columns]
    return inputs[0] if all(one == inputs[0] for one in inputs) else None


def joined_rows(predictions: Mapping[str, Predictions]) -> Iterator[dict[str, Any]]:
    """One dictionary per text, with the predictions of all tasks: the keys of :func:`joined_columns`."""
    texts = next(iter(predictions.values())).texts
    for n in range(len(texts)):
        of_tasks = {f"{task}.{key}": x for task, one in predictions.items() for key, x in one.cells(n).items()}
        yield {**text_cells(texts, n), **of_tasks}


def joined_columns(predictions: Mapping[str, Predictions]) -> list[str]:
    """The columns of texts, and then those of each task, such as ``sst2.label`` and ``sst2.p(positive)``."""
    texts = next(iter(predictions.values())).texts
    return [*text_columns(texts), *(f"{task}.{key}" for task, one in predictions.items() for key in one.cell_columns())]
