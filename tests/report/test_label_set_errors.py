"""The errors of label sets: counts, and the texts with the largest loss."""

import numpy as np
import pytest

from frostline.data.examples import Examples
from frostline.report.label_set_errors import label_set_errors

TARGETS = np.array([[True, False], [False, False], [True, True], [False, True]])
LOGITS = np.array([[3.0, -2.0], [2.0, -1.0], [-4.0, 1.0], [-1.0, 1.0]], np.float32)


def test_worst_texts_come_first_with_what_is_missed_and_what_is_extra() -> None:
    examples = Examples(texts=("w", "x", "y", "z"), pairs=None, rows=np.arange(2, 6), name="", targets=TARGETS)
    found = label_set_errors(examples, LOGITS, ("price", "story"))
    assert (found.texts, found.missed, found.extra) == (2, 1, 1)
    first, second = found.worst
    assert (first.row, first.text, first.labels) == (4, "y", ["price", "story"])
    assert [(one.label, one.missed) for one in first.wrong] == [("price", True)]
    assert first.wrong[0].probability == pytest.approx(1 / (1 + np.exp(4)))
    assert second.labels == [] and not second.wrong[0].missed
    losses = np.log1p(np.exp(np.where(TARGETS, -LOGITS, LOGITS))).mean(1)
    assert first.loss == pytest.approx(losses[2]) and second.loss == pytest.approx(losses[1])
