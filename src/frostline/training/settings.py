"""The settings of training, which all runs of a sweep share, and the types of settings.

The names are those of transformers' ``TrainingArguments``. Types also accept comma-separated text from a command line or a TOML
file. Every setting belongs to a group; ``of_help`` names another one for ``--help``.
"""

from numbers import Integral
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
)

from frostline.data.kinds import Strict, as_list, of_help, optional
from frostline.statistics.recipe import Recipe
from frostline.statistics.threshold_rule import check_threshold

HEAD_LEARNING_RATE = 1e-3  # the default
MOST_SEEDS = 100_000


def _as_seeds(value: Any) -> Any:
    """The seeds 0 to 4 for ``5``. A list stays unchanged."""
    values = as_list(value)
    if isinstance(value, list | tuple | range | set) or (isinstance(value, str) and "," in value):
        return values
    if not values or not isinstance(values[0], Integral) or (count := int(values[0])) < 1:
        raise ValueError("give a number of seeds, 1 or more, or a list of them")
    if count > MOST_SEEDS:
        raise ValueError(f"give {MOST_SEEDS:,} seeds or fewer")
    return list(range(count))


def _with_text_labels(weights: Any) -> Any:
    """Labels that are whole numbers, in Python, as the text that they are in a table."""
    if not isinstance(weights, dict):
        return weights
    return {str(label) if isinstance(label, Integral) else label: weight for label, weight in weights.items()}


def _not_empty_and_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("give at least one value")
    if len(set(values)) < len(values):
        raise ValueError("a value appears twice; give each once")
    return values


def _at_least_two_or_none(folds: int | str) -> int | str:
    if folds == 1:
        raise ValueError("give 2 or more, 0 for none, or auto")
    return folds


Positive = Annotated[float, Field(gt=0)]
Tunes = Annotated[tuple[Recipe, ...], BeforeValidator(as_list), AfterValidator(_not_empty_and_distinct)]
Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=2**63)], ...],
    BeforeValidator(_as_seeds),
    AfterValidator(_not_empty_and_distinct),
]
Sizes = Annotated[
    tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(as_list), AfterValidator(_not_empty_and_distinct)
]
Schedule = Literal[
    "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt"
]
Folds = Annotated[Annotated[int, Field(ge=0)] | Literal["auto"], AfterValidator(_at_least_two_or_none)]
Lengths = Annotated[
    tuple[Positive, ...],
    BeforeValidator(as_list),
    AfterValidator(_not_empty_and_distinct),
    AfterValidator(lambda given: tuple(sorted(given))),
]
LearningRates = Annotated[tuple[Positive, ...], BeforeValidator(as_list), AfterValidator(_not_empty_and_distinct)]
HeadLearningRate = Annotated[
    Positive | None,  # None: the same as for the layers. Files use "same", because TOML has no null
    BeforeValidator(lambda value: None if value == "same" else value),
    PlainSerializer(lambda value: "same" if value is None else value, when_used="json"),
]
HeadLearningRates = Annotated[
    tuple[HeadLearningRate, ...], BeforeValidator(as_list), AfterValidator(_not_empty_and_distinct)
]
Weights = Annotated[dict[str, float], BeforeValidator(_with_text_labels)]
Threshold = Annotated[float | str, BeforeValidator(check_threshold)]


class TrainingSettings(Strict):
    """The settings that all runs of a sweep share.

    To add an optimizer setting, add a field here and use it in :mod:`frostline.training.updates`.
    """

    num_train_epochs: Positive = Field(3.0, description="training epochs")
    per_device_train_batch_size: int = Field(16, ge=1, description="training batch size")
    per_device_eval_batch_size: int = Field(64, ge=1, description="evaluation batch size")
    gradient_accumulation_steps: int = Field(
        1, ge=1, description="batches whose gradients are added up for one optimizer step"
    )
    gradient_checkpointing: bool = Field(
        False, description="less memory for activations: layers run again in the backward pass"
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay, on weight matrices only")
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="AdamW beta1")
    adam_beta2: float = Field(0.999, ge=0, lt=1, description="AdamW beta2")
    adam_epsilon: Positive = Field(1e-8, description="AdamW epsilon")
    lr_scheduler_type: Schedule = Field(
        "linear", description="learning rate schedule, such as linear, cosine or constant"
    )
    warmup_steps: float = Field(0.1, ge=0, description="warm-up steps; below 1: share of all steps")
    max_grad_norm: float = Field(1.0, ge=0, description="gradient clipping norm; 0 disables clipping")
    evaluations_per_epoch: int = Field(1, ge=0, description="evaluations per epoch; 0: after the last step only")
    load_best_model_at_end: bool = Field(True, description="score a run at its best evaluation, not its last")
    train_score_rows: int = Field(
        200,
        ge=1,
        description="training examples scored at the end of a run, at most",
        json_schema_extra=of_help(panel="output"),
    )
    metric: str | None = optional(
        "metric by which validation chooses, such as accuracy or f1_macro; a wrong name lists all",
        "the task's usual metric",
        panel="output",
    )
    class_weights: Literal["none", "balanced"] | Weights = Field(
        "none", description="class weights: none, balanced or label=weight pairs"
    )
    standardize_targets: bool = Field(
        True,
        description="regression: the head learns numbers of one scale; the saved model predicts those of the table",
    )
    label_all_tokens: bool = Field(
        False, description="tags of words: train on all tokens of a word, not the first one only"
    )
    tune_pooler: bool = Field(True, description="train the pooler with the head")
    frozen_dropout: bool = Field(False, description="dropout in frozen layers, as in Trainer; no caching")
    max_length: int | None = optional("maximum tokens per example", "model's limit, at most 512", panel="data", ge=1)
    subset: Literal["per-seed", "fixed"] = Field(
        "per-seed",
        description="training subset: one per-seed, or one fixed",
        json_schema_extra=of_help(panel="data"),
    )
    data_seed: int = Field(
        0, ge=0, description="seed of splits, folds and a fixed subset", json_schema_extra=of_help(panel="data")
    )
    folds: Folds = Field(
        0,
        description="cross-validation folds, 0 for none, or auto (5 for under 5,000 rows without validation data)",
        json_schema_extra=of_help(panel="data"),
    )
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="precision: float32, bfloat16, float16 (with loss scaling) or auto (bfloat16 if the device supports it)",
        json_schema_extra=of_help(panel="resources"),
    )

    @property
    def batch_size(self) -> int:
        """The number of examples of one optimizer step."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps
