"""The settings of a run, as frozen data with a digest.

Training arguments have the names of transformers' ``TrainingArguments``.
"""

import hashlib
import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from frostline.model.tune import Tune
from frostline.training.fields import Folds, HeadLearningRate, Positive, Strict

if TYPE_CHECKING:
    from frostline.model.trainable import Trainable

HEAD_LEARNING_RATE = 1e-3  # the default


class Settings(BaseModel):
    """The settings that all runs of a sweep share.

    A new optimizer setting is a field here, used in :mod:`frostline.training.optimizer`.
    """

    model_config = Strict

    num_train_epochs: Positive = Field(3, description="passes over the training examples")
    per_device_train_batch_size: int = Field(16, ge=1, description="examples in a training step")
    per_device_eval_batch_size: int = Field(64, ge=1, description="examples in an evaluation batch")
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
    warmup_steps: float = Field(0.1, ge=0, description="warm-up steps; below 1 a share of all steps")
    max_grad_norm: float = Field(1.0, ge=0, description="clip the trained gradients to this norm; 0 does not clip")
    evaluations_per_epoch: int = Field(
        1, ge=0, description="evaluations on validation in an epoch; 0: only after the last step"
    )
    load_best_model_at_end: bool = Field(
        True, description="score a run at its best epoch on validation; otherwise at its last"
    )
    train_score_rows: int = Field(
        200, ge=1, description="training examples that are scored at the end of a run, at most"
    )
    metric: str | None = Field(
        None,
        description="chooses epoch, learning rate and k: accuracy, f1, f1_macro, matthews_correlation, or for numbers "
        "spearmanr, pearson, r2; by default the first that suits the task",
    )
    class_weights: Literal["none", "balanced"] | dict[str, float] = Field(
        "none", description="weights of classes in the loss: none, balanced, or label=weight,label=weight"
    )
    tune_pooler: bool = Field(True, description="train the pooler with the head")
    frozen_dropout: bool = Field(
        False, description="leave dropout on in the frozen part, as Trainer does; hidden states are then not cached"
    )
    subset: Literal["per-seed", "fixed"] = Field(
        "per-seed", description="subset of the training examples: per-seed (each seed its own), or fixed"
    )
    data_seed: int = Field(0, ge=0, description="seed of the validation and test splits, the folds, and a fixed subset")
    folds: Folds = Field(
        0,
        description="cross-validate: split the training examples into this many folds instead of holding out validation "
        "examples. A run trains on all folds but that of its seed, and is scored on that one. auto: 5 if there are fewer "
        "than 2,000 rows and no validation data",
    )
    max_length: int | None = Field(
        None, ge=1, description="most tokens in an example; by default the model's limit, at most 512"
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="float32, bfloat16, or auto: bfloat16 if the processor supports it"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Python takes true for 1; nobody means it."""
        assert info.field_name is not None
        wants = cls.model_fields[info.field_name].annotation
        given = value if isinstance(value, list | tuple) else [value]
        if wants is not bool and any(isinstance(one, bool) for one in given):
            raise ValueError("true and false have no meaning here")
        return value


class RunSpec(Settings):
    """One run: everything that its result depends on, and nothing else."""

    weights: str  # digest of the pretrained model
    vocabulary: str  # digest of its tokenizer
    data: str  # digest of training, validation and test examples
    tune: Tune
    tune_modules: tuple[str, ...] | None = None  # the modules that a ``named`` run trains
    seed: int
    train_size: int
    learning_rate: float
    head_learning_rate: HeadLearningRate = HEAD_LEARNING_RATE  # None: that of the layers, as always for k = 0

    @property
    def digest(self) -> str:
        """The name of the run's result."""
        absent = {"tune_modules"} if self.tune_modules is None else set()
        text = json.dumps(self.model_dump(mode="json", exclude=absent), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def fold(self) -> int | None:
        """The fold on which the run is scored and not trained; None without folds."""
        return self.seed % self.folds if isinstance(self.folds, int) and self.folds else None

    @property
    def to_train(self) -> "Trainable":
        """What the run trains."""
        from frostline.model.trainable import Trainable

        return Trainable(self.tune, self.tune_modules, self.tune_pooler)

    @property
    def stack_key(self) -> str:
        """The same for runs that may be trained as one stack: they differ only in learning rate and seed, not in the fold."""
        return self.model_copy(update={"seed": self.fold or 0, "learning_rate": 1.0}).digest

    @property
    def trainable(self) -> str:
        """What is trained, as it is printed: ``last 2``, ``all``, ``named``."""
        return f"last {self.tune}" if isinstance(self.tune, int) else self.tune
