"""The settings as keyword arguments of the functions, for completion, help and type checkers, each with what is accepted for it.

A test compares them with :class:`frostline.Settings`.
"""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, get_type_hints

from frostline import FrostlineError
from frostline.data.kinds import TaskType
from frostline.data.load import SPLITS
from frostline.data.wording import did_you_mean
from frostline.sweeps.settings import Settings
from frostline.training.settings import Schedule

Function = TypeVar("Function", bound=Callable[..., Any])
Location = str | PathLike[str]
Strings = str | Sequence[str]  # a text has commas between several values
Integers = int | str | Sequence[int]
Floats = float | str | Sequence[float]
Tunes = int | str | Sequence[int | str]
if TYPE_CHECKING:
    import datasets
    import pandas as pd
    import pyarrow as pa

    Rows: TypeAlias = Location | pd.DataFrame | datasets.Dataset | pa.Table
else:
    Rows = Any  # these libraries are not loaded before they are needed


class ModelAndData(TypedDict, total=False):
    """What a linear probe needs."""

    model: Location | Sequence[Location]
    revision: str | None
    depth: Integers | None
    trust_remote_code: bool
    train: Rows | None
    validation: Rows | None
    data: Location | None
    config: str | None
    glue: str | None
    text_column: str | None
    text_pair_column: str | None
    label_column: str | None
    indicator_columns: Strings | None
    label_separator: str | None
    group_column: str | None
    tag_column: int | None
    word_column: int | None
    column_names: Strings | None
    encoding: str | None
    task_type: TaskType | None
    labels: Strings | None
    held_out_share: float | None
    first_rows: int | None
    skip_unlabelled: bool
    task: str | None
    max_truncated: float
    max_length: int | None
    data_seed: int
    metric: str | None
    precision: Literal["auto", "float32", "bfloat16", "float16"]
    device: Literal["auto", "cpu", "cuda", "mps"]
    stream: bool | None
    embed: bool


class Training(ModelAndData, total=False):
    """What a search needs."""

    test: Rows | None
    seeds: Integers
    train_size: Integers | None
    learning_rate: Floats
    head_learning_rate: Floats | Literal["same"] | Sequence[float | Literal["same"]]
    num_train_epochs: Floats
    per_device_train_batch_size: int
    per_device_eval_batch_size: int
    gradient_accumulation_steps: int
    gradient_checkpointing: bool
    weight_decay: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    lr_scheduler_type: Schedule
    warmup_steps: float
    max_grad_norm: float
    evaluations_per_epoch: int
    load_best_model_at_end: bool
    train_score_rows: int
    class_weights: Literal["none", "balanced"] | dict[str, float]
    label_all_tokens: bool
    standardize_targets: bool
    tune_pooler: bool
    frozen_dropout: bool
    subset: Literal["per-seed", "fixed"]
    folds: int | Literal["auto"]
    cache_limit: float | None
    workers: int | Literal["auto"]
    stack: int | Literal["auto"]
    target: float | None
    sure: float | None
    price: float
    margin: float | None
    keep_adapter: bool
    track: Strings | None
    calibrate: bool
    threshold: float | str | None
    refit: bool | None
    way: Mapping[str, Mapping[str, Any]]


class Grid(Training, total=False):
    """What a sweep needs."""

    tune: Tunes
    tune_modules: Strings | None
    grid: Sequence[Mapping[str, Any]]


def takes(keywords: type, others: Mapping[str, Any] | None = None) -> Callable[[Function], Function]:
    """Gives a function with ``**settings: Unpack[keywords]`` a signature that names them, which notebooks complete and show.

    ``others``: the defaults that differ from those of a sweep.
    """

    def decorate(function: Function) -> Function:
        declared = inspect.signature(function)
        own = [one for one in declared.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        for name, hint in get_type_hints(keywords).items():
            field = Settings.model_fields[name]
            default = inspect.Parameter.empty if field.is_required() else field.default
            default = (others or {}).get(name, default)
            own.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint))
        function.__signature__ = declared.replace(parameters=own)  # type: ignore[attr-defined]
        return function

    return decorate


def require_known(settings: Mapping[str, Any], function: Callable[..., Any], but: Sequence[str] = ()) -> None:
    """Refuse keyword arguments that a function does not have, ``but`` those that it refuses itself with a reason.

    Raises:
        FrostlineError: One is unknown. The message has the nearest name.
    """
    known = inspect.signature(function).parameters
    for name in settings:
        if name not in known and name not in but:
            hint = did_you_mean(name, known) or f": choose from {', '.join(sorted({*known} - {'self'}))}"
            raise FrostlineError(f"There is no setting {name!r} of `frostline {function.__name__}`{hint}.")


def split_off_tables(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate the tables in ``settings`` from the values that a specification can have.

    Returns:
        The tables by split, and all other settings. Paths in these are text.
    """
    tables = {
        name: settings[name]
        for name in SPLITS
        if name in settings and not isinstance(settings[name], str | os.PathLike | None)
    }
    plain = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in settings.items()
        if name not in tables
    }
    return tables, plain
