"""The specification of a run as a frozen pydantic model with a digest."""

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from frostline.model.terms import OWN_HEAD
from frostline.statistics.recipe import FULL, Recipe
from frostline.training.seeds import generator_seed
from frostline.training.settings import HEAD_LEARNING_RATE, HeadLearningRate, TrainingSettings
from frostline.training.ways.way import PLAIN, Way

if TYPE_CHECKING:
    from frostline.model.trainable import Trainable

CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))  # what a digest is computed from
# Settings that did not exist in the first version. Their defaults do not count, so that earlier results keep their digests.
NEWER = ("tune_modules", "way", "phase", "label_all_tokens", "gradient_accumulation_steps", "gradient_checkpointing")


class RunSpec(TrainingSettings):
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
