"""What an estimator does, and what it fits.

The best linear probe on frozen features, chosen as ``frostline probe`` chooses it.

A TF-IDF model, which reads the texts and no pretrained model.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline import FrostlineError
from frostline.data.examples import Examples
from frostline.frozen.forward_pass import POOLED, Rows
from frostline.statistics.predictions import Labelled
from frostline.training.experiment import Experiment
from frostline.training.probes.examples import ProbeExamples, Vectors, cached_vectors, computed_vectors, words_of_rows
from frostline.training.probes.fitting import FittedProbe, best_probe
from frostline.training.probes.inputs import LAST_LAYERS, features_after, has_features, probe_forward_pass
from frostline.training.probes.linear import PENALTIES
from frostline.training.probes.saved import save_probe
from frostline.training.probes.words import WordsModel, has_words
from frostline.training.rows import train_rows
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

    def fit(self, spec: RunSpec, context: Experiment) -> Fitted:
        """Fit a model to the training rows of a run. The same run gives the same model."""

    def restore(self, spec: RunSpec, context: Experiment, learned: Mapping[str, Tensor]) -> Fitted:
        """The model that :meth:`fit` has fitted before, from what it ``learned``."""

    def operations(self, spec: RunSpec, context: Experiment, training: float) -> float:
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
        raise FrostlineError(f"{spec.recipe} predicts one label for each text, but words have tags: leave it out.")


@dataclass(frozen=True)
class RunProbe(Refitted):
    """The probe of a run. Its logits are those whose softmax ``frostline predict`` prints."""

    fitted: FittedProbe
    context: Experiment

    @property
    def parameters(self) -> int:
        probe = self.fitted.probe
        return int(probe.weights.size + probe.bias.size)

    def logits(self, rows: Rows, split: str) -> Logits:
        examples = examples_of(self.context, rows, self.fitted.input.layers)
        values = self.fitted.probe.inverse_temperature * self.fitted.values(examples.vectors)
        return np.asarray(examples.by_row(values), np.float32)

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        context, fitted = self.context, self.fitted
        save_probe(folder, fitted.input, fitted.probe, context.pretrained, context.machine, about)


class ProbeEstimator:
    """Fits probes after every layer, and takes the one with the best cross-validated score on training rows."""

    most = None

    def require_installed(self) -> None: ...

    def require_suitable(self, spec: RunSpec, train: Examples) -> None: ...

    def fit(self, spec: RunSpec, context: Experiment) -> RunProbe:
        rows, layers = train_rows(context, spec), context.pretrained.anatomy.count
        return RunProbe(best_probe(examples_of(context, rows, range(layers + 1)), layers), context)

    def restore(self, spec: RunSpec, context: Experiment, learned: Mapping[str, Tensor]) -> RunProbe:
        return self.fit(spec, context)

    def operations(self, spec: RunSpec, context: Experiment, training: float) -> float:
        """An eigendecomposition takes about ten times the cube of its size, and the product of the features before it."""
        anatomy, penalties = context.pretrained.anatomy, len(PENALTIES)
        words = words_of_rows(context.tokens, train_rows(context, spec))
        count = spec.train_size if words is None else len(words.position)
        size, other = sorted((count, anatomy.width))
        one = 10.0 * size**3 + 2.0 * size**2 * other + 2.0 * penalties * count * anatomy.width
        vectors = len(POOLED) if words is None else 1
        return (vectors * (anatomy.count + 1) + LAST_LAYERS**2) * one  # one probe reads the last layers together


def examples_of(context: Experiment, rows: Rows, layers: Iterable[int]) -> ProbeExamples:
    """These rows with their vectors, from the cache if they are there, else from a forward pass over the rows."""
    words, states, problem = words_of_rows(context.tokens, rows), context.states, context.problem
    count = context.pretrained.anatomy.count
    if states is not None and has_features(states.selection, count, of_words=context.tokens.of_words):
        vectors = cached_vectors(states, rows, words)
    else:
        vectors = _computed(context, rows, tuple(layers))
    split = Labelled(problem.targets[rows], problem.task_type, context.labels, problem.metric)
    return ProbeExamples(split, vectors, words)


def _computed(context: Experiment, rows: Rows, layers: tuple[int, ...]) -> Vectors:
    """The vectors of these rows, or of their words, after these layers, in memory."""
    pretrained = context.pretrained
    pretrained.restore()
    forward_pass = probe_forward_pass(
        pretrained, context.machine, features_after(layers, of_words=context.tokens.of_words)
    )
    parts = [
        (places, {layer: vectors(layer) for layer in layers})
        for places, vectors in computed_vectors(forward_pass, context.tokens, rows)
    ]
    order = np.argsort(np.concatenate([places for places, _ in parts]))
    found = {layer: np.concatenate([vectors[layer] for _, vectors in parts])[order] for layer in layers}
    return found.__getitem__


PER_TOKEN = 20_000.0  # operations that fitting takes for each token, at the speed of a forward pass


@dataclass(frozen=True)
class RunWords(Refitted):
    """The TF-IDF model of a run."""

    model: WordsModel
    context: Experiment

    @property
    def parameters(self) -> int:
        return int(self.model.weights.size + self.model.bias.size)

    def logits(self, rows: Rows, split: str) -> Logits:
        return np.maximum(self.model.values(self.context.examples_of(rows, split)), NEVER).astype(np.float32)

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.model.save(folder, about)


class WordsEstimator:
    """Fits a TF-IDF model of words and word pairs."""

    most = None

    def require_installed(self) -> None: ...

    def require_suitable(self, spec: RunSpec, train: Examples) -> None:
        require_one_target(spec, train)
        if not has_words(train):
            raise FrostlineError(f"{spec.recipe} needs texts of words, but the training texts have none: leave it out.")

    def fit(self, spec: RunSpec, context: Experiment) -> RunWords:
        model = WordsModel.fit(context.examples_of(train_rows(context, spec), "train"), len(context.labels))
        assert model is not None
        return RunWords(model, context)

    def restore(self, spec: RunSpec, context: Experiment, learned: Mapping[str, Tensor]) -> RunWords:
        return self.fit(spec, context)

    def operations(self, spec: RunSpec, context: Experiment, training: float) -> float:
        return PER_TOKEN * float(context.tokens.lengths[train_rows(context, spec)].sum())
