"""Which models a new bundle holds, under which names. Needs no torch, so that a mistake is answered at once."""

import os
from collections.abc import Sequence
from pathlib import Path

from frostline import FrostlineError
from frostline.api.prediction import require_model, trained_task
from frostline.data.files import FILES, file_name, read_record, unrecorded
from frostline.data.wording import counted, listed, quoted
from frostline.model.model_files import BUNDLE, ESTIMATOR, TASK_NAME, format_of, has_own_code, is_bundle


def models_of_tasks(
    models: Sequence[str | Path], names: Sequence[str] | None, out: Path, *, overwrite: bool
) -> dict[str, Path]:
    """The folder of the model of each task in a new bundle ``out``, by the name of the task.

    Raises:
        FrostlineError: They are too few, one cannot be in a bundle, a name is wrong, or ``out`` would replace something else.
    """
    folders = [_model_folder(Path(model).expanduser()) for model in models]
    if len(folders) < 2:
        raise FrostlineError("A bundle needs at least two models: give the folders of several fine-tuned models.")
    tasks = dict(zip(_task_names(folders, names), folders, strict=True))
    trained = {name: trained_task(folder) for name, folder in tasks.items()}
    pairs = {name: one.columns.text_pair is not None for name, one in trained.items() if one}
    both = [[name for name, is_pair in pairs.items() if is_pair is wanted] for wanted in (True, False)]
    if all(both):
        raise FrostlineError(
            f"{listed(both[0])} read pairs of texts, but {listed(both[1])} single texts: these have different tokens, so no "
            "layer could be shared. Make one bundle of each."
        )
    _require_free(out, overwrite=overwrite)
    return tasks


def _model_folder(folder: Path) -> Path:
    """The folder of a model: ``folder`` itself, or ``model`` in the folder of a sweep."""
    if not (folder / "config.json").is_file() and (folder / "model").is_dir():
        folder = folder / "model"
    require_model(folder)
    why = None
    if is_bundle(folder):
        why = "is a bundle"
    elif format_of(folder) != "transformers":
        why = "has another head than its type"
    elif has_own_code(folder):
        why = "runs Python code of its own"
    elif (folder / ESTIMATOR).is_file():
        why = "is a probe, a TF-IDF model or one of SetFit"
    if why:
        raise FrostlineError(
            f"The model in {folder} {why}, which a bundle cannot hold: leave it out, and run `frostline predict` with it."
        )
    return folder


def _task_names(folders: Sequence[Path], names: Sequence[str] | None) -> list[str]:
    """A unique name for each model."""
    if names is None:
        paths = [Path(os.path.abspath(folder)) for folder in folders]
        names = [file_name(path.parent.name if path.name == "model" else path.name) for path in paths]
    if len(names) != len(folders):
        have = f"{counted(len(names), 'name')} for {counted(len(folders), 'model')}"
        raise FrostlineError(f"--names has {have}: give one for each model.")
    first: dict[str, Path] = {}
    for name, folder in zip(names, folders, strict=True):
        if not TASK_NAME.fullmatch(name):
            raise FrostlineError(f"{quoted(name)} cannot be the name of a task: use letters, digits, '.', '_' and '-'.")
        if other := first.get(name.casefold()):
            raise FrostlineError(
                f"{other} and {folder} would both be called {quoted(name)}: name all tasks with --names."
            )
        first[name.casefold()] = folder
    return list(names)


def _require_free(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder that a bundle would replace, unless it is a bundle and ``overwrite`` is given."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise FrostlineError(f"{out} exists: give another --out, or --overwrite.")
    if not is_bundle(out):
        raise FrostlineError(f"{out} exists and is not a bundle, so it is not replaced: give another --out.")
    try:
        recorded = read_record(out / BUNDLE)[FILES]
    except (OSError, ValueError):  # damaged
        recorded = {}
    if others := unrecorded(out, BUNDLE, recorded):
        raise FrostlineError(
            f"{out} has files that are not of its bundle ({others[0]}), so it is not replaced: give another --out."
        )
