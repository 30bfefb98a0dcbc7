"""GLUE: the nine tasks, their tables in any layout, and their files."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import Columns
from frostline.data.dataset_sources import (
    from_dict,
    from_folder,
    is_folder,
    load_hub,
    split_of_name,
)
from frostline.data.kinds import CLASSIFICATION, FORMAT_OF, REGRESSION, DataSettings
from frostline.data.labels import UNLABELLED, label_cells
from frostline.data.reader import read_table
from frostline.data.table import Table
from frostline.data.text_files import first_row
from frostline.data.wording import NUMBER, did_you_mean, listed, normalized_name, quoted

HUB_SET = "nyu-mll/glue"
MISMATCHED = "validation_mismatched"  # MNLI's second validation set
SCORES = (0.0, 5.0)  # range of STS-B
DECIDED_OPTIONS = (  # options that a GLUE task decides
    *("config", "column_names", "text_column", "text_pair_column", "label_column", "tag_column", "word_column"),
    *("indicator_columns", "label_separator", "group_column", "task_type", "labels"),
)


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task of GLUE.

    Attributes:
        name: The name in all results.
        labels: The names of the classes in the order of their indices; empty for a regression.
        metric: The name of the metric in ``frostline.statistics.metrics``.
        layouts: The columns of the hub data set, then those of the original files.
        headerless: The columns of original files without a header.
        no_gold: Values of the label column that mean "no gold label". Such rows are left out.
        broken_rows: Whether the distributed files have rows with a wrong number of cells.
    """

    name: str
    labels: tuple[str, ...]
    metric: str
    layouts: tuple[Columns, ...]
    headerless: tuple[str, ...] = ()
    no_gold: tuple[str, ...] = ()
    broken_rows: bool = False

    @property
    def config(self) -> str:
        """The configuration of the hub data set."""
        return normalized_name(self.name)

    @property
    def task_type(self) -> str:
        return CLASSIFICATION if self.labels else REGRESSION

    def refuse_redundant(self, settings: DataSettings) -> None:
        """Raise an error if the user gives an option that the task decides."""
        given = [f"--{name.replace('_', '-')}" for name in DECIDED_OPTIONS if getattr(settings, name) is not None]
        if given:
            raise FrostlineError(
                f"{', '.join(given)} cannot be given with {self.name} of GLUE, which decides columns, labels and files; leave "
                f"{'it' if len(given) == 1 else 'them'} out, or leave out `glue`."
            )


SENTENCE = Columns(text="sentence", label="label")
SENTENCES = Columns(text="sentence1", text_pair="sentence2", label="label")
ENTAILMENT = ("entailment", "not_entailment")

GLUE = {
    task.config: task
    for task in (
        GlueTask(
            name="CoLA",
            labels=("unacceptable", "acceptable"),
            metric="matthews_correlation",
            layouts=(SENTENCE,),
            headerless=("source", "label", "mark", "sentence"),
        ),
        GlueTask(name="SST-2", labels=("negative", "positive"), metric="accuracy", layouts=(SENTENCE,)),
        GlueTask(
            name="MRPC",
            labels=("not_equivalent", "equivalent"),
            metric="f1",
            layouts=(SENTENCES, Columns(text="#1 String", text_pair="#2 String", label="Quality")),
        ),
        GlueTask(
            name="STS-B",
            labels=(),
            metric="spearmanr",
            layouts=(SENTENCES, Columns(text="sentence1", text_pair="sentence2", label="score")),
            headerless=("genre", "file", "year", "index", "score", "sentence1", "sentence2"),
        ),
        GlueTask(
            name="QQP",
            labels=("not_duplicate", "duplicate"),
            metric="f1",
            layouts=(
                Columns(text="question1", text_pair="question2", label="label"),
                Columns(text="question1", text_pair="question2", label="is_duplicate"),
            ),
            no_gold=("",),
            broken_rows=True,
        ),
        GlueTask(
            name="MNLI",
            labels=("entailment", "neutral", "contradiction"),
            metric="accuracy",
            layouts=(
                Columns(text="premise", text_pair="hypothesis", label="label"),
                Columns(text="sentence1", text_pair="sentence2", label="gold_label"),
            ),
            no_gold=("-",),
        ),
        GlueTask(
            name="QNLI",
            labels=ENTAILMENT,
            metric="accuracy",
            layouts=(Columns(text="question", text_pair="sentence", label="label"),),
        ),
        GlueTask(name="RTE", labels=ENTAILMENT, metric="accuracy", layouts=(SENTENCES,)),
        GlueTask(name="WNLI", labels=ENTAILMENT[::-1], metric="accuracy", layouts=(SENTENCES,)),
    )
}

