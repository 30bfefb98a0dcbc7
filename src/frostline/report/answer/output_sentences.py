"""Sentences on the probabilities and the threshold of the recommended model, for the page, the model card and the terminal."""

from collections.abc import Mapping
from typing import Any

from frostline.data.wording import listed, quoted
from frostline.model.terms import TEMPERATURE, THRESHOLD, THRESHOLDS
from frostline.report import formatting
from frostline.report.names import metric
from frostline.statistics.threshold_rule import RECALL

COUNTED = {  # what counts as an example
    "pairs": "Each pair of a text and a label is an example with two classes, yes and no.",
    "words": "Each word is an example, and its tag is the class.",
}
WHO_APPLIES = "frostline predict applies what is saved; transformers ignores it."


def output_sentences(answer: Mapping[str, Any]) -> list[str]:
    """All sentences; none for a regression, or if nothing is recommended."""
    calibration, threshold = answer["calibration"], answer["threshold"]
    if calibration is None:
        return []
    sentences = calibration_sentences(calibration) + (threshold_sentences(threshold) if threshold else [])
    return [*sentences, *([WHO_APPLIES] if is_saved(answer) else [])]


def is_saved(answer: Mapping[str, Any]) -> bool:
    """Whether a temperature or a threshold is saved with the model."""
    return bool(answer["threshold"] or (answer["calibration"] and answer["calibration"]["saved"]))


def calibration_sentences(calibration: Mapping[str, Any]) -> list[str]:
    """How far the probabilities are from the accuracy, what a temperature changes, and whether it is saved."""
    before, after = calibration["before"], calibration["after"]
    counted = COUNTED.get(calibration["counted"])
    sentences = [
        *([counted] if counted else []),
        f"The probability of the predicted class differs from the accuracy by {formatting.score(before['error'])} on average "
        "(expected calibration error).",
    ]
    if before["error"] <= before["by_chance_high"]:
        sentences.append("On so few examples, chance alone explains this.")
    helps = after["log_loss"] < before["log_loss"]
    change = f"{formatting.score(before['log_loss'])} to {formatting.score(after['log_loss'])}"
    sentences.append(
        f"Dividing the logits by the temperature {calibration['temperature']:.2f} {'helps' if helps else 'does not help'}: on "
        f"examples that it was not fitted on, the log loss changes from {change}."
    )
    if calibration["saved"]:
        sentences.append(f"The temperature is saved as {TEMPERATURE} in config.json.")
    return sentences


def threshold_sentences(threshold: Mapping[str, Any]) -> list[str]:
    """Where the threshold is, what it was chosen by, and what it changes."""
    if threshold.get("by_label"):
        return _of_labels(threshold)
    name = threshold["metric"] or "f1"
    half, chosen = (formatting.score(threshold[which][name]) for which in ("at_half", "cross_fitted"))
    label, least = quoted(threshold["label"]), formatting.score(threshold["threshold"])
    where = " on examples that it was not chosen on" if threshold["metric"] else ""
    unchanged = threshold["threshold"] == 0.5
    changes = [] if unchanged else [f"The {_name(name)} changes from {half} at 0.5 to {chosen}{where}."]
    if (
        changes
        and name == threshold["metric"] != RECALL
        and threshold["cross_fitted"][name] < threshold["at_half"][name]
    ):
        changes.append("That is a loss: 0.5 is the better threshold for new texts.")
    return [
        f"The class {label} is predicted if its probability is at least {least}.",
        *(_not_chosen(threshold) or [_origin(threshold)]),
        *changes,
        f"The threshold is saved as {THRESHOLD} in config.json.",
    ]


def _of_labels(threshold: Mapping[str, Any]) -> list[str]:
    """The same for the thresholds of several labels."""
    name = threshold["metric"] if threshold["metric"] in threshold["at_half"] else "f1_micro"
    half, chosen = (formatting.score(threshold[which][name]) for which in ("at_half", "cross_fitted"))
    is_loss = name == threshold["metric"] and threshold["cross_fitted"][name] < threshold["at_half"][name]
    limits = [formatting.score(limit) for limit in threshold["by_label"].values()]
    lowest, highest = min(limits, key=float), max(limits, key=float)
    shown = lowest if lowest == highest else f"a threshold of its own, between {lowest} and {highest}"
    where = " on examples that it was not chosen on" if threshold["metric"] else ""
    rule, _, number = threshold["rule"].partition("=")
    origin = "This was given."
    if rule == RECALL:
        origin = f"Each is the highest threshold with a recall of at least {number} on validation."
    elif threshold["metric"]:
        origin = f"This maximizes the {_name(threshold['metric'])} on validation."
    return [
        f"A label is predicted if its probability is at least {shown}.",
        origin,
        *_not_chosen(threshold),
        f"The {_name(name)} changes from {half} at 0.5 to {chosen}{where}.",
        *(["That is a loss: 0.5 is the better threshold for new texts."] if is_loss else []),
        f"It is saved as {THRESHOLDS} in config.json.",
    ]


def _origin(threshold: Mapping[str, Any]) -> str:
    """Where the threshold comes from."""
    name, _, number = threshold["rule"].partition("=")
    if not threshold["metric"]:
        return "This threshold was given."
    if name == RECALL:
        return f"It is the highest threshold with a recall of at least {number} on validation."
    if threshold["threshold"] == 0.5:
        return f"No other threshold has a higher {_name(threshold['metric'])} on validation."
    return f"It maximizes the {_name(threshold['metric'])} on validation."


def _not_chosen(threshold: Mapping[str, Any]) -> list[str]:
    """The labels that keep 0.5, in a sentence; none if a threshold was chosen for each."""
    labels = threshold["not_chosen"]
    why = "No threshold could be chosen where no validation example has the label"
    return [f"{why}: 0.5 is saved for {listed(labels)}."] if labels else []


def _name(score: str) -> str:
    return {RECALL: RECALL, "balanced_accuracy": "balanced accuracy"}.get(score, metric(score))
