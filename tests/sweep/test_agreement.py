"""Whether two results of one run agree."""

import numpy as np
import pytest

from frostline.sweep.results.store import disagreement

LOGITS = {"validation_best": np.array([[1.0, -4.0], [np.nan, 2.0]], np.float32), "none": np.zeros((0, 2), np.float32)}


@pytest.mark.parametrize("change, agrees", [(0.0, True), (3e-5, True), (1e-4, False), (np.nan, False), (np.inf, False)])
def test_differences_up_to_the_tolerance_agree(change: float, agrees: bool) -> None:
    other = {**LOGITS, "validation_best": LOGITS["validation_best"] + np.array([[0, change], [0, 0]], np.float32)}
    assert (disagreement(LOGITS, other) == "") is agrees and (disagreement(other, LOGITS) == "") is agrees


def test_other_examples_do_not_agree() -> None:
    assert disagreement(LOGITS, {**LOGITS, "none": np.zeros((1, 2))}) == "they are not for the same examples"
    assert disagreement(LOGITS, {}) == "they are not for the same examples"
