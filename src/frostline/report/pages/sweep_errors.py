"""The section of a sweep's page on the errors of the recommended run."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from frostline.report.error_analysis import confusion, largest_errors
from frostline.report.figures.files import svg
from frostline.report.figures.predictions import predictions_over_targets
from frostline.report.tables.confusion import confusion_table
from frostline.sweep.results.folder import Folder


def errors_of_recommended(folder: Folder, answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The errors of the recommended run on validation; None if no run is recommended."""
    recommended = answer["sizes"][0]["recommended"]
    examples = folder.split("validation")
    if recommended is None or examples is None:
        return None
    logits, labels = folder.predictions(recommended["run"]), folder.identity.labels
    scored = np.flatnonzero(~np.isnan(logits).any(1))
    examples, logits = examples.take(scored), logits[scored]
    largest = largest_errors(examples, logits, labels)
    found = {"largest": largest, "examples": len(examples), "confusion": None, "scatter": None}
    if labels:
        found["confusion"] = confusion_table(confusion(examples.targets, logits.argmax(1), labels))
        found["misclassified"] = int((examples.targets != logits.argmax(1)).sum())
    else:
        found["scatter"] = Markup(svg(predictions_over_targets(examples.targets, logits[:, 0])))
    return found
