"""What an estimator does, and what it fits."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.frozen.batches import Rows
from frostline.training.context import RunContext
from frostline.training.specification import RunSpec

Logits = NDArray[np.float32]
NEVER = -1e4  # the logit of a class without training examples, whose probability is zero; scores need a finite number


class Fitted(Protocol):
    """A fitted model."""

    @property
    def parameters(self) -> int:
        """How many parameters were trained."""

    @property
    def steps(self) -> int:
        """How many steps of an optimizer that took; 0 without one."""

    @property
    def epochs(self) -> float:
        """How often the optimizer saw all examples; 0 without one."""

    @property
    def learned(self) -> Mapping[str, Tensor]:
        """What :meth:`Estimator.restore` needs; empty if fitting again is as fast."""

    def logits(self, rows: Rows, split: str) -> Logits:
        """Logits, or predicted numbers, of rows of a split, ``[n, C]``."""

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        """Write the model into an empty folder, for ``frostline predict``. ``about`` are facts about the task."""


class Refitted:
    """A fitted model that no optimizer has trained. It is fitted again instead of restored, because that takes seconds."""

    steps = 0
    epochs = 0.0

    @property
    def learned(self) -> Mapping[str, Tensor]:
        return {}


class Estimator(Protocol):
    """Fits a model to the examples of a run."""

    @property
    def most(self) -> int | None:
        """The largest number of training examples of one class; None for any number."""

    def require_installed(self) -> None:
        """Refuse to run without a package.

        Raises:
            FrostlineError: A package is missing.
        """

    def require_suitable(self, spec: RunSpec, train: Examples) -> None:
        """Refuse a run. ``train`` are its training examples.

        Raises:
            FrostlineError: The estimator is not for this task, or not for so many examples.
        """

    def fit(self, spec: RunSpec, context: RunContext) -> Fitted:
        """Fit a model to the training rows of a run. The same run gives the same model."""

    def restore(self, spec: RunSpec, context: RunContext, learned: Mapping[str, Tensor]) -> Fitted:
        """The model that :meth:`fit` has fitted before, from what it ``learned``."""

    def operations(self, spec: RunSpec, context: RunContext, training: float) -> float:
        """Operations of a run, approximately.

        Args:
            spec: The run.
            context: Model and data.
            training: Operations of training the whole model on all examples of the run once.
        """


def most_of_one_class(examples: Examples) -> int:
    """How many examples the largest class has."""
    return int(np.unique(examples.targets, return_counts=True)[1].max())


def require_one_target(spec: RunSpec, train: Examples) -> None:
    """Refuse tags of words.

    Raises:
        FrostlineError: The examples are sentences of words.
    """
    if train.of_words:
        raise FrostlineError(f"{spec.trainable} predicts one label for each text, but words have tags: leave it out.")
