"""Class weights of the loss."""

from typing import Any

import numpy as np
import pytest

from frostline import FrostlineError
from frostline.data.examples import class_weights


def test_class_weights() -> None:
    targets, labels = np.array([0, 0, 0, 2]), ("a", "b", "c")
    assert class_weights(targets, "none", labels).tolist() == [1, 1, 1]
    assert class_weights(targets, "balanced", labels).tolist() == pytest.approx([4 / 6, 1, 2])
    assert class_weights(targets, {"c": 3, "a": 1, "b": 0}, labels).tolist() == [1, 0, 3]


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("balance", "'balance' are not known (did you mean 'balanced'?)"),
        ({"a": 1, "B": 2}, "'B' (did you mean 'b'?); the labels are 'a', 'b'"),
        ({"a": 1}, "do not include 'b'; give a weight"),
        ({"a": 1, "b": -1}, "of 'b' is -1; give numbers of at least 0"),
        ({"a": 0, "b": 0}, "not all of them 0"),
    ],
)
def test_refused_class_weights(spec: Any, what: str) -> None:
    with pytest.raises(FrostlineError) as caught:
        class_weights(np.array([0, 1]), spec, ("a", "b"))
    assert what in str(caught.value)
