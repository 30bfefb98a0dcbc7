"""The section of a sweep's page on the classes of the recommended model, its probabilities and its threshold."""

from collections.abc import Mapping
from typing import Any

from frostline.report.answer.output_sentences import (
    WHO_APPLIES,
    calibration_sentences,
    is_saved,
    threshold_sentences,
)
from frostline.report.answer.recommended_classes import runs_of_choice
from frostline.report.tables.by_class import PLURALS, calibration_table, class_scores_table, threshold_table


def class_content(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The tables and sentences of the section; None for a regression, or if nothing is recommended."""
    classes, calibration, threshold = (answer[name] for name in ("classes", "calibration", "threshold"))
    if not classes:
        return None
    runs, thresholds = len(runs_of_choice(answer["sizes"][0])), (threshold or {}).get("by_label")
    tables = {"class_scores": class_scores_table(classes, runs, answer["task_type"], thresholds)}
    if calibration:
        tables["calibration"] = calibration_table(calibration)
    if threshold:
        tables["threshold"] = threshold_table(threshold)
    return {
        "tables": tables,
        "of": PLURALS.get(answer["task_type"], "classes"),
        "calibration": calibration_sentences(calibration) if calibration else [],
        "threshold": threshold_sentences(threshold) if threshold else [],
        "saved": WHO_APPLIES if is_saved(answer) else "",
    }
