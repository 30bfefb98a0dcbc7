"""What a model predicts for texts: a class, a number, or any number of labels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline import FrostlineError
from frostline.data.examples import Texts
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION
from frostline.model.loading import PROBLEM_TYPES
from frostline.model.output_keys import TEMPERATURE, THRESHOLD, THRESHOLD_LABEL, THRESHOLDS
from frostline.statistics.outputs import OUTPUTS


@dataclass(frozen=True)
class Threshold:
    """A label is predicted from this probability on, else the other one of two labels."""

    label: str
    probability: float


@dataclass(frozen=True)
class Predictions:
    """Predictions for N texts.

    Attributes:
        texts: The texts, with their row numbers in the source.
        labels: The C classes; empty for regression.
        values: Probabilities ``[N, C]``, or for regression predicted numbers ``[N, 1]``.
        truncated: The number of texts that were truncated to the model's length limit.
        temperature: What the logits were divided by, from the model's config.json; 1 if it has none.
        threshold: The threshold for one of two labels; None: the label with the highest probability is predicted.
    """

    texts: Texts
    labels: tuple[str, ...]
    values: NDArray[np.float32]
    truncated: int
    temperature: float = 1.0
    threshold: Threshold | None = None

    @property
    def predicted(self) -> Sequence[Any]:
        """The predicted label of each text; empty for regression."""
        return [self._label(n) for n in range(len(self.values))] if self.labels else []

    def rows(self) -> Iterator[dict[str, Any]]:
        """One dictionary per text: ``row``, ``text``, ``label`` and a probability ``p(LABEL)`` for each label.

        Pairs also have ``text_pair``. For regression, ``prediction`` replaces label and probabilities.
        """
        yield from ({**text_cells(self.texts, n), **self.cells(n)} for n in range(len(self.texts)))

    def columns(self) -> list[str]:
        """The keys of :meth:`rows`."""
        return [*text_columns(self.texts), *self.cell_columns()]

    def cells(self, n: int) -> dict[str, Any]:
        """What is predicted for text ``n``: the keys of :meth:`rows` without row number and text."""
        if not self.labels:
            return {"prediction": float(self.values[n, 0])}
        return {"label": self._label(n), **self._probabilities(n)}

    def cell_columns(self) -> list[str]:
        """The keys of :meth:`cells`."""
        return ["label", *(f"p({label})" for label in self.labels)] if self.labels else ["prediction"]

    def _probabilities(self, n: int) -> dict[str, float]:
        probabilities = zip(self.labels, self.values[n], strict=True)
        return {f"p({label})": round(float(p), 6) for label, p in probabilities}

    def _label(self, n: int) -> str:
        """The predicted label of text ``n``."""
        if self.threshold is None:
            return self.labels[int(self.values[n].argmax())]
        place = self.labels.index(self.threshold.label)
        enough = self.values[n, place] >= self.threshold.probability
        return self.labels[place if enough else 1 - place]


@dataclass(frozen=True)
class LabelSetPredictions(Predictions):
    """Predictions of any number of labels for N texts. Each of the C labels has a probability of its own.

    Attributes:
        thresholds: The probability of each label from which it is predicted, ``[C]``.
    """

    thresholds: tuple[float, ...] = ()

    @property
    def predicted(self) -> Sequence[list[str]]:
        """The predicted labels of each text, in their order; an empty list for none."""
        return [self._labels(n) for n in range(len(self.values))]

    def cells(self, n: int) -> dict[str, Any]:
        """What is predicted for text ``n``: a list of ``labels``, and a probability ``p(LABEL)`` for each label."""
        return {"labels": self._labels(n), **self._probabilities(n)}

    def cell_columns(self) -> list[str]:
        return ["labels", *(f"p({label})" for label in self.labels)]

    def _labels(self, n: int) -> list[str]:
        both = zip(self.labels, self.values[n], self.thresholds, strict=True)
        return [label for label, probability, least in both if probability >= least]


@dataclass(frozen=True)
class Outputs:
    """How the outputs of a model are read.

    Attributes:
        task_type: The type of its task.
        labels: Its labels; empty for regression.
        temperature: What its logits are divided by.
        threshold: The threshold for one of two classes.
        thresholds: The threshold of each label, if a text can have any number of labels.
    """

    task_type: str
    labels: tuple[str, ...]
    temperature: float = 1.0
    threshold: Threshold | None = None
    thresholds: tuple[float, ...] = ()

    @classmethod
    def of_config(cls, config: Any, threshold: float | None = None) -> "Outputs":
        """Those of a classifier with this configuration of transformers; a given threshold replaces that in it.

        Raises:
            FrostlineError: The threshold is unusable.
        """
        keys, count = config.to_dict(), config.num_labels
        task_type = CLASSIFICATION
        if config.problem_type == PROBLEM_TYPES[MULTI_LABEL]:
            task_type = MULTI_LABEL
        elif config.problem_type == PROBLEM_TYPES[REGRESSION] or count == 1:
            task_type = REGRESSION
        labels = () if task_type == REGRESSION else tuple(config.id2label[n] for n in range(count))
        return cls.of_task(task_type, labels, threshold, keys)

    @classmethod
    def of_task(
        cls, task_type: str, labels: Sequence[str], threshold: float | None, keys: Mapping[str, Any] | None = None
    ) -> "Outputs":
        """Those of a model for a task, with the ``keys`` of its config.json if it has one."""
        keys = keys or {}
        if task_type == MULTI_LABEL:
            thresholds = _thresholds(keys, labels, threshold)
            return cls(task_type, tuple(labels), _number(keys, TEMPERATURE, 1.0), thresholds=thresholds)
        decision = _threshold(keys, labels, threshold)
        return cls(task_type, tuple(labels), _number(keys, TEMPERATURE, 1.0), decision)

    def of_logits(self, texts: Texts, logits: Tensor, truncated: int) -> Predictions:
        """The predictions from logits ``[N, C]``."""
        scaled = logits / self.temperature if self.labels else logits
        return self.of_values(texts, OUTPUTS[self.task_type](scaled.numpy()), truncated)

    def of_values(self, texts: Texts, values: NDArray[np.float32], truncated: int) -> Predictions:
        """The predictions from probabilities ``[N, C]`` or numbers ``[N, 1]``."""
        if self.task_type == MULTI_LABEL:
            return LabelSetPredictions(
                texts, self.labels, values, truncated, self.temperature, thresholds=self.thresholds
            )
        return Predictions(texts, self.labels, values, truncated, self.temperature, self.threshold)


def text_cells(texts: Texts, n: int) -> dict[str, Any]:
    """Row number and text of text ``n``, and the second text of a pair."""
    pair = {} if texts.pairs is None else {"text_pair": texts.pairs[n]}
    return {"row": int(texts.rows[n]), "text": texts.texts[n], **pair}


def text_columns(texts: Texts) -> list[str]:
    """The keys of :func:`text_cells`."""
    return ["row", "text", *([] if texts.pairs is None else ["text_pair"])]


def _threshold(config: Mapping[str, Any], labels: Sequence[str], given: float | None) -> Threshold | None:
    """The given threshold, else that of config.json; None if there is neither."""
    if given is None and THRESHOLD not in config:
        return None
    if len(labels) != 2:
        found = f"{len(labels)} labels" if labels else "no labels"
        raise FrostlineError(f"A threshold is for two labels, but this model has {found}: leave --threshold out.")
    probability = _probability(_number(config, THRESHOLD, 0.5) if given is None else given)
    label = config.get(THRESHOLD_LABEL, labels[1])
    if label not in labels:
        raise FrostlineError(f"{THRESHOLD_LABEL} in config.json is {label!r}: name one of {', '.join(labels)}.")
    return Threshold(label, probability)


def _thresholds(config: Mapping[str, Any], labels: Sequence[str], given: float | None) -> tuple[float, ...]:
    """The given threshold for all labels, else those of config.json, else 0.5."""
    saved = config.get(THRESHOLDS, {})
    if given is not None:
        return (_probability(given),) * len(labels)
    if not isinstance(saved, Mapping) or any(label not in labels for label in saved):
        raise FrostlineError(
            f"{THRESHOLDS} in config.json must give a probability for labels among {', '.join(labels)}."
        )
    return tuple(_probability(_number(saved, label, 0.5)) for label in labels)


def _probability(threshold: float) -> float:
    if not 0 < threshold < 1:
        raise FrostlineError(f"The threshold cannot be {threshold:g}: give a probability between 0 and 1.")
    return threshold


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    """A number above 0 in config.json."""
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
        raise FrostlineError(f"{key} in config.json is {value!r}: give a number above 0, or remove the key.")
    return float(value)
