"""Scores of predictions for texts whose labels are known, with intervals for the sample of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.api.prediction import Predictions, TagPredictions
from frostline.data.examples import Examples
from frostline.data.kinds import MULTI_LABEL
from frostline.statistics.answer import CalibrationError, ClassScores
from frostline.statistics.class_outputs import calibration, intervals_by_class
from frostline.statistics.inference import Ratio
from frostline.statistics.metrics import defined, metrics_for
from frostline.statistics.predictions import Labelled, RunPredictions

SEED = 0  # of the simulation of calibrated probabilities
LEAST = 1e-7  # a probability


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores of predictions.

    Attributes:
        examples: The number of texts with a label.
        scores: The score in each metric of the task, by name, with its 95 % interval.
        classes: Precision, recall and F1 of each class, with their intervals; empty for regression.
        calibration: How well the probabilities agree with the accuracy; None for numbers, and for tags of words.
    """

    examples: int
    scores: Mapping[str, Ratio]
    classes: Sequence[ClassScores]
    calibration: CalibrationError | None


def evaluate(predictions: Predictions | TagPredictions, examples: Examples) -> Evaluation:
    """Score the labels that were predicted, with the threshold that was applied.

    Args:
        predictions: Those of all texts of a table.
        examples: The texts of the same table that have a label.
    """
    rows = np.flatnonzero(np.isin(predictions.texts.rows, examples.rows))
    labels, targets = predictions.classes, examples.targets
    if isinstance(predictions, TagPredictions):
        outputs = _of_tags(predictions, rows, targets.shape[1])
    else:
        outputs = _of_labels(predictions)[rows] if labels else predictions.values[rows]
    names = [metric.name for metric in metrics_for(predictions.task_type, len(labels), labels)]
    splits = {name: Labelled(targets, predictions.task_type, labels, name) for name in names}
    scores = {}
    for name, split in splits.items():
        found = RunPredictions(split, lambda run: outputs).alone("")
        scores[name] = Ratio(defined(found["score"]), found["low"], found["high"])
    return Evaluation(
        examples=len(examples),
        scores=scores,
        classes=intervals_by_class(splits[names[0]], outputs) if labels else [],
        calibration=_calibration(predictions, rows, targets)
        if isinstance(predictions, Predictions) and labels
        else None,
    )


def _of_labels(predictions: Predictions) -> NDArray[np.float32]:
    """Logits ``[N, C]`` whose labels are the predicted ones, whatever their threshold."""
    chosen = [[label] if isinstance(label, str) else label for label in predictions.labels]
    return np.array([[1 if label in own else -1 for label in predictions.classes] for own in chosen], np.float32)


def _of_tags(predictions: TagPredictions, rows: NDArray[np.int64], words: int) -> NDArray[np.float32]:
    """The same for the tags of these sentences, ``[n, W, C]``; NaN for words without a tag."""
    place = {label: n for n, label in enumerate(predictions.classes)}
    outputs = np.full((len(rows), words, len(place)), np.nan, np.float32)
    for n, row in enumerate(rows.tolist()):
        for word, tag in enumerate(predictions.tags[row]):
            if tag is not None:
                outputs[n, word] = -1
                outputs[n, word, place[tag]] = 1
    return outputs


def _calibration(predictions: Predictions, rows: NDArray[np.int64], targets: NDArray[Any]) -> CalibrationError:
    probability = np.clip(predictions.values[rows].astype(np.float64), LEAST, 1 - LEAST)
    several = predictions.task_type == MULTI_LABEL
    logits = np.log(probability / (1 - probability)) if several else np.log(probability)
    return calibration(logits, targets, np.random.default_rng(SEED))