# The score of the best constant prediction on the development sets, from their numbers of rows per class.
DEV_CHANCE: Mapping[tuple[str, str], float] = {
    ("cola", "accuracy"): 721 / 1043,
    ("sst2", "accuracy"): 444 / 872,
    ("mrpc", "accuracy"): 279 / 408,
    ("mrpc", "f1"): 2 * 279 / (279 + 408),
    ("qqp", "accuracy"): 25545 / 40430,
    ("qqp", "f1"): 2 * 14885 / (14885 + 40430),
    ("mnli", "accuracy"): 3479 / 9815,
    ("mnlimm", "accuracy"): 3463 / 9832,
    ("qnli", "accuracy"): 2761 / 5463,
    ("rte", "accuracy"): 146 / 277,
    ("wnli", "accuracy"): 40 / 71,
}


def glue_task(name: str) -> GlueTask:
    """The task with this name, in any case and with or without hyphen.

    Raises:
        FrostlineError: GLUE has no such task. The message lists all tasks.
    """
    found = GLUE.get(normalized_name(name))
    if found is None:
        names = [task.name for task in GLUE.values()]
        raise FrostlineError(
            f"--glue {quoted(name)} is not a task of GLUE{did_you_mean(name, names)}; pass one of {', '.join(names)}."
        )
    return found


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
    labels = _labels(table, task, columns.label)
    gold = [i for i, label in enumerate(labels) if label not in task.no_gold]
    if not gold:
        raise FrostlineError(
            f"{table.name}, column {quoted(columns.label)}: no row has a gold label; give a file of {task.name} with labels."
        )
    if without := len(labels) - len(gold):
        note = (
            f"{table.name}: {without:,} of {len(labels):,} rows have no gold label (column {quoted(columns.label)} is "
            f"{' or '.join(map(quoted, task.no_gold))}) and are left out."
        )
        table, labels = replace(table.take(gold), notes=(*table.notes, note)), [labels[i] for i in gold]
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
    each = [[one for one in (columns.text, columns.text_pair, columns.label) if one] for columns in task.layouts]
    layouts = " or ".join(dict.fromkeys(map(listed, each)))
    raise FrostlineError(
        f"{table.name}: its columns ({listed(table.columns)}) are not the columns of {task.name} ({layouts}); give a file of "
        f"{task.name}, or leave out `glue` and name the columns with --text-column and --label-column."
    )


def training_columns(train: Table, task: GlueTask) -> Columns:
    """The columns of a training table, which must have labels."""
    columns = glue_columns(train, task)
    if columns.label is None:
        raise FrostlineError(
            f"{train.name}: it has no labels of {task.name} (column "
            f"{' or '.join(dict.fromkeys(quoted(one.label) for one in task.layouts))}); give a training file with them."
        )
    return columns


def _names_without_header(path: Path, task: GlueTask, encoding: str | None) -> tuple[str, ...] | None:
    """The column names of a file without a header; None if it has one. Without a header, the first row contains a label."""
    if not task.headerless or FORMAT_OF.get(path.suffix.lower()) not in ("CSV", "TSV") or not path.is_file():
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
    # The shortest number that equals the score in 32 bits: the hub stores 3.8 as 3.799999952316284.
    scores = [float(str(np.float32(cell))) if isinstance(cell, float) else cell for cell in table.cells(column)]
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


def read_glue_splits(data: str | Path | None, task: GlueTask, encoding: str | None) -> dict[str, Table]:
    """The tables of a task by split. MNLI's second validation set is the split "validation_mismatched".

    ``data`` is the folder of the task, a folder that contains the task's folder (``glue_data/CoLA``, or a copy of the hub's), or
    a hub data set. None is GLUE on the hub.
    """
    read, split_of = partial(read_glue_table, task=task, encoding=encoding), partial(_split_of_name, task)
    if data is None or not is_folder(Path(data)):
        name = HUB_SET if data is None else str(data)
        config = task.config if name.rpartition("/")[2] == "glue" else None
        return from_dict(load_hub(name, config), f"{name}, {config}" if config else name, read, split_of)
    folder = next((one for part in (task.config, task.name) if (one := Path(data) / part).is_dir()), Path(data))
    names = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
    if task.config == "mnli":
        names |= {"validation": "dev_matched.tsv", MISMATCHED: "dev_mismatched.tsv", "test": "test_matched.tsv"}
    files = {split: folder / name for split, name in names.items() if (folder / name).is_file()}
    if "train" in files:  # beside other files, as the common download script leaves them
        return {split: read(path) for split, path in files.items()}
    return from_folder(folder, read, split_of)


def _split_of_name(task: GlueTask, name: str) -> str | None:
    """Like ``split_of_name``, but it also finds the mismatched validation set of MNLI."""
    words = name.lower().replace("-", "_").split("_")
    if task.config == "mnli" and "mismatched" in words:
        split = split_of_name("_".join(word for word in words if word != "mismatched"))
        return MISMATCHED if split == "validation" else None
    return split_of_name(name)
