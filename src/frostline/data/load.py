"""Load the data: from the user's files and options to the examples of a task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.checks import DataReport, garbled, report_on
from frostline.data.columns import (
    Columns,
    choose_columns,
    is_list,
    missing_tags,
    nested,
    other_unit,
    task_of_lists,
    without_header,
)
from frostline.data.dataset_sources import read_splits, source_name
from frostline.data.examples import Examples, Texts
from frostline.data.glue import (
    MISMATCHED,
    GlueTask,
    glue_task,
    read_glue_splits,
    read_glue_table,
    refuse_redundant_options,
    unify_layouts,
)
from frostline.data.kinds import (
    CLASSIFICATION,
    HOLD_OUT,
    MULTI_LABEL,
    NO_TEST,
    REGRESSION,
    TASK_TYPES,
    TOKENS,
    DataSpec,
    is_keyword,
)
from frostline.data.labels import all_unlabelled, has_no_label_sets, label_cells
from frostline.data.reader import read_table
from frostline.data.splits import complete_splits
from frostline.data.table import Table, is_missing
from frostline.data.tags import (
    are_entities,
    entity_types,
    has_no_tags,
    of_equal_width,
    refuse_new_tags,
    refuse_one_sentence,
    sentences,
)
from frostline.data.task import Task, decide_task, targets_of
from frostline.data.wording import SHOWN_ROWS, did_you_mean, listed, quoted


@dataclass(frozen=True, kw_only=True)
class Data:
    """A prediction task and its examples.

    Attributes:
        task: The prediction task.
        train: The training examples.
        validation: The validation examples; all of ``train`` if there are folds.
        test: The test examples, or None.
        notes: Notes for the user about choices and findings, a sentence each.
        report: Facts about the training, validation and test examples.
        other_splits: Further labelled splits by name, such as MNLI's "validation_mismatched".
        folds: The fold of each training row, ``[N]``, or None.
    """

    task: Task
    train: Examples
    validation: Examples
    test: Examples | None
    notes: tuple[str, ...]
    report: DataReport
    other_splits: Mapping[str, Examples] = field(default_factory=dict)
    folds: npt.NDArray[np.int64] | None = None

    @property
    def train_rows(self) -> int:
        """How many rows every run can train on: all training rows without the largest fold."""
        return len(self.train) - (0 if self.folds is None else int(np.bincount(self.folds).max()))


def load_data(spec: DataSpec) -> Data:
    """Read the tables, choose the columns, decide the task, and hold out the rows of missing splits.

    Raises:
        FrostlineError: The data cannot be read, are ambiguous, or contradict the options.
    """
    if spec.task_type not in (None, *TASK_TYPES):
        raise FrostlineError(
            f"--task-type {quoted(spec.task_type)} is not known{did_you_mean(spec.task_type, TASK_TYPES)}; pass one of "
            f"{', '.join(TASK_TYPES)}."
        )
    glue = None if spec.glue is None else glue_task(spec.glue)
    tables = _read_tables(spec, glue)
    notes = list(dict.fromkeys(note for table in tables.values() for note in table.notes))
    if spec.first_rows is not None and spec.first_rows < len(tables["train"]):
        notes.append(f"Of {len(tables['train']):,} training rows the first {spec.first_rows:,} are used.")
        tables["train"] = tables["train"].first(spec.first_rows)
    tables, task, skipped = _decide_task(tables, spec, glue)
    notes += skipped
    notes += _descriptions(tables["train"], task)
    if spec.train is None and spec.test is None and "test" in tables and _is_unlabelled(tables["test"], task):
        notes.append(f"{tables.pop('test').name} has no labels and is left out.")
    if task.task_type == TOKENS and not spec.labels:
        refuse_new_tags(tables.values(), task.columns.of_labels[0], task.labels)
    given = of_equal_width({split: _examples(table, task, split) for split, table in tables.items()})
    if spec.first_rows != 1:
        refuse_one_sentence(tables)
    complete = complete_splits(given, task, spec)
    splits = complete.splits
    report = report_on({split: splits[split] for split in ("train", "validation", "test") if split in splits}, task)
    unreadable = [warning for split, part in splits.items() for warning in garbled(part, split)]
    return Data(
        task=task,
        train=splits["train"],
        validation=splits["train"] if complete.folds is not None else splits["validation"],
        test=splits.get("test"),
        notes=(*notes, *complete.notes, *unreadable, *report.sentences(task.task_type)),
        report=report,
        other_splits={split: splits[split] for split in (MISMATCHED,) if split in splits},
        folds=complete.folds,
    )


def read_unlabelled(
    source: Any,
    *,
    column_names: Sequence[str] | None = None,
    word_column: int | None = None,
    encoding: str | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    trained: Mapping[str, str | None] | None = None,
    task_type: str | None = None,
) -> tuple[Texts, Columns]:
    """The texts of a table for prediction, and their columns. Labels are ignored.

    Args:
        source: A file, ``datasets.Dataset``, ``DataFrame``, ``pyarrow.Table``, or a table that has been read.
        column_names: The columns of a CSV or TSV file without a header.
        word_column: The column of the words in a CoNLL file, counted from 1. By default the first one.
        encoding: The encoding of a text file that is not UTF-8.
        text_column: The column of the texts.
        text_pair_column: The column of the second texts of pairs.
        trained: The columns ``text`` and ``text_pair`` that the model was trained on. They are used if the table has them and
            the user gives no column.
        task_type: The type of the model's task. For token classification, sentences are read.
    """
    table = source
    if not isinstance(source, Table):
        of_tokens = task_type == TOKENS
        table = read_table(
            source, column_names=column_names, of_tokens=of_tokens, word_column=word_column, encoding=encoding
        )
    known = [trained["text"], trained.get("text_pair")] if trained else []
    missing = [name for name in known if name is not None and name not in table.columns] if text_column is None else []
    if known and not missing and text_column is None and text_pair_column is None:
        text_column, text_pair_column = known
    try:
        columns = choose_columns(
            table, text_column=text_column, text_pair_column=text_pair_column, label_needed=False, task_type=task_type
        )
    except FrostlineError:
        if unsuitable := other_unit(table, task_type) or without_header(table) or nested(table):
            raise FrostlineError(unsuitable) from None
        if not missing:
            raise
        lacking = f"there is no column {quoted(missing[0])}{did_you_mean(missing[0], table.columns)}"
        instead = f"pass one of {listed(table.columns)} with --text-column"
        if table.has_header:
            instead += ", or --column-names for a file without a header"
        raise FrostlineError(f"{table.name}: {lacking}, which the model was trained on; {instead}.") from None
    return _texts(table, columns, task_type), replace(columns, label=None)


def _read_tables(spec: DataSpec, glue: GlueTask | None) -> dict[str, Table]:
    """The user's tables by split."""
    if glue is not None:
        refuse_redundant_options(glue, spec)
    if (spec.train is None) == (spec.data is None) and (glue is None or spec.train is not None):
        raise FrostlineError("Give the data with either --train FILE or --data NAME.")
    of_tokens = spec.task_type == TOKENS
    read = partial(
        read_table,
        column_names=spec.column_names,
        of_tokens=of_tokens,
        tag_column=spec.tag_column,
        word_column=spec.word_column,
        encoding=spec.encoding,
    )
    if glue is not None:
        read = partial(read_glue_table, task=glue, encoding=spec.encoding)
    tables = {"train": read(spec.train, name="The training data")} if spec.train is not None else {}
    if glue is not None and spec.train is None:
        tables = read_glue_splits(spec.data, glue, spec.encoding)
    elif spec.data is not None:
        tables = read_splits(spec.data, config=spec.config, read=read)
    elif spec.config is not None:
        raise FrostlineError(f"--config {quoted(spec.config)} is for a hub data set given with --data; leave it out.")
    if is_keyword(spec.validation, NO_TEST):
        raise FrostlineError("--validation none: k is chosen on validation; give a file or leave it out.")
    for split, source in {"validation": spec.validation, "test": spec.test}.items():
        if is_keyword(source, HOLD_OUT) or is_keyword(source, NO_TEST):
            tables.pop(split, None)
        elif source is not None:
            tables[split] = read(source, name=f"the {split} data")
    return tables


