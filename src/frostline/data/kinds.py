"""Types of tasks, formats of files, and what a user can choose about the data.

Imports no numpy, because the command line reads settings and lists formats without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

TaskType = Literal["text-classification", "multi-label-classification", "regression", "token-classification"]
CLASSIFICATION: Final = "text-classification"
MULTI_LABEL: Final = "multi-label-classification"  # any number of labels for a text
REGRESSION: Final = "regression"
TOKENS: Final = "token-classification"  # a label for each word of a sentence
TASK_TYPES = (CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS)

HOLD_OUT, NO_TEST = "hold out", "none"  # keywords that a user can give instead of a validation or test file


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """The source of the examples, the prediction task, and the splits. Give ``train``, ``data`` or ``glue``.

    Attributes:
        train: A file, ``datasets.Dataset``, ``DataFrame`` or ``pyarrow.Table``.
        validation: A source like ``train``, which replaces the validation split of ``data``; or "hold out", to hold out
            training rows.
        test: A source like ``train``, which replaces the test split of ``data``; "hold out"; or "none" for no test set.
        data: A folder with splits, or the name of a data set on the Hugging Face hub.
        config: The configuration of the hub data set.
        glue: The name of a GLUE task. It decides columns, labels, task type and file layout. Without ``train`` or ``data``,
            the task is loaded from the hub.
        column_names: The columns of a CSV or TSV file without a header.
        encoding: The encoding of text files that are not UTF-8.
        first_rows: Use only this many training rows, counted before rows are held out.
        skip_unlabelled: Leave out the rows of all splits whose label is missing or empty, and count them in the notes. By default
            they are an error. The list [] is a label: that the text has none.
        text_column: The column of the texts.
        text_pair_column: The column of the second texts of pairs.
        label_column: The column of the labels.
        indicator_columns: Columns of 0 and 1, one for each label, instead of a label column. A text can then have several labels.
        label_separator: What separates the labels of a text in the label column, such as ";".
        tag_column: The column of the labels in a CoNLL file, counted from 1.
        word_column: The column of its words. By default the first one.
        task_type: One of ``TASK_TYPES``; by default decided from the labels.
        labels: The classes in the order of their indices.
        task_name: The name of the task in all results; by default the name of the file, folder or data set.
        held_out_share: The share of the training rows to hold out, for each of validation and test. By default a tenth, at
            most 2,000 rows.
        folds: The number of cross-validation folds, which replace validation rows; 0 for none. "auto" uses folds if there are
            few rows and no validation data.
        data_seed: The seed of all splits.
    """

    train: Any = None
    validation: Any = None
    test: Any = None
    data: str | Path | None = None
    config: str | None = None
    glue: str | None = None
    column_names: Sequence[str] | None = None
    encoding: str | None = None
    first_rows: int | None = None
    skip_unlabelled: bool = False

    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    indicator_columns: Sequence[str] | None = None
    label_separator: str | None = None
    tag_column: int | None = None
    word_column: int | None = None
    task_type: str | None = None
    labels: Sequence[str] | None = None
    task_name: str | None = None

    held_out_share: float | None = None
    folds: int | Literal["auto"] = 0
    data_seed: int = 0


def is_keyword(source: Any, keyword: str) -> bool:
    """Whether a source is this keyword and no table. Comparing a data frame with ``==`` would compare its cells."""
    return isinstance(source, str) and source == keyword


ENDINGS = {
    "CSV": (".csv",),
    "TSV": (".tsv", ".txt"),
    "JSON lines": (".jsonl", ".ndjson", ".json"),
    "Parquet": (".parquet",),
    "CoNLL": (".conll", ".bio", ".iob2", ".conllu"),
}
TABLES = tuple(name for name in ENDINGS if name != "CoNLL")  # formats with columns of any kind
FORMAT_OF = {ending: name for name, endings in ENDINGS.items() for ending in endings}


def either(*names: str) -> str:
    """Several names in a sentence: ``CSV, TSV or Parquet``."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
