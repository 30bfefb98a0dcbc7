"""Read GLUE tables in the layout of the hub or of the original files. Both give the same examples."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import Columns
from frostline.data.formats.delimited import first_row
from frostline.data.formats.reader import DELIMITED, read_table
from frostline.data.glue.tasks import SCORES, GlueTask
from frostline.data.labels import UNLABELLED, label_cells
from frostline.data.parsing import NUMBER
from frostline.data.table import Table
from frostline.data.wording import did_you_mean, listed, quoted


def read_glue_table(source: Any, *, task: GlueTask, name: str | None = None, encoding: str | None = None) -> Table:
    """A table of the task in any layout, with its texts and, if present, its labels. Labels get the class names of the hub.

    The columns of texts and labels keep their names; all other columns are dropped. Rows without a gold label are left out
    and counted in the notes.
    """
    names = _names_without_header(Path(source), task, encoding) if isinstance(source, str | Path) else None
    table = read_table(source, column_names=names, name=name, skip_ragged=task.broken_rows, encoding=encoding)
    columns = glue_columns(table, task)
    used = [one for one in (columns.text, columns.text_pair, columns.label) if one is not None]
    table = replace(table, columns={one: table.columns[one] for one in used})
    if columns.label is None:
        return table
    table, labels = _with_gold(table, task, columns.label, _labels(table, task, columns.label))
    indices = {label: i for i, label in enumerate(task.labels)}
    cells = [None if label is None else indices[label] for label in labels] if task.labels else labels
    return replace(
        table,
        columns={**table.columns, columns.label: cells},
        class_names={columns.label: task.labels} if task.labels else {},
    )


def glue_columns(table: Table, task: GlueTask) -> Columns:
    """The columns of the table's layout. The label is None if only the texts are present, as in a test set."""
    for with_label in (True, False):
        for columns in task.layouts:
            wanted = {columns.text, columns.text_pair, columns.label if with_label else None} - {None}
            if wanted <= set(table.columns):
                return columns if with_label else replace(columns, label=None)
    layouts = " or ".join(dict.fromkeys(_shown(columns) for columns in task.layouts))
    raise FrostlineError(
        f"{table.name}: its columns ({listed(table.columns)}) are not the columns of {task.name} ({layouts}); give a file of "
        f"{task.name}, or leave out `glue` and name the columns with --text-column and --label-column."
    )


def unify_layouts(tables: Mapping[str, Table], task: GlueTask) -> tuple[dict[str, Table], Columns]:
    """Give all tables the column names of the training table.

    Returns:
        The tables by split, and the columns of the training table.
    """
    columns = glue_columns(tables["train"], task)
    if columns.label is None:
        raise FrostlineError(
            f"{tables['train'].name}: it has no labels of {task.name} (column "
            f"{' or '.join(dict.fromkeys(quoted(one.label) for one in task.layouts))}); give a training file with them."
        )
    return {split: _renamed(table, glue_columns(table, task), columns) for split, table in tables.items()}, columns


def _names_without_header(path: Path, task: GlueTask, encoding: str | None) -> tuple[str, ...] | None:
    """The column names of a file without a header; None if it has one. Without a header, the first row contains a label."""
    if not task.headerless or path.suffix.lower() not in DELIMITED or not path.is_file():
        return None
    first = dict(zip(task.headerless, first_row(path, encoding), strict=False))
    label = next(columns.label for columns in task.layouts[::-1] if columns.label in task.headerless)
    is_label = NUMBER.fullmatch(first.get(label or "", "").strip()) is not None
    return task.headerless if is_label and len(first) == len(task.headerless) else None


def _labels(table: Table, task: GlueTask, column: str) -> list[Any]:
    """The label of each row, as the hub names it, or its score; None without a label. Values of ``no_gold`` are kept."""
    classes = table.class_names.get(column)
    if classes is not None and classes != task.labels:
        raise FrostlineError(
            f"{table.name}, column {quoted(column)}: its classes are {listed(classes)}, but the labels of {task.name} are "
            f"{listed(task.labels) or 'scores'}; give the data of {task.name}, or leave out `glue`."
        )
    if not task.labels:
        return _scores(table, task, column)
    known = {str(i): label for i, label in enumerate(task.labels)} | {label: label for label in task.labels}
    known |= {one: one for one in task.no_gold}
    labels: list[str | None] = []
    for i, cell in enumerate(label_cells(table, column)):
        stripped = None if cell is None else cell.strip()
        if stripped not in known and stripped not in UNLABELLED:
            raise FrostlineError(
                f"{table.location(i, column)}: {quoted(cell)} is not a label of {task.name}{did_you_mean(str(stripped), known)}; "
                f"its labels are {listed(task.labels)}, or their numbers from 0: correct it, or give a file of {task.name}."
            )
        labels.append(None if stripped is None else known.get(stripped))
    return labels


def _scores(table: Table, task: GlueTask, column: str) -> list[Any]:
    scores = [_shortest(cell) for cell in table.cells(column)]
    if {None if score is None else str(score) for score in scores} <= UNLABELLED:
        return [None] * len(scores)
    for i, score in enumerate(scores):
        text = "" if score is None else str(score).strip()
        if text and not (NUMBER.fullmatch(text) and SCORES[0] <= float(text) <= SCORES[1]):
            raise FrostlineError(
                f"{table.location(i, column)}: {quoted(score)} is not a score of {task.name}, whose scores are from "
                f"{SCORES[0]:g} to {SCORES[1]:g}; correct it, or give a file of {task.name}."
            )
    return scores


def _shortest(cell: Any) -> Any:
    """The shortest number that equals the score in 32 bits: the hub stores 3.8 as 3.799999952316284."""
    return float(str(np.float32(cell))) if isinstance(cell, float) else cell


def _with_gold(table: Table, task: GlueTask, column: str, labels: list[Any]) -> tuple[Table, list[Any]]:
    """The rows and their labels, without the rows that have no gold label."""
    used = [i for i, label in enumerate(labels) if label not in task.no_gold]
    count = len(labels) - len(used)
    if not count:
        return table, labels
    if not used:
        raise FrostlineError(
            f"{table.name}, column {quoted(column)}: no row has a gold label; give a file of {task.name} with labels."
        )
    note = (
        f"{table.name}: {count:,} of {len(labels):,} rows have no gold label (column {quoted(column)} is "
        f"{' or '.join(quoted(one) for one in task.no_gold)}) and are left out."
    )
    return replace(table.take(used), notes=(*table.notes, note)), [labels[i] for i in used]


def _renamed(table: Table, own: Columns, new: Columns) -> Table:
    names = {own.text: new.text, own.text_pair: new.text_pair, own.label: new.label}
    return replace(
        table,
        columns={str(names[name]): cells for name, cells in table.columns.items()},
        class_names={str(names[name]): classes for name, classes in table.class_names.items()},
    )


def _shown(columns: Columns) -> str:
    return listed(one for one in (columns.text, columns.text_pair, columns.label) if one is not None)