def _refuse_one_row(table: Table, spec: DataSpec) -> None:
    """Raise an error if there is one row to train on. A CoNLL file of one sentence may lack its blank lines, which is checked."""
    if len(table) == 1 and table.word_lines is None and spec.first_rows != 1:
        what = "one labelled row" if spec.skip_unlabelled else "one row"
        raise FrostlineError(f"{table.name}: the table has {what}; give more, an example in each row.")


def _labelled(table: Table, columns: Columns, task_type: str | None) -> tuple[Table, str | None]:
    """The rows with a label and a note, or the whole table and None if all rows have one, or none does."""
    if not all(column in table.columns for column in columns.of_labels):
        return table, None
    cells = [
        table.cells(column) if task_type in (MULTI_LABEL, TOKENS) else label_cells(table, column)
        for column in columns.of_labels
    ]
    empty: list[Any] | None = [] if task_type == TOKENS else None
    rows = [n for n, row in enumerate(zip(*cells, strict=True)) if not all(_is_blank(cell, empty) for cell in row)]
    if len(rows) in (0, len(table)):
        return table, None
    count = len(table) - len(rows)
    shown = table.take(sorted({*range(len(table))} - {*rows})[:SHOWN_ROWS]).rows
    more = ", ..." if count > SHOWN_ROWS else ""
    note = (
        f"{table.name}: {count:,} of {len(table):,} rows {'has' if count == 1 else 'have'} no label "
        f"(row {', '.join(map(str, shown))}{more}) and {'is' if count == 1 else 'are'} skipped{table.if_missing}."
    )
    return table.take(rows), note


def _is_blank(cell: Any, empty: Sequence[Any] | None) -> bool:
    """Whether a cell says nothing: it is missing or an empty text, or the ``empty`` list."""
    return not cell.strip() if isinstance(cell, str) else is_missing(cell) or (is_list(cell) and list(cell) == empty)


