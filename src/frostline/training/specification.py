"""What one run trains, as frozen data with a digest.

Training arguments bear the names of transformers' ``TrainingArguments``.
"""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    field_validator,
)

from frostline.data.folding import between_commas

Tune = Annotated[int, Field(ge=0)] | Literal["all", "named"]  # tuned layers; "all" is full: embeddings too


def _as_list(value: Any) -> Any:
    """One value, or text with commas, as a list."""
    if isinstance(value, str):
        return [_number(part) for part in between_commas(value) if part]
    return list(value) if isinstance(value, list | tuple | range | set) else [value]


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _as_texts(value: Any) -> Any:
    """Text with commas as a list of texts; a label that looks like a number stays text."""
    values = between_commas(value) if isinstance(value, str) else _as_list(value)
    return [str(x) if isinstance(x, int | float) else x for x in values]


def _as_seeds(value: Any) -> Any:
    """``5`` is 0 .. 4; a list is a list."""
    values = _as_list(value)
    if isinstance(value, int) or (isinstance(value, str) and "," not in value):
        if not values or not isinstance(values[0], int) or values[0] < 1:
            raise ValueError("give a number of seeds, 1 or more, or a list of them")
        return list(range(values[0]))
    return values


def _some_and_distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("give at least one value")
    if len(set(values)) < len(values):
        raise ValueError("a value stands there twice; give each once")
    return values


Positive = Annotated[float, Field(gt=0)]
Tunes = Annotated[tuple[Tune, ...], BeforeValidator(_as_list), AfterValidator(_some_and_distinct)]
Seeds = Annotated[
    tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_as_seeds), AfterValidator(_some_and_distinct)
]
Sizes = Annotated[
    tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_as_list), AfterValidator(_some_and_distinct)
]
Rates = Annotated[tuple[Positive, ...], BeforeValidator(_as_list), AfterValidator(_some_and_distinct)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_as_texts)]


def _none_or_several(folds: int | str) -> int | str:
    if folds == 1:
        raise ValueError("give 2 or more, 0 for none, or auto")
    return folds


Folds = Annotated[Annotated[int, Field(ge=0)] | Literal["auto"], AfterValidator(_none_or_several)]
HeadRate = Annotated[
    Positive | None,  # None: the layers' own; a file says "same", since TOML has no word for None
    BeforeValidator(lambda value: None if value == "same" else value),
    PlainSerializer(lambda value: "same" if value is None else value, when_used="json"),
]
HeadRates = Annotated[tuple[HeadRate, ...], BeforeValidator(_as_list), AfterValidator(_some_and_distinct)]
HEAD_RATE = 1e-3
Strict = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Settings(BaseModel):
    """What all runs of a sweep have in common."""

    model_config = Strict

    num_train_epochs: Positive = Field(3, description="passes over the training examples")
    per_device_train_batch_size: int = Field(16, ge=1, description="examples in a training step")
    per_device_eval_batch_size: int = Field(64, ge=1, description="examples in a batch of evaluation")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's, on weight matrices only")
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's")
    adam_beta2: float = Field(0.999, ge=0, lt=1, description="AdamW's")
    adam_epsilon: Positive = Field(1e-8, description="AdamW's")
    lr_scheduler_type: Literal[
        "linear",
        "cosine",
        "cosine_with_restarts",
        "polynomial",
        "constant",
        "constant_with_warmup",
        "inverse_sqrt",
    ] = Field(
        "linear", description="schedule of the learning rate: linear, cosine, constant, ... as transformers names them"
    )
    warmup_steps: float = Field(0.1, ge=0, description="steps of warm-up; below 1 a share of all steps")
    max_grad_norm: float = Field(1.0, ge=0, description="clip the trained gradients to this norm; 0 does not clip")
    evaluations_per_epoch: int = Field(
        1, ge=0, description="validation scores in an epoch; 0: after the last step alone"
    )
    load_best_model_at_end: bool = Field(
        True, description="a run's result is its best epoch on validation; otherwise its last"
    )
    train_score_rows: int = Field(200, ge=1, description="training rows scored at the end of a run, at most")
    metric: str | None = Field(
        None,
        description="chooses epoch, learning rate and k: accuracy, f1, f1_macro, matthews_correlation, or for numbers "
        "spearmanr, pearson, r2; by default the first that suits",
    )
    class_weights: Literal["none", "balanced"] | dict[str, float] = Field(
        "none", description="weights of classes in the loss: none, balanced, or label=weight,label=weight"
    )
    tune_pooler: bool = Field(True, description="train the pooler with the head")
    frozen_dropout: bool = Field(
        False, description="leave dropout on in the frozen part, as Trainer does; nothing is kept"
    )
    subset: Literal["per-seed", "fixed"] = Field(
        "per-seed", description="subset of the training rows: per-seed (each seed its own), or fixed"
    )
    data_seed: int = Field(0, ge=0, description="fixes validation and test, folds, and a fixed subset")
    folds: Folds = Field(
        0,
        description="set no validation rows aside: every row is in one of so many folds, and a run is scored on the fold of "
        "its seed, which it does not train on; auto: 5 where there are fewer than 2,000 rows and no validation",
    )
    max_length: int | None = Field(
        None, ge=1, description="most tokens in a text; by default what the model takes, at most 512"
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="float32, bfloat16, or auto: bfloat16 where the processor has it"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python takes true for 1; nobody means it."""
        assert info.field_name is not None
        wants = cls.model_fields[info.field_name].annotation
        given = value if isinstance(value, list | tuple) else [value]
        if wants is not bool and any(isinstance(one, bool) for one in given):
            raise ValueError("true and false mean nothing here")
        return value


class RunSpec(Settings):
    """One run: everything its result depends on, and nothing else."""

    weights: str  # digest of the pretrained model
    vocabulary: str  # digest of its tokenizer
    data: str  # digest of training, validation and test examples
    tune: Tune
    tune_modules: tuple[str, ...] | None = None  # the parts that a named run trains
    seed: int
    train_size: int
    learning_rate: float
    head_learning_rate: HeadRate = HEAD_RATE  # None: the layers' own; of the head alone it is always that

    @property
    def digest(self) -> str:
        """The name of the run's result."""
        absent = {"tune_modules"} if self.tune_modules is None else set()
        text = json.dumps(self.model_dump(mode="json", exclude=absent), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def fold(self) -> int | None:
        """Which fold it is scored on and not trained on; None where there are none."""
        return self.seed % self.folds if isinstance(self.folds, int) and self.folds else None

    @property
    def trainable(self) -> str:
        """What is trained, as it is printed: ``last 2``, ``all``, ``named``."""
        return f"last {self.tune}" if isinstance(self.tune, int) else self.tune
