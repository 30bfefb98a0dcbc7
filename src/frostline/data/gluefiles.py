"""GLUE's tasks read from the hub's layout or from the original files, so that both give the same examples."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import Columns
from frostline.data.glue import HUB_SET, MISMATCHED, SCORES, GlueTask
from frostline.data.sources import Read, from_dict, from_folder, is_folder, joined, load_hub, split_word
from frostline.data.tables import DELIMITED, Table, read_table
from frostline.data.tasks import HIDDEN, NUMBER, label_cells
from frostline.data.textfiles import first_row
from frostline.data.wording import listed, nearest, quoted

NO_HUB_SET = {
    True: "--glue {task}: {{name}} could not be loaded from the hub ({{reason}}); give the files of {task} with --data "
    "FOLDER or --train FILE, or check the network.",
    False: "--data {{name}}: there is no such folder, and no hub set with {task} could be loaded by that name "
    "({{reason}}); check the name and the network.",
}


def read_glue_splits(data: str | Path | None, task: GlueTask) -> dict[str, Table]:
    """The tables of a task by split, from a folder or a hub set; None is GLUE's own on the hub.

    A folder may be the task's, or hold it under its name or its config (``glue_data/CoLA``, a copy of the hub's).
    MNLI's second validation set is the split "validation_mismatched".
    """
    read, split_of = partial(read_glue, task=task), partial(_split_of, task)
    if data is None or not is_folder(Path(data)):
        name = HUB_SET if data is None else str(data)
        config = task.config if name.rpartition("/")[2] == "glue" else None
        loaded = load_hub(name, config, NO_HUB_SET[data is None].format(task=task.name))
        return from_dict(loaded, f"{name}, {config}" if config else name, read, split_of)
    folder = next((one for part in (task.config, task.name) if (one := Path(data) / part).is_dir()), Path(data))
    for files in task.files:
        there = {split: [path for name in names if (path := folder / name).is_file()] for split, names in files.items()}
        if there["train"]:
            return {split: _parts(paths, split, read) for split, paths in there.items() if paths}
    return from_folder(folder, read, split_of)


def read_glue(source: Any, *, task: GlueTask, name: str | None = None) -> Table:
    """A table of the task in any layout: its texts and, where it has them, its labels under the hub's names.

    Columns keep their names; the others are gone. Rows without a gold label are left out, and counted in the notes.
    """
    names = _column_names(Path(source), task) if isinstance(source, str | Path) else None
    table = read_table(source, column_names=names, name=name, leave_out_ragged=task.broken_rows)
    columns = glue_columns(table, task)
    kept = [one for one in (columns.text, columns.text_pair, columns.label) if one is not None]
    table = replace(table, columns={one: table.columns[one] for one in kept})
    if columns.label is None:
        return table
    labels, told = _labels(table, task, columns.label), set(task.no_gold)
    with_gold = np.array([label not in told for label in labels])
    if not with_gold.any():
        raise FrostlineError(
            f"{table.name}, column {quoted(columns.label)}: no row has a gold label; give a file of {task.name} with "
            "labels."
        )
    if not with_gold.all():
        table, labels = _without_gold(table, task, columns.label, labels)
    indices = {label: i for i, label in enumerate(task.labels)}
    cells = [None if label is None else indices[label] for label in labels] if task.labels else labels
    return replace(
        table,
        columns={**table.columns, columns.label: cells},
        class_names={columns.label: task.labels} if task.labels else {},
    )


def glue_columns(table: Table, task: GlueTask) -> Columns:
    """The columns of the layout that the table has; no label where only its texts are there, as in a test set."""
    for whole in (True, False):
        for columns in task.layouts:
            wanted = {columns.text, columns.text_pair, columns.label if whole else None} - {None}
            if wanted <= set(table.columns):
                return columns if whole else replace(columns, label=None)
    layouts = " or ".join(dict.fromkeys(_shown(columns) for columns in task.layouts))
    raise FrostlineError(
        f"{table.name}: its columns ({listed(table.columns)}) are not those of {task.name} ({layouts}); give a file of "
        f"{task.name}, or leave out --glue and name them with --text-column and --label-column."
    )


def alike(tables: Mapping[str, Table], task: GlueTask) -> tuple[dict[str, Table], Columns]:
    """The tables with the names that training's columns have, and these: splits may come in several layouts."""
    columns = glue_columns(tables["train"], task)
    if columns.label is None:
        raise FrostlineError(
            f"{tables['train'].name}: it has no labels of {task.name} (column "
            f"{' or '.join(dict.fromkeys(quoted(one.label) for one in task.layouts))}); give a training file with them."
        )
    return {split: _renamed(table, glue_columns(table, task), columns) for split, table in tables.items()}, columns


