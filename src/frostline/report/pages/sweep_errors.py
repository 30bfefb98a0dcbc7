"""The section of a sweep's page on the errors of the recommended run."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from frostline.report.error_analysis import confusion, largest_errors
from frostline.report.figures.files import svg
from frostline.report.figures.predictions import predictions_over_targets
from frostline.report.label_set_errors import label_set_errors
from frostline.report.tables.confusion import confusion_table
from frostline.report.tag_errors import tag_confusion, worst_sentences, wrong_words
from frostline.statistics.metrics import scored_rows
from frostline.sweep.results.folder import Folder


def errors_of_recommended(folder: Folder, answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The errors of the recommended run on validation; None if no run is recommended."""
    recommended = answer["sizes"][0]["recommended"]
    examples = folder.split("validation")
    if recommended is None or examples is None:
        return None
    logits, labels = folder.predictions(recommended["run"]), folder.identity.labels
    scored = np.flatnonzero(scored_rows(logits))
    examples, logits = examples.take(scored), logits[scored]
    found: dict[str, Any] = dict.fromkeys(("confusion", "scatter", "largest", "sentences", "words", "label_sets"))
    found["examples"] = len(examples)
    if examples.of_words:
        found["confusion"] = confusion_table(tag_confusion(examples, logits, labels), of_words=True)
        found["sentences"] = worst_sentences(examples, logits, labels)
        found["misclassified"], found["words"] = wrong_words(examples, logits)
        return found
    if examples.has_label_sets:
        found["label_sets"] = label_set_errors(examples, logits, labels)
        return found
    found["largest"] = largest_errors(examples, logits, labels)
    if labels:
        found["confusion"] = confusion_table(confusion(examples.targets, logits.argmax(1), labels))
        found["misclassified"] = int((examples.targets != logits.argmax(1)).sum())
    else:
        found["scatter"] = Markup(svg(predictions_over_targets(examples.targets, logits[:, 0])))
    return found
