"""Types of tasks, formats of files, and the settings of the data.

Imports no numpy, because the command line reads settings and lists formats without it.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator
from pydantic.types import JsonValue

from frostline.data.wording import comma_separated

TaskType = Literal["text-classification", "multi-label-classification", "regression", "token-classification"]
CLASSIFICATION: Final = "text-classification"
MULTI_LABEL: Final = "multi-label-classification"  # any number of labels for a text
REGRESSION: Final = "regression"
TOKENS: Final = "token-classification"  # a label for each word of a sentence
TASK_TYPES = (CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS)

HOLD_OUT, NO_TEST = "hold out", "none"  # keywords that a user can give instead of a validation or test file

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


def is_keyword(source: Any, keyword: str) -> bool:
    """Whether a source is this keyword and no table. Comparing a data frame with ``==`` would compare its cells."""
    return isinstance(source, str) and source == keyword


class Strict(BaseModel):
    """An immutable model that refuses unknown keys, infinite numbers, and true or false for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false where a number is expected, because Python treats True as 1."""
        assert info.field_name is not None
        expected = cls.model_fields[info.field_name].annotation
        given = value if isinstance(value, list | tuple) else [value]
        if expected not in (bool, bool | None) and any(isinstance(one, bool) for one in given):
            raise ValueError("give a number or a word, not true or false")
        return value


def of_help(default: str = "", *, panel: str = "") -> dict[str, JsonValue]:
    """What ``--help`` shows of a setting: the text of its ``default`` if that is None, and its ``panel`` if not its group's."""
    return {"default": default, "panel": panel}


def optional(description: str, default: str = "", *, panel: str = "", **bounds: Any) -> Any:
    """A setting that may be left out. ``default`` and ``panel`` are those of :func:`of_help`, ``bounds`` those of pydantic."""
    return Field(None, description=description, json_schema_extra=of_help(default, panel=panel), **bounds)


def as_list(value: Any) -> Any:
    """A single value or comma-separated text as a list."""
    if isinstance(value, str):
        return [_number(part) for part in comma_separated(value) if part]
    return list(value) if isinstance(value, list | tuple | range | set) else [value]


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _as_strings(value: Any) -> Any:
    """Comma-separated text as a list of strings. A label that looks like a number stays a string."""
    values = comma_separated(value) if isinstance(value, str) else as_list(value)
    return [str(x) if isinstance(x, int | float) else x for x in values]


Strings = Annotated[tuple[str, ...], BeforeValidator(_as_strings)]


class DataSettings(Strict):
    """The source of the examples, the prediction task, and the splits. Give ``train``, ``data`` or ``glue``.

    In Python, tables can take the place of ``train``, ``validation`` and ``test``. The last two replace the splits of ``data``.
    They can also be "hold out", to hold out training rows, and ``test`` "none".
    """

    train: str | None = optional(f"training table: {either(*ENDINGS)}")
    validation: str | None = optional("validation table", "held out of training data")
    test: str | None = optional("test table, or none", "held out of training data")
    data: str | None = optional("data set on the hub, or folder with splits, instead of --train")
    config: str | None = optional("configuration of the hub data set")
    glue: str | None = optional("GLUE task, such as SST-2: sets columns, labels, metric, layout")
    text_column: str | None = optional("column with the text", "found by name")
    text_pair_column: str | None = optional("column with the second text of a pair", "found by name")
    label_column: str | None = optional("column with the class or number", "found by name")
    indicator_columns: Strings | None = optional(
        "columns of 0 and 1, one for each label, if a text can have several", "none"
    )
    label_separator: str | None = optional(
        "what separates the labels of a text in the label column, such as ;", "none", min_length=1
    )
    group_column: str | None = optional(
        "column of what rows have in common, such as an author: equal ones are in one split or fold", "none"
    )
    tag_column: int | None = optional("column of the tags in a CoNLL file, counted from 1", "the second of two", ge=1)
    word_column: int | None = optional("column of the words in a CoNLL file, counted from 1", "the first", ge=1)
    column_names: Strings | None = optional("column names, for files without a header line")
    encoding: str | None = optional("encoding of text files that are not UTF-8, such as cp1252", "UTF-8")
    task_type: TaskType | None = optional(
        "task type: text-classification, multi-label-classification, regression or token-classification",
        "found from the labels",
    )
    labels: Strings | None = optional("all class labels in output order", "found in the data")
    held_out_share: float | None = optional(
        "share of training data to hold out, for each of validation and test", "0.1, at most 2,000 rows", gt=0, lt=1
    )
    first_rows: int | None = optional("read only this many training rows, the first ones", "all", ge=2)
    skip_unlabelled: bool = Field(False, description="leave out rows without a label, and report how many")
    task: str | None = optional("name of the task in all output", "name of the data")
    max_truncated: float = Field(0.05, ge=0, le=1, description="largest share of examples that may be truncated")
