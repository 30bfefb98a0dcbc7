"""Everything that a user can choose about the data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

HOLD_OUT, NO_TEST = "hold out", "none"  # words in place of a file of validation or test


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Where the examples come from, what is predicted, and how they are split. Give either ``train`` or ``data`` or ``glue``.

    Attributes:
        train: A file, ``datasets.Dataset``, ``DataFrame`` or ``pyarrow.Table``.
        validation: The same; it replaces the validation split of ``data``. "hold out" takes rows of ``train`` instead.
        test: The same as ``validation``; "none" asks for no test set.
        data: A folder with splits, or the name of a data set on the Hugging Face hub.
        config: The configuration of the hub data set.
        glue: The name of a GLUE task. It decides columns, labels, problem type and file layout. Without ``train`` and ``data``
            the task is loaded from the hub.
        column_names: The columns of a CSV or TSV file without a header.
        first_rows: Use only so many training rows, before any are held out.
        text_column: The column of the texts.
        text_pair_column: The column of the second texts of pairs.
        label_column: The column of the labels.
        problem_type: Classification or regression, as in ``decide_task``.
        labels: The classes in the order of their indices.
        task_name: The name of the task in all results; by default that of the file, folder or data set.
        held_out_share: The share of the training rows held out for each of validation and test. By default a tenth and at
            most 2,000 rows.
        folds: Score every training row in one of so many folds and hold out no validation rows. "auto" uses folds if there are
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
    first_rows: int | None = None

    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    problem_type: str | None = None
    labels: Sequence[str] | None = None
    task_name: str | None = None

    held_out_share: float | None = None
    folds: int | Literal["auto"] = 0
    data_seed: int = 0


def is_word(source: Any, word: str) -> bool:
    """Whether a source is this word. A data frame must not be compared with ``==``, which compares its cells."""
    return isinstance(source, str) and source == word
