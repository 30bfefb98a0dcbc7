"""The settings of a run as a frozen pydantic model with a digest.

Training settings have the names of transformers' ``TrainingArguments``.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from frostline.model.reading import OWN_HEAD
from frostline.statistics.recipe import FULL, Recipe
from frostline.training.fields import Folds, HeadLearningRate, Positive, Strict, panel
from frostline.training.seeds import generator_seed
from frostline.training.ways.way import PLAIN, Way

if TYPE_CHECKING:
    from frostline.model.trainable import Trainable

HEAD_LEARNING_RATE = 1e-3  # the default
CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))  # what a digest is computed from
TRAINING = panel("training")
# Settings that did not exist in the first version. Their defaults do not count, so that earlier results keep their digests.
NEWER = ("tune_modules", "way", "phase", "label_all_tokens", "gradient_accumulation_steps", "gradient_checkpointing")


class Settings(BaseModel):
    """The settings that all runs of a sweep share.

    To add an optimizer setting, add a field here and use it in :mod:`frostline.training.optimizer`.
    """

    model_config = Strict

    num_train_epochs: Positive = Field(3, description="training epochs", json_schema_extra=TRAINING)
    per_device_train_batch_size: int = Field(16, ge=1, description="training batch size", json_schema_extra=TRAINING)
    per_device_eval_batch_size: int = Field(64, ge=1, description="evaluation batch size", json_schema_extra=TRAINING)
    gradient_accumulation_steps: int = Field(
        1,
        ge=1,
        description="batches whose gradients are added up for one optimizer step",
        json_schema_extra=TRAINING,
    )
    gradient_checkpointing: bool = Field(
        False,
        description="less memory for activations: layers run again in the backward pass",
        json_schema_extra=TRAINING,
    )
    weight_decay: float = Field(
        0.01, ge=0, description="AdamW weight decay, on weight matrices only", json_schema_extra=TRAINING
    )
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="AdamW beta1", json_schema_extra=TRAINING)
    adam_beta2: float = Field(0.999, ge=0, lt=1, description="AdamW beta2", json_schema_extra=TRAINING)
    adam_epsilon: Positive = Field(1e-8, description="AdamW epsilon", json_schema_extra=TRAINING)
    lr_scheduler_type: Literal[
        "linear",
        "cosine",
        "cosine_with_restarts",
        "polynomial",
        "constant",
        "constant_with_warmup",
        "inverse_sqrt",
    ] = Field(
        "linear",
        description="learning rate schedule, such as linear, cosine or constant",
        json_schema_extra=TRAINING,
    )
    warmup_steps: float = Field(
        0.1, ge=0, description="warm-up steps; below 1: share of all steps", json_schema_extra=TRAINING
    )
    max_grad_norm: float = Field(
        1.0, ge=0, description="gradient clipping norm; 0 disables clipping", json_schema_extra=TRAINING
    )
    evaluations_per_epoch: int = Field(
        1,
        ge=0,
        description="evaluations per epoch; 0: after the last step only",
        json_schema_extra=TRAINING,
    )
    load_best_model_at_end: bool = Field(
        True,
        description="score a run at its best evaluation, not its last",
        json_schema_extra=TRAINING,
    )
    train_score_rows: int = Field(
        200,
        ge=1,
        description="training examples scored at the end of a run, at most",
        json_schema_extra=panel("output"),
    )
    metric: str | None = Field(
        None,
        description="selects epoch, learning rate and k: a metric, such as accuracy or f1_macro; a wrong name lists all",
        json_schema_extra=panel("output", "the task's usual metric"),
    )
    class_weights: Literal["none", "balanced"] | dict[str, float] = Field(
        "none",
        description="class weights: none, balanced or label=weight pairs",
        json_schema_extra=TRAINING,
    )
    label_all_tokens: bool = Field(
        False,
        description="tags of words: train on all tokens of a word, not the first one only",
        json_schema_extra=TRAINING,
    )
    tune_pooler: bool = Field(True, description="train the pooler with the head", json_schema_extra=TRAINING)
    frozen_dropout: bool = Field(
        False,
        description="dropout in frozen layers, as in Trainer; no caching",
        json_schema_extra=TRAINING,
    )
    max_length: int | None = Field(
        None,
        ge=1,
        description="maximum tokens per example",
        json_schema_extra=panel("data", "model's limit, at most 512"),
    )
    subset: Literal["per-seed", "fixed"] = Field(
        "per-seed",
        description="training subset: one per-seed, or one fixed",
        json_schema_extra=panel("data"),
    )
    data_seed: int = Field(
        0, ge=0, description="seed of splits, folds and a fixed subset", json_schema_extra=panel("data")
    )
    folds: Folds = Field(
        0,
        description="cross-validation folds, 0 for none, or auto (5 for under 2,000 rows without validation data)",
        json_schema_extra=panel("data"),
    )
    precision: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="precision: float32, bfloat16, float16 (with loss scaling) or auto (bfloat16 if the device supports it)",
        json_schema_extra=panel("resources"),
    )

    @property
    def batch_size(self) -> int:
        """The number of examples of one optimizer step."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps

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