def _decide_task(
    tables: Mapping[str, Table], spec: DataSpec, glue: GlueTask | None
) -> tuple[dict[str, Table], Task, list[str]]:
    """All tables with the column names of the training table, the task of that table, and notes on rows that are skipped."""
    task_type = spec.task_type if glue is None else glue.task_type
    if glue is not None:
        unified, columns = unify_layouts(tables, glue)
    else:
        unified = dict(tables)
        task_type = _task_type_of_columns(tables["train"], spec)
        columns = choose_columns(
            tables["train"],
            text_column=spec.text_column,
            text_pair_column=spec.text_pair_column,
            label_column=spec.label_column,
            indicator_columns=spec.indicator_columns or (),
            task_type=task_type,
        )
        columns = replace(columns, separator=spec.label_separator)
    notes = []
    if spec.skip_unlabelled:
        found = {split: _labelled(table, columns, task_type) for split, table in unified.items()}
        unified = {split: table for split, (table, _) in found.items()}
        notes = list(dict.fromkeys(note for _, note in found.values() if note is not None))
    _refuse_one_row(unified["train"], spec)
    usual_name = source_name(spec) if glue is None else glue.name
    task = decide_task(
        unified["train"],
        columns,
        name=usual_name if spec.task_name is None else spec.task_name,
        task_type=task_type,
        labels=spec.labels,
    )
    return unified, task, notes


def _task_type_of_columns(table: Table, spec: DataSpec) -> str | None:
    """The type of the task, as far as flags and lists decide it."""
    flags = {"--indicator-columns": spec.indicator_columns, "--label-separator": spec.label_separator}
    given = [flag for flag, value in flags.items() if value]
    if not given:
        return spec.task_type or task_of_lists(table, spec.text_column, spec.label_column)
    if spec.task_type not in (None, MULTI_LABEL):
        raise FrostlineError(
            f"{given[0]} is for {MULTI_LABEL}, but --task-type is {spec.task_type}: leave one of them out."
        )
    if spec.indicator_columns and (spec.label_column or spec.label_separator):
        other = "--label-column" if spec.label_column else "--label-separator"
        raise FrostlineError(f"--indicator-columns replace a label column: leave {other} or --indicator-columns out.")
    return MULTI_LABEL


def _descriptions(table: Table, task: Task) -> list[str]:
    return [f"{table.name}: {task.columns}.", TARGETS[task.task_type](task.labels)]


def _classes(labels: Sequence[str]) -> str:
    return f"Classification into {len(labels)} classes in this order: {listed(labels)}."


def _number(labels: Sequence[str]) -> str:
    return "Regression on a number."


def _tags(labels: Sequence[str]) -> str:
    if are_entities(labels):
        kinds = entity_types(labels)
        return f"Entities of {len(kinds)} {'type' if len(kinds) == 1 else 'types'} with BIO tags: {listed(kinds)}."
    return f"A tag for each word, one of {len(labels)}: {listed(labels)}."


def _label_sets(labels: Sequence[str]) -> str:
    return f"Multi-label classification: a text has any number of {len(labels)} labels: {listed(labels)}."


TARGETS: Mapping[str, Callable[[Sequence[str]], str]] = {
    CLASSIFICATION: _classes,
    MULTI_LABEL: _label_sets,
    REGRESSION: _number,
    TOKENS: _tags,
}


def _is_unlabelled(table: Table, task: Task) -> bool:
    columns = task.columns.of_labels
    if not columns or not all(column in table.columns for column in columns):
        return True
    if task.task_type == MULTI_LABEL:
        return has_no_label_sets(table, task.columns)
    column = columns[0]
    if task.task_type == TOKENS:
        return has_no_tags(table, column)
    return all_unlabelled(label_cells(table, column), task.labels)


def _examples(table: Table, task: Task, split: str) -> Examples:
    """The texts and targets of a table, which must have the columns of the training table."""
    columns = task.columns
    for column in (columns.text, columns.text_pair, *columns.of_labels):
        if column is not None and column not in table.columns:
            raise FrostlineError(
                missing_tags(table)
                or f"{table.name}: there is no column {quoted(column)}{did_you_mean(column, table.columns)}, which the training "
                f"data has; rename its columns ({listed(table.columns)}) accordingly."
            )
    if split != "train" and _is_unlabelled(table, task):
        remedy = "leave it out, or pass --test none" if split == "test" else "leave it out"
        raise FrostlineError(
            f"{table.name}, column {quoted(columns.of_labels[0])}: no row has a label (all are missing or -1, as in published "
            f"test files); give a {split} file with labels or {remedy}."
        )
    return Examples(**vars(_texts(table, columns, task.task_type)), targets=targets_of(table, task))


def _texts(table: Table, columns: Columns, task_type: str | None) -> Texts:
    return Texts(
        texts=sentences(table, columns.text) if task_type == TOKENS else table.texts(columns.text),
        pairs=None if columns.text_pair is None else table.texts(columns.text_pair),
        rows=table.rows,
        name=table.name,
    )
