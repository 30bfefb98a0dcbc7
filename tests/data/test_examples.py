"""Digests of texts and examples."""

import numpy as np

from frostline.data.examples import Examples


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
