"""The keys of config.json that ``frostline predict`` applies to the outputs of a saved model. transformers ignores them."""

from collections.abc import Mapping
from typing import Any, Final

# transformers reads a key `temperature` as a setting of text generation, and drops it when it saves a classifier.
TEMPERATURE: Final = "calibration_temperature"  # what the logits are divided by
THRESHOLD: Final = "decision_threshold"  # the smallest probability from which the label is predicted
THRESHOLD_LABEL: Final = "decision_threshold_label"  # the label that it is about
THRESHOLDS: Final = "decision_thresholds"  # that of each label, if a text can have several
OUTPUT_KEYS = (TEMPERATURE, THRESHOLD, THRESHOLD_LABEL, THRESHOLDS)


def output_keys(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The keys to save with the recommended model: those that the sweep's settings ask for."""
    calibration, threshold = answer["calibration"], answer["threshold"]
    found: dict[str, Any] = {}
    if calibration and calibration["saved"]:
        found[TEMPERATURE] = calibration["temperature"]
    if threshold and threshold.get("by_label"):
        found[THRESHOLDS] = threshold["by_label"]
    elif threshold:
        found |= {THRESHOLD: threshold["threshold"], THRESHOLD_LABEL: threshold["label"]}
    return found
