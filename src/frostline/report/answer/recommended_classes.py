"""The recommended model by class: scores of each class, calibration of its probabilities, and thresholds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.specification import MULTI_LABEL, TOKENS
from frostline.report.answer.recommendation import cell_of
from frostline.statistics.by_class import scores_by_class
from frostline.statistics.calibration import (
    calibration,
    class_examples,
    cross_fitted,
    fit_temperature,
    folds_of,
    probabilities,
)
from frostline.statistics.metrics import score, scored_rows
from frostline.statistics.outputs import OUTPUTS
from frostline.statistics.predictions import Labelled, LogitsOf
from frostline.statistics.threshold import choose_threshold, choose_thresholds, scores_of
from frostline.statistics.threshold_rule import ThresholdRule
from frostline.sweep.specification import SweepSpec

COUNTED = {MULTI_LABEL: "pairs", TOKENS: "words"}  # what the calibration counts as examples, by task type
SEED = 0  # of the random folds of the cross-fitting


def by_class(size: Mapping[str, Any], validation: Labelled, logits: LogitsOf, spec: SweepSpec) -> dict[str, Any]:
    """The keys ``classes``, ``calibration`` and ``threshold`` of answer.json; None for a regression or without a recommendation.

    The classes are scored over all runs of the recommended k. Calibration and threshold are those of its best run. That run is
    saved. A recommended model that trains no layer has neither calibration nor threshold.

    Args:
        size: One train size of the answer.
        validation: Targets of the validation set.
        logits: Returns a run's predictions for the validation examples.
        spec: The settings, which ask for a temperature and a threshold.
    """
    unknown = {"classes": None, "calibration": None, "threshold": None}
    if not validation.labels or not (size["recommended"] or size["decision"]):
        return unknown
    classes = scores_by_class(validation, [logits(run) for run in runs_of_choice(size)])
    if size["recommended"] is None:
        return {**unknown, "classes": classes}
    best = logits(size["recommended"]["run"])
    scored = np.flatnonzero(scored_rows(best))
    best, targets = best[scored], validation.targets[scored]
    found = None
    if spec.threshold is not None:
        rule = ThresholdRule.read(spec.threshold, validation.metric)
        found = {"rule": str(spec.threshold), "metric": rule.metric}
        if validation.task_type == MULTI_LABEL:
            found |= _thresholds(best, targets, rule, validation.labels, calibrate=spec.calibrate)
        else:
            found |= {"label": validation.labels[1], **_threshold(best, targets, rule, calibrate=spec.calibrate)}
    return {
        "classes": classes,
        "calibration": {
            "examples": len(class_examples(best, targets)[1]),
            "counted": COUNTED.get(validation.task_type, "examples"),
            "saved": spec.calibrate,
            **_calibration(best, targets),
        },
        "threshold": found,
    }


def runs_of_choice(size: Mapping[str, Any]) -> list[str]:
    """The runs in the mean of the recommended k; of a model that trains no layer, its name."""
    if size["recommended"] is None:
        return [size["decision"]["choice"]]
    cell = cell_of(size, size["recommended"]["trainable"])
    assert cell is not None
    return [run["run"] for run in cell["points"] if run["in_mean"]]


def _calibration(logits: NDArray[Any], targets: NDArray[Any]) -> dict[str, Any]:
    """The temperature fitted on all examples, and the calibration without it and with it, cross-fitted."""
    scaled = cross_fitted(logits, targets, np.random.default_rng(SEED))
    return {
        "temperature": fit_temperature(logits, targets),
        "before": calibration(logits, targets, np.random.default_rng(SEED)),
        "after": calibration(scaled, targets, np.random.default_rng(SEED)),
    }


def _threshold(
    logits: NDArray[Any], targets: NDArray[np.int64], rule: ThresholdRule, *, calibrate: bool
) -> dict[str, Any]:
    """The threshold chosen on all examples, and the scores at 0.5 and with thresholds that were chosen without each fold."""

    def chosen_on(rows: NDArray[np.int64]) -> tuple[float, float]:
        """The temperature and the threshold that these examples suggest."""
        temperature = fit_temperature(logits[rows], targets[rows]) if calibrate else 1.0
        return temperature, choose_threshold(probabilities(logits[rows], temperature)[:, 1], targets[rows] == 1, rule)

    predicted = np.zeros(len(targets), bool)
    for rest, fold in folds_of(len(targets), np.random.default_rng(SEED)):
        temperature, threshold = chosen_on(rest)
        predicted[fold] = probabilities(logits[fold], temperature)[:, 1] >= threshold
    return {
        "threshold": chosen_on(np.arange(len(targets)))[1],
        "at_half": scores_of(logits.argmax(1) == 1, targets == 1),
        "cross_fitted": scores_of(predicted, targets == 1),
    }


def _thresholds(
    logits: NDArray[Any], targets: NDArray[np.bool_], rule: ThresholdRule, labels: Sequence[str], *, calibrate: bool
) -> dict[str, Any]:
    """The same for label sets: the threshold of each label, and the scores in the metrics of label sets."""

    def above(rows: NDArray[np.int64], chosen_on: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The thresholds that some examples suggest, and the label sets ``[n, C]`` that they predict for ``rows``."""
        temperature = fit_temperature(logits[chosen_on], targets[chosen_on]) if calibrate else 1.0
        probability = OUTPUTS[MULTI_LABEL](logits.astype(np.float64) / temperature)
        thresholds = choose_thresholds(probability[chosen_on], targets[chosen_on], rule)
        return thresholds, probability[rows] >= thresholds

    everything, predicted = np.arange(len(targets)), np.zeros_like(targets)
    for rest, fold in folds_of(len(targets), np.random.default_rng(SEED)):
        predicted[fold] = above(fold, rest)[1]
    thresholds, _ = above(everything, everything)
    return {
        "by_label": dict(zip(labels, thresholds.tolist(), strict=True)),
        "at_half": score(targets, logits, MULTI_LABEL),
        "cross_fitted": score(targets, np.where(predicted, 1.0, -1.0), MULTI_LABEL),
    }
