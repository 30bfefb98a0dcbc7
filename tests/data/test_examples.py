"""Digests of texts and examples."""

from typing import Any

import numpy as np
import pytest

from frostline import FrostlineError
from frostline.data.examples import Examples, check_class_weights, class_weights


def pairs(texts: list[str], others: list[str] | None, targets: list[int]) -> Examples:
    return Examples(
        texts=tuple(texts),
        pairs=None if others is None else tuple(others),
        rows=np.arange(len(texts)),
        name="t",
        targets=np.array(targets),
    )


def test_different_examples_have_different_digests() -> None:
    variants = [
        pairs(["ab", "c"], None, [0, 1]),
        pairs(["a", "bc"], None, [0, 1]),
        pairs(["c", "ab"], None, [1, 0]),
        pairs(["ab", "c"], None, [0, 0]),
        pairs(["ab", "c"], ["", ""], [0, 1]),
        pairs(["a", "c"], ["b", ""], [0, 1]),
        pairs(["ab"], None, [0]),
    ]
    assert len({one.digest() for one in variants}) == len(variants)
    assert variants[0].row_digests()[0] != variants[4].row_digests()[0] != variants[5].row_digests()[0]
    assert variants[0].take(np.array([1, 0])).digest() == variants[2].digest()
    assert variants[2].take(np.array([1])).digest() == variants[6].digest()


def test_class_weights() -> None:
    targets, labels = np.array([0, 0, 0, 2]), ("a", "b", "c")
    assert class_weights(targets, "none", labels).tolist() == [1, 1, 1]
    assert class_weights(targets, "balanced", labels).tolist() == pytest.approx([4 / 6, 1, 2])
    assert class_weights(targets, {"c": 3, "a": 1, "b": 0}, labels).tolist() == [1, 0, 3]


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"a": 1, "B": 2}, "'B' (did you mean 'b'?); the labels are 'a', 'b'"),
        ({"a": 1}, "do not include 'b'; give a weight"),
        ({"a": 1, "b": -1}, "of 'b' is -1; give numbers of at least 0"),
        ({"a": 0, "b": 0}, "not all of them 0"),
    ],
)
def test_refused_class_weights(spec: Any, what: str) -> None:
    with pytest.raises(FrostlineError) as caught:
        check_class_weights(spec, ("a", "b"))
    assert what in str(caught.value)
