"""Load the data: from the user's files and settings to the examples of a task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.checks import DataReport, constant_targets, garbled, notes_on_groups, report_on, rounded_targets
from frostline.data.columns import (
    WORDS,
    Columns,
    choose_columns,
    is_list,
    looks_like_conll,
    misread,
    missing_tags,
    task_of_lists,
)
from frostline.data.dataset_sources import read_splits, source_name
from frostline.data.examples import Examples, Texts
from frostline.data.glue import MISMATCHED, GlueTask, glue_task, read_glue_splits, read_glue_table, training_columns
from frostline.data.kinds import (
    CLASSIFICATION,
    HOLD_OUT,
    MULTI_LABEL,
    NO_TEST,
    REGRESSION,
    TOKENS,
    DataSettings,
    is_keyword,
)
from frostline.data.labels import label_lists
from frostline.data.reader import read_table
from frostline.data.splits import complete_splits
from frostline.data.table import Table
from frostline.data.tags import (
    are_entities,
    entity_types,
    filled,
    refuse_one_sentence,
    sentences,
)
from frostline.data.task import Task, decide_task, lists_of, targets_of
from frostline.data.wording import counted, did_you_mean, first_rows, listed, quoted

SPLITS = ("train", "validation", "test")
MIN_SHARED_ROWS = 10  # fewer validation rows that are those of train are only worth a warning


@dataclass(frozen=True, kw_only=True)
class Data:
    """A prediction task and its examples.

    Attributes:
        task: The prediction task.
        splits: The examples by split: "train", "validation" (all of "train" if there are folds), "test" unless there is none,
            and further labelled ones such as MNLI's "validation_mismatched".
        notes: Notes for the user about choices and findings, a sentence each.
        report: Facts about the training, validation and test examples.
        folds: The fold of each training row, ``[N]``, or None.
    """

    task: Task
    splits: Mapping[str, Examples]
    notes: tuple[str, ...]
    report: DataReport
    folds: npt.NDArray[np.int64] | None = None

    @property
    def train(self) -> Examples:
        """The training examples."""
        return self.splits["train"]

    @property
    def validation(self) -> Examples:
        """The validation examples."""
        return self.splits["validation"]

    @property
    def test(self) -> Examples | None:
        """The test examples, or None."""
        return self.splits.get("test")

    @property
    def train_rows(self) -> int:
        """How many rows every run can train on: all training rows without the largest fold."""
        return len(self.train) - (0 if self.folds is None else int(np.bincount(self.folds).max()))


def load_data(
    settings: DataSettings, tables: Mapping[str, Any] | None = None, *, folds: int | str = 0, data_seed: int
) -> Data:
    """Read the tables, choose the columns, decide the task, and hold out the rows of missing splits.

    Args:
        settings: What the user asked for.
        tables: Tables given in Python, which replace the paths of ``train``, ``validation`` and ``test``: a file,
            ``datasets.Dataset``, ``DataFrame`` or ``pyarrow.Table``.
        folds: The number of cross-validation folds, which replace validation rows; 0 for none. "auto" uses folds if there are
            few rows and no validation data.
        data_seed: The seed of all splits.

    Raises:
        FrostlineError: The data cannot be read, are ambiguous, or contradict the options.
    """
    sources = {split: getattr(settings, split) for split in SPLITS} | dict(tables or {})
    glue = None if settings.glue is None else glue_task(settings.glue)
    read = _read_tables(settings, sources, glue)
    notes = list(dict.fromkeys(note for table in read.values() for note in table.notes))
    if settings.first_rows is not None and settings.first_rows < len(read["train"]):
        notes.append(f"Of {len(read['train']):,} training rows the first {settings.first_rows:,} are used.")
        read["train"] = read["train"].first(settings.first_rows)
    task_type = _task_type(read["train"], settings) if glue is None else glue.task_type
    if glue is not None:
        columns = training_columns(read["train"], glue)
    else:
        columns = choose_columns(
            read["train"],
            text_column=settings.text_column,
            text_pair_column=settings.text_pair_column,
            label_column=settings.label_column,
            indicator_columns=settings.indicator_columns or (),
            group_column=settings.group_column,
            task_type=task_type,
        )
        columns = replace(columns, separator=settings.label_separator)
    if settings.skip_unlabelled:
        for split, table in read.items():
            read[split] = _labelled(table, columns, task_type, notes)
    train = read["train"]
    if len(train) == 1 and train.word_lines is None:  # a CoNLL file of one sentence may lack its blank lines
        what = "one labelled row" if settings.skip_unlabelled else "one row"
        raise FrostlineError(f"{train.name}: the table has {what}; give more, an example in each row.")
    usual_name = glue.name if glue is not None else source_name(settings, sources["train"])
    name = usual_name if settings.task is None else settings.task
    task = decide_task(train, columns, name=name, task_type=task_type, labels=settings.labels)
    notes += [f"{train.name}: {columns}.", _description(task)]
    if sources["train"] is None and sources["test"] is None and "test" in read and not _has_labels(read["test"], task):
        notes.append(f"{read.pop('test').name} has no labels and is left out.")
    given = {split: _examples(table, task, split) for split, table in read.items()}
    if task.task_type == TOKENS:
        width = max(part.targets.shape[1] for part in given.values())
        given = {split: replace(part, targets=filled(part.targets, width)) for split, part in given.items()}
    refuse_one_sentence(read)
    for split in SPLITS[1:]:
        _require_other_rows(split, sources, given)
    splits, numbers, more = complete_splits(given, task, sources, settings.held_out_share, folds, data_seed)
    report = report_on({split: splits[split] for split in SPLITS if split in splits}, task)
    if task.columns.group is not None:
        more += notes_on_groups(splits, task.columns.group)
    if task.task_type == REGRESSION:
        more += constant_targets(splits, numbers) + rounded_targets(splits["train"])
    unreadable = [warning for split, part in splits.items() for warning in garbled(part, split)]
    if numbers is not None:
        splits["validation"] = splits["train"]
    return Data(
        task=task,
        splits={split: splits[split] for split in (*SPLITS, MISMATCHED) if split in splits},
        notes=(*notes, *more, *unreadable, *report.sentences(task.task_type)),
        report=report,
        folds=numbers,
    )


def _require_other_rows(split: str, sources: Mapping[str, Any], given: Mapping[str, Examples]) -> None:
    """Refuse validation or test rows that are those of train: a score on them says nothing about other texts."""
    sources_of = (sources["train"], sources[split])
    paths = [Path(one).expanduser().resolve() for one in sources_of if isinstance(one, str | Path)]
    same = len(paths) == 2 and paths[0] == paths[1]
    if split in given and len(given[split]) >= MIN_SHARED_ROWS:
        same |= {*given[split].read_alike()} == {*given["train"].read_alike()}
    if same:
        raise FrostlineError(
            f"The rows of {split} are those of train: scores on what was trained on say nothing about other texts; give other "
            f"rows, or leave out --{split}, so that some rows of train are held out."
        )


def read_unlabelled(
    source: Any,
    *,
    column_names: Sequence[str] | None = None,
    word_column: int | None = None,
    encoding: str | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    trained: Columns | None = None,
    task_type: str | None = None,
) -> tuple[Texts, Columns]:
    """The texts of a table for prediction (sentences, if the model's task is token classification), and their columns.

    Labels are ignored. ``trained`` are the columns that the model was trained on. Those of the texts are used if the table has
    them and the user gives no column. The source may be a table that has been read.
    """
    table = source
    if not isinstance(source, Table):
        of_tokens = task_type == TOKENS
        table = read_table(
            source, column_names=column_names, of_tokens=of_tokens, word_column=word_column, encoding=encoding
        )
    known = [trained.text, text_pair_column or trained.text_pair] if trained and text_column is None else []
    missing = [name for name in known if name is not None and name not in (text_pair_column, *table.columns)]
    if known and not missing:
        text_column, text_pair_column = known
    try:
        columns = choose_columns(
            table, text_column=text_column, text_pair_column=text_pair_column, label_needed=False, task_type=task_type
        )
    except FrostlineError:
        lists = any(is_list(cell) for name in table.columns for cell in table.cells(name)[:1])
        named = any(name.casefold() in WORDS for name in table.columns)
        if task_type == TOKENS and not lists and not named:
            raise FrostlineError(
                f"{table.name}: the table has texts, but the model tags words; give a CoNLL file or lists of words."
            ) from None
        if task_type != TOKENS and (looks_like_conll(table) or (lists and named)):
            raise FrostlineError(
                f"{table.name}: the table has sentences of words, but the model reads whole texts; give a table of texts."
            ) from None
        if not missing:
            raise
        raise FrostlineError(
            misread(table, "--text-column")
            or f"{table.name}: there is no column {quoted(missing[0])}{did_you_mean(missing[0], table.columns)}, which the model "
            f"was trained on; pass one of {listed(table.columns)} with --text-column."
        ) from None
    return _texts(table, columns, task_type), replace(columns, label=None)


def labelled_rows(table: Table, task: Task, columns: Columns) -> tuple[Examples, list[str]] | None:
    """The rows of a new table that have a label, for a model that was trained on the ``task``, and notes about the others.

    Texts are in these ``columns``, and labels and groups in those of the task. A table may lack the groups. None if
    the table has no column of labels, or no row has a label. With a separator, an empty cell is a text without any label.

    Raises:
        FrostlineError: A label is none of the training labels.
    """
    group = task.columns.group if task.columns.group in table.columns else None
    task = replace(task, columns=replace(task.columns, text=columns.text, text_pair=columns.text_pair, group=group))
    if not task.columns.of_labels or not _has_labels(table, task):
        return None
    notes = list[str]()
    if task.columns.separator is None:
        table = _labelled(table, task.columns, task.task_type, notes)
    lists = lists_of(table, task)
    if task.columns.separator is not None and (none := sum(not own for own in lists)):
        have = "has" if none == 1 else "have"
        notes.append(
            f"{table.name}: {none:,} of {len(table):,} rows {have} none of the labels, and are scored as such."
        )
    if lists != lists_of(table, replace(task, numbered=False)):
        notes.append(
            f"{table.name}: numbers are read as places in the model's order of labels, from 0: {listed(task.labels)}."
        )
    texts = _texts(table, task.columns, task.task_type)
    return Examples(**vars(texts), targets=targets_of(table, task, texts.texts, trained=True)), notes


def _read_tables(settings: DataSettings, sources: Mapping[str, Any], glue: GlueTask | None) -> dict[str, Table]:
    """The user's tables by split."""
    train, data = sources["train"], settings.data
    if (train is None) == (data is None) and (glue is None or train is not None):
        raise FrostlineError("Give the data with either --train FILE or --data NAME.")
    if glue is not None:
        glue.refuse_redundant(settings)
        read = partial(read_glue_table, task=glue, encoding=settings.encoding)
    else:
        read = partial(
            read_table,
            column_names=settings.column_names,
            of_tokens=settings.task_type == TOKENS,
            tag_column=settings.tag_column,
            word_column=settings.word_column,
            encoding=settings.encoding,
        )
    if train is not None:
        if settings.config is not None:
            raise FrostlineError(
                f"--config {quoted(settings.config)} is for a hub data set given with --data; leave it out."
            )
        tables = {"train": read(train, name="The training data")}
    elif glue is not None:
        tables = read_glue_splits(data, glue, settings.encoding)
    else:
        assert data is not None
        tables = read_splits(data, config=settings.config, read=read)
    if is_keyword(sources["validation"], NO_TEST):
        raise FrostlineError("--validation none: k is chosen on validation; give a file or leave it out.")
    for split in ("validation", "test"):
        if is_keyword(sources[split], HOLD_OUT) or is_keyword(sources[split], NO_TEST):
            tables.pop(split, None)
        elif sources[split] is not None:
            tables[split] = read(sources[split], name=f"the {split} data")
    return tables


def _task_type(table: Table, settings: DataSettings) -> str | None:
    """The type of the task, as far as flags and lists decide it."""
    flags = {"--indicator-columns": settings.indicator_columns, "--label-separator": settings.label_separator}
    given = [flag for flag, value in flags.items() if value]
    if not given:
        return settings.task_type or task_of_lists(table, settings.text_column, settings.label_column)
    if settings.task_type not in (None, MULTI_LABEL):
        raise FrostlineError(
            f"{given[0]} is for {MULTI_LABEL}, but --task-type is {settings.task_type}: leave one of them out."
        )
    if settings.indicator_columns and (settings.label_column or settings.label_separator):
        other = "--label-column" if settings.label_column else "--label-separator"
        raise FrostlineError(f"--indicator-columns replace a label column: leave {other} or --indicator-columns out.")
    return MULTI_LABEL


def _labelled(table: Table, columns: Columns, task_type: str | None, notes: list[str]) -> Table:
    """The rows with a label, counted in ``notes``; the whole table if all rows have one, or none does."""
    if not all(column in table.columns for column in columns.of_labels):
        return table
    blank = [n for n, own in enumerate(label_lists(table, columns, task_type)) if own is None]
    if len(blank) in (0, len(table)):
        return table
    have, are = ("has", "is") if len(blank) == 1 else ("have", "are")
    note = (
        f"{table.name}: {len(blank):,} of {len(table):,} rows {have} no label (row {first_rows(table.rows[blank])}) and {are} "
        f"skipped{table.if_missing}."
    )
    if note not in notes:
        notes.append(note)
    return table.take(sorted({*range(len(table))} - {*blank}))


def _description(task: Task) -> str:
    labels = task.labels
    if task.task_type == REGRESSION:
        return "Regression on a number."
    if task.task_type == CLASSIFICATION:
        return f"Classification into {len(labels)} classes in this order: {listed(labels)}."
    if task.task_type == MULTI_LABEL:
        return f"Multi-label classification: a text has any number of {len(labels)} labels: {listed(labels)}."
    if are_entities(labels):
        kinds = entity_types(labels)
        return f"Entities of {counted(len(kinds), 'type')} with BIO tags: {listed(kinds)}."
    return f"A tag for each word, one of {len(labels)}: {listed(labels)}."


def _has_labels(table: Table, task: Task) -> bool:
    """Whether a row has a label. Columns of 0 and 1 that are all 0 are labels, and lists that are all empty are none."""
    if not all(column in table.columns for column in task.columns.of_labels):
        return False
    lists = lists_of(table, task)
    return any(own is not None if task.columns.indicators else own for own in lists)


def _examples(table: Table, task: Task, split: str) -> Examples:
    """The texts and targets of a table, which must have the columns of the training table."""
    columns = task.columns
    for column in (columns.text, columns.text_pair, *columns.of_labels, columns.group):
        if column is not None and column not in table.columns:
            if lack := missing_tags(table):
                raise FrostlineError(lack)
            table.require_column(
                column, f", which the training data has; rename its columns ({listed(table.columns)}) accordingly"
            )
    if split != "train" and not _has_labels(table, task):
        remedy = "leave it out, or pass --test none" if split == "test" else "leave it out"
        raise FrostlineError(
            f"{table.name}, column {quoted(columns.of_labels[0])}: no row has a label (all are missing or -1, as in published "
            f"test files); give a {split} file with labels or {remedy}."
        )
    texts = _texts(table, columns, task.task_type)
    return Examples(**vars(texts), targets=targets_of(table, task, texts.texts))


def _texts(table: Table, columns: Columns, task_type: str | None) -> Texts:
    return Texts(
        texts=sentences(table, columns.text) if task_type == TOKENS else table.texts(columns.text),
        pairs=None if columns.text_pair is None else table.texts(columns.text_pair),
        rows=table.rows,
        name=table.name,
        groups=None if columns.group is None else table.texts(columns.group),
    )
