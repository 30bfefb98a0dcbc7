"""The settings of an analysis as sentences for its page."""

from collections.abc import Mapping
from typing import Any

from frostline.report import formatting
from frostline.report.answer.analysis import Analysis


def settings_in_words(analysis: Analysis) -> list[str]:
    """A sentence for each setting that may change a conclusion."""
    settings = analysis["settings"]
    sentences = [_learning_rates(settings), _failures(settings)]
    excluded = " and ".join(settings["leave_out"])
    sentences.append(f"Excluded where tasks are combined: {excluded}." if excluded else "No task is excluded.")
    if settings["by_mean"]:
        sentences.append("A number of layers reaches the target if its mean score does.")
    else:
        sentences.append(
            "A number of layers reaches the target with confidence if its whole 95 % confidence interval does."
        )
    if settings["corrected"]:
        sentences.append("Shares are of full fine-tuning’s gain over the best constant prediction (the baseline).")
    else:
        sentences.append("Shares are of full fine-tuning’s score, without subtracting a baseline.")
    unknown = list(dict.fromkeys(group["task"] for group in analysis["groups"] if group["chance"] is None))
    if unknown:
        sentences.append(
            f"The baseline of {', '.join(unknown)} is unknown: shares there are of full fine-tuning’s score."
        )
    return sentences


def _learning_rates(settings: Mapping[str, Any]) -> str:
    if settings["one_learning_rate"]:
        return "Every k is shown at the learning rate that is best for full fine-tuning."
    return (
        "Each k is shown at its own best learning rate. If several were tried, the best one was chosen by the scores that are "
        "shown, which are therefore slightly optimistic."
    )


def _failures(settings: Mapping[str, Any]) -> str:
    if settings["failed_below"] is None:
        return "Failed runs are counted, and left out of a mean if at least half of its runs succeeded."
    share = formatting.target(settings["failed_below"])
    return f"Runs with at most {share} of the best score of their cell, or a score of 0, are left out of the means."
