"""A run: a recipe with a train size, a seed, a learning rate and the settings that its result depends on.

Also what follows from these alone: its digest, the seeds of its generators, its steps and its phases. ``Checkpoints`` keep states
of a run in the middle of its training, from which it continues to a bitwise identical result.
"""

import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import Field

from frostline.model.ways import Way, way_named
from frostline.statistics.recipe import FULL, HEAD_ONLY, NAMED, Recipe
from frostline.training.settings import HEAD_LEARNING_RATE, HeadLearningRate, TrainingSettings

if TYPE_CHECKING:  # it imports torch, which reading a folder does not need
    from frostline.model.anatomy import Anatomy


def generator_seed(seed: int, purpose: str) -> int:
    """The seed of the generator for one purpose (head, order, dropout, subset). Each purpose has a different seed."""
    return int.from_bytes(hashlib.blake2b(f"{purpose}/{seed}".encode(), digest_size=6).digest(), "big")


CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))  # what a digest is computed from
# Settings that did not exist in the first version. Their defaults do not count, so that earlier results keep their digests.
NEWER = ("phase", "label_all_tokens", "gradient_accumulation_steps", "gradient_checkpointing", "standardize_targets")


class Kind(NamedTuple):
    """Runs of one kind take about equally long."""

    recipe: Recipe
    train_size: int
    num_train_epochs: float


class Run(TrainingSettings):
    """One run: exactly what its result depends on."""

    weights: str  # digest of the pretrained model
    vocabulary: str  # digest of its tokenizer
    data: str  # digest of training, validation and test examples
    recipe: Recipe
    way: Way = Field(default_factory=lambda values: way_named(values["recipe"]))  # what ``recipe`` stands for
    phase: int = 0  # the number of this training among those of a run in several phases
    standardize_targets: bool = False  # of a regression
    seed: int
    train_size: int
    learning_rate: float | None  # None: no parameter of the model is trained
    head_learning_rate: HeadLearningRate = HEAD_LEARNING_RATE  # None: the same as for the layers; always None for k = 0

    @cached_property
    def digest(self) -> str:
        """The key of the run's result: a hash of all its settings."""
        fields = type(self).model_fields
        absent = {"way"} | {name for name in NEWER if getattr(self, name) == fields[name].default}
        settings = self.model_dump(mode="json", exclude=absent)
        settings["tune"] = _as_hashed(settings.pop("recipe"))
        way = self.way.model_dump(mode="json", exclude_defaults=True)
        if self.recipe == NAMED:
            settings["tune_modules"] = way["modules"]
        elif self.recipe.is_way and way:
            settings["way"] = {**way, "tune": _as_hashed(way["tune"])} if "tune" in way else way
        text = CANONICAL.encode(settings)
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values, which are not validated."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("digest", None)
        return copied

    def shown_settings(self) -> dict[str, Any]:
        """The settings that a reader understands: no digests, and of the way its name only."""
        return self.model_dump(mode="json", exclude={"weights", "vocabulary", "data", "way", "phase"})

    @property
    def kind(self) -> Kind:
        """Its recipe, train size and epochs."""
        return Kind(self.recipe, self.train_size, self.num_train_epochs)

    @property
    def fold(self) -> int | None:
        """The fold that the run is scored on and not trained on; None without folds."""
        return self.seed % self.folds if isinstance(self.folds, int) and self.folds else None

    def parameters(self, anatomy: "Anatomy") -> frozenset[str]:
        """Names of the parameters that the run trains."""
        return self.way.parameters(anatomy, pooler=self.tune_pooler, seed=generator_seed(self.seed, "layers"))

    def depth(self, anatomy: "Anatomy") -> int | None:
        """How many of the last layers must run in training; None if embeddings are trained (:meth:`Anatomy.depth`)."""
        return anatomy.depth(self.parameters(anatomy))

    def named_among(self, lengths: Collection[float]) -> Recipe:
        """The recipe as tables name it: with its training length, if there are several ``lengths``."""
        several = len({*lengths}) > 1 and self.way.in_loop
        return self.recipe.for_epochs(self.num_train_epochs) if several else self.recipe

    def seed_for(self, purpose: str) -> int:
        """The seed of a generator of this training; another one for each phase."""
        return generator_seed(self.seed, f"{purpose}, phase {self.phase}" if self.phase else purpose)

    @property
    def stack_key(self) -> str:
        """A key shared by the runs of a stack: they differ only in learning rate and in seed, with the same fold."""
        return self.model_copy(update={"seed": self.fold or 0, "learning_rate": 1.0}).digest


