"""The recommended model by class: scores of each class, calibration of its probabilities, thresholds, and sentences on them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.kinds import MULTI_LABEL, TOKENS
from frostline.data.wording import listed, quoted
from frostline.model.terms import TEMPERATURE, THRESHOLD, THRESHOLD_LABEL, THRESHOLDS
from frostline.report import formatting
from frostline.report.names import metric
from frostline.statistics.answer import Answer, Calibration, Recommended, SizeAnswer, Threshold
from frostline.statistics.class_outputs import (
    OUTPUTS,
    Folds,
    calibration,
    choose_threshold,
    choose_thresholds,
    class_examples,
    cross_fitted,
    fit_temperature,
    folds_of,
    not_chosen,
    scores_by_class,
    scores_of,
    softmax,
)
from frostline.statistics.metrics import score, scored_rows
from frostline.statistics.predictions import Labelled, LogitsOf
from frostline.statistics.threshold_rule import RECALL, ThresholdRule
from frostline.sweeps.settings import Settings

COUNTED = {MULTI_LABEL: "pairs", TOKENS: "words"}  # what the calibration counts as examples, by task type
SEED = 0  # of the random folds of the cross-fitting


def add_classes(answer: Answer, validation: Labelled, logits: LogitsOf, spec: Settings) -> None:
    """Add ``classes``, ``calibration`` and ``threshold`` to an answer, unless it is of a regression or recommends nothing.

    The classes are scored over all runs of the recommended k. Calibration and threshold are those of its best run, which is
    saved; with folds, other runs of the k predict the rows that it was trained on, as far as their folds go. A recommended model
    that trains no layer has neither.

    Args:
        answer: The answer; its first train size counts.
        validation: Targets of the validation set.
        logits: Returns a run's predictions for the validation examples.
        spec: The settings, which ask for a temperature and a threshold.
    """
    size = answer.sizes[0]
    if not validation.labels or not (size.recommended or size.decision):
        return
    answer.classes = scores_by_class(validation, [logits(run) for run in runs_of_choice(size)])
    if size.recommended is None:
        return
    held_out = held_out_logits(size, size.recommended, logits)[0]
    scored = np.flatnonzero(scored_rows(held_out))
    held_out, targets, texts = held_out[scored], validation.targets[scored], validation.texts[scored]
    folds = folds_of(validation.clusters[scored], np.random.default_rng(SEED))
    if spec.threshold is not None:
        rule = ThresholdRule.read(spec.threshold, validation.metric)
        if validation.task_type == MULTI_LABEL:
            found = _of_labels(held_out, targets, folds, rule, validation.labels, calibrate=spec.calibrate)
        else:
            found = _of_class(held_out, targets, folds, rule, validation.labels[1], calibrate=spec.calibrate)
        answer.threshold = Threshold(rule=str(spec.threshold), metric=rule.metric, **found)
    scaled = cross_fitted(held_out, targets, folds)
    answer.calibration = Calibration(
        rows=len(scored),
        examples=len(class_examples(held_out, targets)[1]),
        counted=COUNTED.get(validation.task_type, "examples"),
        saved=spec.calibrate,
        temperature=fit_temperature(held_out, targets),
        before=calibration(held_out, targets, np.random.default_rng(SEED), texts),
        after=calibration(scaled, targets, np.random.default_rng(SEED), texts),
    )


def runs_of_choice(size: SizeAnswer) -> list[str]:
    """The runs in the mean of the recommended k; of a model that trains no layer, its name."""
    cell = size.cell(size.recommended.recipe) if size.recommended else None
    if cell is None:
        assert size.decision is not None
        return [size.decision.choice]
    return [run.run for run in cell.in_mean]


def held_out_logits(size: SizeAnswer, recommended: Recommended, logits: LogitsOf) -> tuple[NDArray[Any], int]:
    """The logits of what is recommended on validation, and how many runs they are of.

    They are those of the best run; in rows that it is not scored on, those of the first run of its k that is, and has learned.
    Rows that none of them held out are NaN.
    """
    found, cell, used = logits(recommended.run).copy(), size.cell(recommended.recipe), 1
    for run in cell.in_mean if cell else ():
        missing = ~scored_rows(found)
        if missing.any() and run.outcome == "ok":
            found[missing] = (others := logits(run.run))[missing]
            used += bool(scored_rows(others)[missing].any())
    return found, used


def _of_class(
    logits: NDArray[Any], targets: NDArray[np.int64], folds: Folds, rule: ThresholdRule, label: str, *, calibrate: bool
) -> dict[str, Any]:
    """The threshold of the second class, and the scores at 0.5 and with thresholds that were chosen without each fold."""

    def choose(probability: NDArray[np.float64], own: NDArray[np.int64]) -> float:
        return choose_threshold(probability, own == 1, rule)

    threshold, predicted = _chosen(logits, targets, folds, lambda x: softmax(x)[:, 1], choose, calibrate=calibrate)
    return {
        "label": label,
        "threshold": threshold,
        "not_chosen": not_chosen((targets == 1)[:, None], [label], rule),
        "at_half": scores_of(logits.argmax(1) == 1, targets == 1),
        "cross_fitted": scores_of(predicted, targets == 1),
    }


def _of_labels(
    logits: NDArray[Any],
    targets: NDArray[np.bool_],
    folds: Folds,
    rule: ThresholdRule,
    labels: Sequence[str],
    *,
    calibrate: bool,
) -> dict[str, Any]:
    """The same for label sets: the threshold of each label, and the scores in the metrics of label sets."""
    choose = partial(choose_thresholds, rule=rule)
    thresholds, predicted = _chosen(logits, targets, folds, OUTPUTS[MULTI_LABEL], choose, calibrate=calibrate)
    return {
        "by_label": dict(zip(labels, thresholds.tolist(), strict=True)),
        "not_chosen": not_chosen(targets, labels, rule),
        "at_half": score(targets, logits, MULTI_LABEL),
        "cross_fitted": score(targets, np.where(predicted, 1.0, -1.0), MULTI_LABEL),
    }


def _chosen(
    logits: NDArray[Any],
    targets: NDArray[Any],
    folds: Folds,
    probabilities: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    choose: Callable[[NDArray[np.float64], NDArray[Any]], Any],
    *,
    calibrate: bool,
) -> tuple[Any, NDArray[np.bool_]]:
    """The threshold or thresholds that all examples suggest, and the predictions for each fold with those of the other folds.

    ``probabilities`` turns logits into the probabilities that ``choose`` reads; they have the shape of the targets.
    """

    def chosen_on(rows: NDArray[np.int64]) -> tuple[Any, NDArray[np.bool_]]:
        """The threshold or thresholds that these examples suggest, and what they predict for all examples."""
        temperature = fit_temperature(logits[rows], targets[rows]) if calibrate else 1.0
        exact = probabilities(logits.astype(np.float64) / temperature)
        found = exact.astype(np.float32).astype(np.float64)  # as predictions are rounded
        threshold = choose(found[rows], targets[rows])
        return threshold, found >= threshold

    predicted = np.zeros(targets.shape, bool)
    for rest, fold in folds:
        predicted[fold] = chosen_on(rest)[1][fold]
    return chosen_on(np.arange(len(targets)))[0], predicted


COUNTED_IN_WORDS = {  # what counts as an example
    "pairs": "Each pair of a text and a label is an example with two classes, yes and no.",
    "words": "Each word is an example, and its tag is the class.",
}
WHO_APPLIES = "frostline predict applies what is saved; transformers ignores it."


def output_sentences(answer: Answer) -> list[str]:
    """All sentences; none for a regression, or if nothing is recommended."""
    of_threshold = threshold_sentences(answer.threshold) if answer.threshold else []
    return [*calibration_sentences(answer), *of_threshold, *([WHO_APPLIES] if is_saved(answer) else [])]


def is_saved(answer: Answer) -> bool:
    """Whether a temperature or a threshold is saved with the model."""
    return bool(answer.threshold or (answer.calibration and answer.calibration.saved))


def output_keys(answer: Answer) -> dict[str, Any]:
    """The keys of config.json for a temperature and a threshold: those that the sweep's settings ask for."""
    calibration, threshold = answer.calibration, answer.threshold
    found: dict[str, Any] = {}
    if calibration and calibration.saved:
        found[TEMPERATURE] = calibration.temperature
    if threshold and threshold.by_label:
        found[THRESHOLDS] = threshold.by_label
    elif threshold:
        found |= {THRESHOLD: threshold.threshold, THRESHOLD_LABEL: threshold.label}
    return found