def _split_of(task: GlueTask, name: str) -> str | None:
    words = name.lower().replace("-", "_").split("_")
    if any(MISMATCHED in files for files in task.files) and "mismatched" in words:
        plain = split_word("_".join(word for word in words if word != "mismatched"))
        return MISMATCHED if plain == "validation" else None
    return split_word(name)


def _parts(paths: list[Path], split: str, read: Read) -> Table:
    """The files of one split, which are one table; CoLA's public validation sets are two."""
    table = joined([read(path) for path in paths])
    if len(paths) == 1:
        return table
    note = f"{paths[0].parent}: {listed(path.name for path in paths)} are read as one {split} split, as in GLUE."
    return replace(table, notes=(*table.notes, note))


def _column_names(path: Path, task: GlueTask) -> tuple[str, ...] | None:
    """The names of the columns where a file of the task has no header: its first row bears a label."""
    if not task.headerless or path.suffix.lower() not in DELIMITED or not path.is_file():
        return None
    first = dict(zip(task.headerless, first_row(path), strict=False))
    label = next(columns.label for columns in task.layouts[::-1] if columns.label in task.headerless)
    is_label = NUMBER.fullmatch(first.get(label or "", "").strip()) is not None
    return task.headerless if is_label and len(first) == len(task.headerless) else None


def _labels(table: Table, task: GlueTask, column: str) -> list[Any]:
    """The hub's name of each row's label, or its score; None where it is hidden, and ``no_gold`` as it stands."""
    classes = table.class_names.get(column)
    if classes is not None and classes != task.labels:
        raise FrostlineError(
            f"{table.name}, column {quoted(column)}: its classes are {listed(classes)}, and those of {task.name} are "
            f"{listed(task.labels) or 'none, but scores'}; give the data of {task.name}, or leave out --glue."
        )
    if not task.labels:
        return _scores(table, task, column)
    known = {str(i): label for i, label in enumerate(task.labels)} | {label: label for label in task.labels}
    known |= {one: one for one in task.no_gold}
    labels: list[str | None] = []
    for i, cell in enumerate(label_cells(table, column)):
        plain = None if cell is None else cell.strip()
        if plain not in known and plain not in HIDDEN:
            raise FrostlineError(
                f"{table.where(i, column)}: {quoted(cell)} is no label of {task.name}{nearest(str(plain), known)}; it "
                f"has {listed(task.labels)}, or their numbers from 0 on: correct it, or give a file of {task.name}."
            )
        labels.append(None if plain is None else known.get(plain))
    return labels


def _scores(table: Table, task: GlueTask, column: str) -> list[Any]:
    scores = [_shortest(cell) for cell in table.cells(column)]
    if {None if score is None else str(score) for score in scores} <= HIDDEN:
        return [None] * len(scores)
    for i, score in enumerate(scores):
        text = "" if score is None else str(score).strip()
        if text and not (NUMBER.fullmatch(text) and SCORES[0] <= float(text) <= SCORES[1]):
            raise FrostlineError(
                f"{table.where(i, column)}: {quoted(score)} is no score of {task.name}, which go from "
                f"{SCORES[0]:g} to {SCORES[1]:g}; correct it, or give a file of {task.name}."
            )
    return scores


def _shortest(cell: Any) -> Any:
    """The hub keeps scores in 32 bits: 3.8 is 3.799999952316284 there, and 3.8 in the original file."""
    return float(str(np.float32(cell))) if isinstance(cell, float) else cell


def _without_gold(table: Table, task: GlueTask, column: str, labels: list[Any]) -> tuple[Table, list[Any]]:
    kept = [i for i, label in enumerate(labels) if label not in task.no_gold]
    count = len(labels) - len(kept)
    note = (
        f"{table.name}: {count:,} of {len(labels):,} rows have no gold label (column {quoted(column)} is "
        f"{' or '.join(quoted(one) for one in task.no_gold)}) and are left out."
    )
    columns = {name: table.cells(name) for name in table.columns}
    columns = {name: [cells[i] for i in kept] for name, cells in columns.items()}
    table = replace(table, columns=columns, rows=table.rows[kept], notes=(*table.notes, note))
    return table, [labels[i] for i in kept]


def _renamed(table: Table, own: Columns, wanted: Columns) -> Table:
    names = {own.text: wanted.text, own.text_pair: wanted.text_pair, own.label: wanted.label}
    return replace(
        table,
        columns={str(names[name]): cells for name, cells in table.columns.items()},
        class_names={str(names[name]): classes for name, classes in table.class_names.items()},
    )


def _shown(columns: Columns) -> str:
    return listed(one for one in (columns.text, columns.text_pair, columns.label) if one is not None)