class RunSpec(Settings):
    """The specification of one run: exactly the settings that its result depends on."""

    weights: str  # digest of the pretrained model
    vocabulary: str  # digest of its tokenizer
    data: str  # digest of training, validation and test examples
    recipe: Recipe
    tune_modules: tuple[str, ...] | None = None  # the modules that a ``named`` run trains
    way: Way = PLAIN  # what ``recipe`` stands for if it is the name of a way
    phase: int = 0  # the number of this training among those of a run in several phases
    seed: int
    train_size: int
    learning_rate: float | None  # None: no parameter of the model is trained
    head_learning_rate: HeadLearningRate = HEAD_LEARNING_RATE  # None: the same as for the layers; always None for k = 0

    @cached_property
    def digest(self) -> str:
        """The key of the run's result: a hash of all its settings."""
        fields = type(self).model_fields
        absent = {name for name in NEWER if getattr(self, name) == fields[name].default}
        settings = self.model_dump(mode="json", exclude=absent)
        settings["tune"] = _as_hashed(settings.pop("recipe"))
        if "way" in settings:
            settings["way"] = self.way.model_dump(mode="json", exclude_defaults=True)
            if "tune" in settings["way"]:
                settings["way"]["tune"] = _as_hashed(settings["way"]["tune"])
        text = CANONICAL.encode(settings)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values, which are not validated."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("digest", None)
        return copied

    @property
    def fold(self) -> int | None:
        """The fold that the run is scored on and not trained on; None without folds."""
        return self.seed % self.folds if isinstance(self.folds, int) and self.folds else None

    @property
    def to_train(self) -> "Trainable":
        """The choice of trained parameters."""
        from frostline.model.trainable import Trainable

        if self.recipe.is_way:
            return self.way.trainable(self.tune_pooler, generator_seed(self.seed, "layers"))
        pooler = self.tune_pooler and self.way.head == OWN_HEAD  # another head does not read the pooler
        return Trainable(self.recipe, self.tune_modules, pooler)

    def seed_for(self, purpose: str) -> int:
        """The seed of a generator of this training; another one for each phase."""
        return generator_seed(self.seed, f"{purpose}, phase {self.phase}" if self.phase else purpose)

    @property
    def stack_key(self) -> str:
        """A key shared by the runs of a stack: they differ only in learning rate and in seed, with the same fold."""
        return self.model_copy(update={"seed": self.fold or 0, "learning_rate": 1.0}).digest


def _as_hashed(name: str) -> int | str:
    """A recipe as digests are computed from it: digests must not depend on how it is printed."""
    k = Recipe(name).k
    return "all" if name == FULL else name if k is None else k