def calibration_sentences(answer: Answer) -> list[str]:
    """How far the probabilities are from the accuracy, what a temperature changes, and whether it is saved."""
    calibration = answer.calibration
    if calibration is None:
        return []
    before, after = calibration.before, calibration.after
    counted = COUNTED_IN_WORDS.get(calibration.counted)
    size, some = answer.sizes[0], f"Of {answer.validation_rows:,} labelled rows, {calibration.rows:,} count here"
    more = size.folds is not None and size.seeds < size.folds
    some += ": more seeds hold out more folds." if more else ": other runs that held rows out did not learn."
    sentences = [
        *([some] if calibration.rows < answer.validation_rows else []),
        *([counted] if counted else []),
        f"The probability of the most probable class differs from its accuracy by {formatting.score(before.error)} on average "
        "(expected calibration error).",
    ]
    if before.error <= before.by_chance_high:
        sentences.append("On so few examples, chance alone explains this.")
    helps = after.log_loss < before.log_loss
    change = f"{formatting.score(before.log_loss)} to {formatting.score(after.log_loss)}"
    sentences.append(
        f"Dividing the logits by the temperature {calibration.temperature:.2f} {'helps' if helps else 'does not help'}: on "
        f"examples that it was not fitted on, the log loss changes from {change}."
    )
    if calibration.saved:
        sentences.append(f"The temperature is saved as {TEMPERATURE} in config.json.")
    return sentences


