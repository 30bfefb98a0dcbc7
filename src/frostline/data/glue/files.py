"""Find the files of a GLUE task: on the hub, in a copy of the hub's folder, or as originally distributed."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from frostline.data.dataset_sources import (
    Read,
    concatenated,
    from_dict,
    from_folder,
    is_folder,
    load_hub,
    split_of_name,
)
from frostline.data.glue.tables import read_glue_table
from frostline.data.glue.tasks import HUB_SET, MISMATCHED, GlueTask
from frostline.data.table import Table
from frostline.data.wording import listed

NO_GLUE_ON_HUB = (
    "{task}: {{name}} could not be loaded from the hub ({{reason}}); give the files of {task} with --data, or check the "
    "network."
)
NO_SUCH_HUB_SET = (
    "--data {{name}}: there is no such folder, and no hub data set with {task} could be loaded by that name "
    "({{reason}}); check the name and the network."
)


def read_glue_splits(data: str | Path | None, task: GlueTask, encoding: str | None = None) -> dict[str, Table]:
    """The tables of a task by split. MNLI's second validation set is the split "validation_mismatched".

    Args:
        data: The folder of the task, a folder that contains the task's folder (``glue_data/CoLA``, or a copy of the hub's), or
            a hub data set. None is GLUE on the hub.
        task: The task.
        encoding: The encoding of files that are not UTF-8.
    """
    read, split_of = partial(read_glue_table, task=task, encoding=encoding), partial(_split_of_name, task)
    if data is None or not is_folder(Path(data)):
        name = HUB_SET if data is None else str(data)
        config = task.config if name.rpartition("/")[2] == "glue" else None
        message = NO_GLUE_ON_HUB if data is None else NO_SUCH_HUB_SET
        loaded = load_hub(name, config, message.format(task=task.name))
        return from_dict(loaded, f"{name}, {config}" if config else name, read, split_of)
    folder = next((one for part in (task.config, task.name) if (one := Path(data) / part).is_dir()), Path(data))
    for files in task.files:
        present = {
            split: [path for name in names if (path := folder / name).is_file()] for split, names in files.items()
        }
        if present["train"]:
            return {split: _read_parts(paths, split, read) for split, paths in present.items() if paths}
    return from_folder(folder, read, split_of)


def _split_of_name(task: GlueTask, name: str) -> str | None:
    """Like ``split_of_name``, but it also finds the mismatched validation set of MNLI."""
    words = name.lower().replace("-", "_").split("_")
    if any(MISMATCHED in files for files in task.files) and "mismatched" in words:
        split = split_of_name("_".join(word for word in words if word != "mismatched"))
        return MISMATCHED if split == "validation" else None
    return split_of_name(name)


def _read_parts(paths: list[Path], split: str, read: Read) -> Table:
    """The files of one split as one table. CoLA has two public validation files."""
    table = concatenated([read(path) for path in paths])
    if len(paths) == 1:
        return table
    note = f"{paths[0].parent}: {listed(path.name for path in paths)} are read as one {split} split, as in GLUE."
    return replace(table, notes=(*table.notes, note))
