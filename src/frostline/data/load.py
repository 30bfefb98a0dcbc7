"""From what a user names to the examples of a task: the whole way of the data on one screen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.checks import DataReport, report_on
from frostline.data.columns import Columns, choose_columns
from frostline.data.examples import Examples, Texts
from frostline.data.glue import MISMATCHED, GlueTask, glue_task, refuse_beside
from frostline.data.gluefiles import alike, read_glue, read_glue_splits
from frostline.data.sources import read_splits, split_word
from frostline.data.splits import LEAST, fold_numbers, hold_out
from frostline.data.tables import Table, read_table
from frostline.data.tasks import CLASSIFICATION, Task, decide_task, hidden, label_cells, targets_of
from frostline.data.wording import listed, nearest, quoted

SET_ASIDE = ("test", "validation")  # in this order
NO_TEST_SET = "There is no test set, as asked."
SHARE = 0.1  # of the training rows, set aside for each of validation and test where no file is given, by default
MOST_HELD_OUT = 2000  # but no more rows: every run scores them
HOLD_OUT, NO_TEST = "hold out", "none"
FOLDS, FEW = 5, 2000  # so many folds where there are fewer rows, if it is left to us


@dataclass(frozen=True, kw_only=True)
class Data:
    """A task and its examples. ``notes``: what was chosen and found, a sentence each, for the user to read.

    ``others``: further labelled splits by name, such as MNLI's "validation_mismatched"; the report leaves them out.
    """

    task: Task
    train: Examples
    validation: Examples
    test: Examples | None
    notes: tuple[str, ...]
    report: DataReport
    others: Mapping[str, Examples] = field(default_factory=dict)
    folds: npt.NDArray[np.int64] | None = None  # of each row, where validation is all of train, a fold after the other

    @property
    def train_rows(self) -> int:
        """Rows that one run can train on."""
        return len(self.train) - (0 if self.folds is None else int(np.bincount(self.folds).max()))


def load_data(
    *,
    train: Any = None,
    validation: Any = None,
    test: Any = None,
    data: str | Path | None = None,
    config: str | None = None,
    column_names: Sequence[str] | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    problem_type: str | None = None,
    labels: Sequence[str] | None = None,
    data_seed: int = 0,
    held_out_share: float | None = None,
    first_rows: int | None = None,
    task_name: str | None = None,
    glue: str | None = None,
    folds: int | Literal["auto"] = 0,
) -> Data:
    """Read, choose the columns, decide the task, and set aside what was not given.

    ``train``, ``validation``, ``test``: a file, ``datasets.Dataset``, ``DataFrame`` or ``pyarrow.Table``. ``data``: a
    folder with splits or the name of a hub set, instead of ``train``; ``validation`` and ``test`` then replace what it
    has. ``validation``, ``test`` = None: those of ``data``, else ``held_out_share`` of the training rows each (by default a
    tenth, at most 2,000: every run scores them), as always with "hold out". ``test`` = "none": no test at all.
    ``first_rows``: the training table ends there, before anything is set aside. ``problem_type`` and ``labels`` as in
    ``decide_task``. ``glue``: the name of a GLUE task, which says columns, labels, problem type and layout of the files,
    and is read from the hub where neither ``train`` nor ``data`` is given. ``folds``: no validation rows are set aside, all
    rows are validation, each in one of so many folds ("auto": five where there are fewer than ``FEW`` rows and no validation).
    """
    known = None if glue is None else glue_task(glue)
    if known is not None:
        refuse_beside(
            known,
            config=config,
            column_names=column_names,
            text_column=text_column,
            text_pair_column=text_pair_column,
            label_column=label_column,
            problem_type=problem_type,
            labels=labels,
        )
    tables, notes = _tables(train, validation, test, data, config, column_names, known)
    if first_rows is not None and first_rows < len(tables["train"]):
        notes.append(f"Of {len(tables['train']):,} training rows the first {first_rows:,} are read.")
        tables["train"] = tables["train"].first(first_rows)
    if known is not None:
        tables, columns = alike(tables, known)
        problem_type = known.problem_type
    else:
        columns = choose_columns(
            tables["train"], text_column=text_column, text_pair_column=text_pair_column, label_column=label_column
        )
    usual = _task_name(train, data, config) if known is None else known.name
    name = task_name if task_name is not None else usual
    task = decide_task(tables["train"], columns, name=name, problem_type=problem_type, labels=labels)
    notes += _choices(tables["train"], task)
    if train is None and test is None and "test" in tables and _unlabelled(tables["test"], task):
        notes.append(f"{tables.pop('test').name} has no labels and is left out.")
    splits = {split: _examples(table, task, split) for split, table in tables.items()}
    usual_size = min(round(SHARE * len(splits["train"])), MOST_HELD_OUT)
    size = usual_size if held_out_share is None else round(held_out_share * len(splits["train"]))
    size = max(size, len(task.labels), 1)
    if folds == "auto":
        free = "validation" not in splits and validation is None and held_out_share is None
        folds = FOLDS if free and FOLDS * LEAST <= len(splits["train"]) < FEW else 0
    numbers, asked_for_none = None, _is_word(test, NO_TEST)
    if folds:
        if "validation" in splits or validation is not None:
            raise FrostlineError(f"folds = {folds} score the training rows themselves: leave validation out, or folds.")
        if held_out_share is not None and not _is_word(test, HOLD_OUT):
            raise FrostlineError(f"folds = {folds} set nothing aside: leave held_out_share out, or folds.")
        if "test" not in splits and test is None:
            test = NO_TEST
            notes.append("No rows are set aside, for validation or test; --test FILE has a test.")
    not_wanted = {"test": _is_word(test, NO_TEST), "validation": bool(folds)}
    aside = [split for split in SET_ASIDE if split not in splits and not not_wanted[split]]
    if held_out_share is not None and held_out_share * len(aside) >= 1:
        raise FrostlineError(
            f"held_out_share = {held_out_share:g} for each of {' and '.join(aside)} leaves no training rows: give less than "
            f"{1 / len(aside):g}."
        )
    for split in SET_ASIDE:
        if split == "test" and _is_word(test, NO_TEST):
            notes += [NO_TEST_SET] * asked_for_none
        elif split == "validation" and folds:
            numbers = fold_numbers(splits["train"], task, folds, data_seed)
            notes.append(
                f"All {len(splits['train']):,} rows are validation, in {folds} folds: each run is scored on the fold that it "
                f"does not train on, seed by seed (data seed {data_seed})."
            )
        elif split not in splits:
            whole = len(splits["train"])
            splits["train"], splits[split] = hold_out(splits["train"], task, size, data_seed, split=split)
            notes.append(f"{size:,} of {whole:,} training rows are set aside for {split} (data seed {data_seed}).")
    others = {split: splits[split] for split in (MISMATCHED,) if split in splits}
    splits = {split: splits[split] for split in ("train", "validation", "test") if split in splits}
    report = report_on(splits, task)
    return Data(
        task=task,
        train=splits["train"],
        validation=splits["train"] if folds else splits["validation"],
        test=splits.get("test"),
        notes=(*notes, *report.sentences()),
        report=report,
        others=others,
        folds=numbers,
    )


def read_unlabelled(
    source: Any,
    *,
    column_names: Sequence[str] | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    trained: Mapping[str, str | None] | None = None,
) -> tuple[Texts, Columns]:
    """The texts of a table for ``predict``, and which columns they are; a column of labels may be there or not.

    ``trained``: the columns that the model was trained on, ``text`` and ``text_pair``; where the table has them, and none
    are named, they are taken.
    """
    table = read_table(source, column_names=column_names)
    if trained and text_column is None and text_pair_column is None:
        known = [trained["text"], trained.get("text_pair")]
        if all(name is None or name in table.columns for name in known):
            text_column, text_pair_column = known
    columns = choose_columns(table, text_column=text_column, text_pair_column=text_pair_column, label_needed=False)
    return _texts(table, columns), columns


def _tables(
    train: Any,
    validation: Any,
    test: Any,
    data: str | Path | None,
    config: str | None,
    names: Sequence[str] | None,
    glue: GlueTask | None,
) -> tuple[dict[str, Table], list[str]]:
    """The tables that are given, by split, and their notes."""
    if (train is None) == (data is None) and (glue is None or train is not None):
        raise FrostlineError("Give the data either with --train FILE or with --data NAME, one of the two.")
    read = partial(read_table, column_names=names) if glue is None else partial(read_glue, task=glue)
    tables = {"train": read(train, name="The training data")} if train is not None else {}
    if glue is not None and train is None:
        tables = read_glue_splits(data, glue)
    elif data is not None:
        tables = read_splits(data, config=config, column_names=names)
    elif config is not None:
        raise FrostlineError(f"--config {quoted(config)} is for a hub set given with --data; leave it out.")
    for split, source in {"validation": validation, "test": test}.items():
        if split == "validation" and _is_word(source, NO_TEST):
            raise FrostlineError("--validation none: k is chosen on validation; give a file or leave it out.")
        if _is_word(source, HOLD_OUT) or _is_word(source, NO_TEST):
            tables.pop(split, None)
        elif source is not None:
            tables[split] = read(source, name=f"the {split} data")
    return tables, list(dict.fromkeys(note for table in tables.values() for note in table.notes))


def _is_word(source: Any, word: str) -> bool:
    return isinstance(source, str) and source == word  # a frame would compare cell by cell


def _task_name(train: Any, data: str | Path | None, config: str | None) -> str:
    """Of a hub set, folder or file; of the folder where the file is only called train."""
    if data is not None:
        return "-".join(part for part in (Path(data).resolve().name, config) if part)
    if not isinstance(train, str | Path):
        return "data"
    path = Path(train).resolve()
    return path.stem if split_word(path.stem) is None else path.parent.name


def _choices(table: Table, task: Task) -> list[str]:
    what = (
        f"Classification into {len(task.labels)} classes in this order: {listed(task.labels)}."
        if task.problem_type == CLASSIFICATION
        else "Regression on a number."
    )
    return [f"{table.name}: {task.columns}.", what]


def _unlabelled(table: Table, task: Task) -> bool:
    column = task.columns.label
    return column is None or column not in table.columns or hidden(label_cells(table, column), task)


def _examples(table: Table, task: Task, split: str) -> Examples:
    columns = task.columns
    for column in (columns.text, columns.text_pair, columns.label):
        if column is not None and column not in table.columns:
            raise FrostlineError(
                f"{table.name}: there is no column {quoted(column)}{nearest(column, table.columns)}, which training "
                f"has; name its columns ({listed(table.columns)}) as there."
            )
    if split != "train" and _unlabelled(table, task):
        remedy = "leave it out, or pass --test none" if split == "test" else "leave it out"
        raise FrostlineError(
            f"{table.name}, column {quoted(columns.label)}: no row has a label (all are missing or -1, as in published "
            f"test files); give a {split} file with labels or {remedy}."
        )
    texts = _texts(table, columns)
    return Examples(
        texts=texts.texts, pairs=texts.pairs, rows=texts.rows, name=texts.name, targets=targets_of(table, task)
    )


def _texts(table: Table, columns: Columns) -> Texts:
    return Texts(
        texts=table.texts(columns.text),
        pairs=None if columns.text_pair is None else table.texts(columns.text_pair),
        rows=table.rows,
        name=table.name,
    )