def threshold_sentences(threshold: Threshold) -> list[str]:
    """Where the threshold is, or where those of several labels are, what it was chosen by, and what it changes."""
    metric, by_label = threshold.metric, threshold.by_label
    name = metric if metric in threshold.at_half else "f1_micro" if by_label else "f1"
    half, chosen = threshold.at_half[name], threshold.cross_fitted[name]
    where = " on examples that it was not chosen on" if metric else ""
    change = f"The {_name(name)} changes from {formatting.score(half)} at 0.5 to {formatting.score(chosen)}{where}."
    is_loss = name == metric != RECALL and half is not None and chosen is not None and chosen < half
    loss = ["That is a loss: 0.5 is the better threshold for new texts."] if is_loss else []
    why = "No threshold could be chosen where no validation example has the label"
    not_chosen = [f"{why}: 0.5 is saved for {listed(threshold.not_chosen)}."] if threshold.not_chosen else []
    if by_label is None:
        assert threshold.threshold is not None
        least, unchanged = formatting.threshold(threshold.threshold), threshold.threshold == 0.5
        return [
            f"The class {quoted(threshold.label)} is predicted if its probability is at least {least}.",
            *(not_chosen or [_origin(threshold, "It", "This threshold")]),
            *([] if unchanged else [change, *loss]),
            f"The threshold is saved as {THRESHOLD} in config.json.",
        ]
    limits = sorted(map(formatting.threshold, by_label.values()), key=float)
    shown = limits[0] if limits[0] == limits[-1] else f"a threshold of its own, between {limits[0]} and {limits[-1]}"
    return [
        f"A label is predicted if its probability is at least {shown}.",
        _origin(threshold, "Each" if metric == RECALL else "This", "This"),
        *not_chosen,
        *(change, *loss),
        f"It is saved as {THRESHOLDS} in config.json.",
    ]


def _origin(threshold: Threshold, it: str, given: str) -> str:
    """Where the threshold comes from; ``it`` and ``given`` are the subjects of the sentence."""
    name, _, number = threshold.rule.partition("=")
    if not threshold.metric:
        return f"{given} was given."
    if name == RECALL:
        return f"{it} is the highest threshold with a recall of at least {number} on validation."
    if threshold.threshold == 0.5:
        return f"No other threshold has a higher {_name(threshold.metric)} on validation."
    return f"{it} maximizes the {_name(threshold.metric)} on validation."


def _name(score: str) -> str:
    return {RECALL: RECALL, "balanced_accuracy": "balanced accuracy"}.get(score, metric(score))