def by_kind(runs: Iterable[Run]) -> dict[Kind, list[Run]]:
    """The runs of each kind, in their order."""
    kinds: dict[Kind, list[Run]] = {}
    for run in runs:
        kinds.setdefault(run.kind, []).append(run)
    return kinds


def _as_hashed(name: str) -> int | str:
    """A recipe as digests are computed from it: digests must not depend on how it is printed."""
    k = Recipe(name).k
    return "all" if name == FULL else name if k is None else k


ROUNDING = 1e-6  # steps: a number of epochs that stands for whole steps may be rounded up


@dataclass(frozen=True)
class StepPlan:
    """The steps of one training."""

    per_epoch: int
    total: int
    warmup: int  # the first steps, in which the learning rate rises
    evaluate_after: frozenset[int]  # steps, counted from 1; the last one is among them

    @classmethod
    def of(cls, settings: TrainingSettings, examples: int) -> Self:
        """The steps of a training on this number of ``examples``."""
        per_epoch = math.ceil(examples / settings.batch_size)
        total = max(1, math.ceil(settings.num_train_epochs * per_epoch - ROUNDING))
        warmup = settings.warmup_steps if settings.warmup_steps >= 1 else settings.warmup_steps * total
        evaluations, times = {total}, settings.evaluations_per_epoch
        for n in range(1, math.ceil(total / per_epoch * times) + 1):  # ``times`` in each epoch
            evaluations.add(min(total, math.ceil(n * per_epoch / times)))
        return cls(per_epoch, total, math.ceil(warmup), frozenset(evaluations))


def trainings_of(spec: Run, anatomy: "Anatomy") -> list[Run]:
    """Everything that a run computes from hidden states: its phases, and the fit of its head."""
    return [*phases_of(spec, anatomy), *[frozen(spec)] * (spec.way.order == "head-first")]


def frozen(spec: Run) -> Run:
    """The run with all layers frozen, to read what the head reads."""
    return spec.model_copy(update={"recipe": HEAD_ONLY, "way": Way(tune=HEAD_ONLY, head_reads=spec.way.head_reads)})


def phases_of(spec: Run, anatomy: "Anatomy") -> list[Run]:
    """The trainings of a run, which are one except for gradual unfreezing.

    Gradual unfreezing (ULMFiT: Howard and Ruder 2018, arXiv:1801.06146) trains the head, then the head and the last layer, and
    so on. Its phases have equal parts of the run's steps, except for remainders, and learning-rate schedules of their own. Only
    the first phase warms up, for at most half of its steps.
    """
    if spec.way.order != "gradual":
        return [spec]
    deepest = anatomy.count if spec.way.tune.k is None else spec.way.tune.k
    unfrozen = [*map(Recipe, range(deepest + 1)), *[FULL] * (spec.way.tune == FULL)]
    whole = StepPlan.of(spec, spec.train_size)
    ends = [whole.total * number // len(unfrozen) for number in range(len(unfrozen) + 1)]
    return [
        spec.model_copy(
            update={
                "way": spec.way.model_copy(update={"tune": tune, "order": "at-once"}),
                "num_train_epochs": (end - begin) / whole.per_epoch,
                "warmup_steps": 0.0 if begin else float(min(whole.warmup, (end - begin) // 2)),
                "phase": number,
            }
        )
        for number, (tune, begin, end) in enumerate(zip(unfrozen, ends[:-1], ends[1:], strict=True), 1)
    ]


def tuned_share(spec: Run, anatomy: "Anatomy") -> float:
    """The share of the model's layers that run in each training step: the mean over its phases, without those of a BiLSTM."""
    depths = [phase.depth(anatomy) for phase in phases_of(spec, anatomy)]
    return sum(1.0 if depth is None else depth / anatomy.count for depth in depths) / len(depths)


State = dict[str, Any]


class Checkpoints:
    """Keeps states of one run, or of a stack of runs, to continue from. This class keeps nothing."""

    def load(self) -> State | None:
        """The last state that was kept; None if there is none."""
        return None

    def after_step(self, state: Callable[[], State]) -> None:
        """Called after each step. ``state`` returns the present state, to keep it if it is time."""


NO_CHECKPOINTS = Checkpoints()
