"""Holm's adjustment of p-values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.statistics.inference import holm


def test_a_small_example() -> None:
    """Each p-value is multiplied by the number of hypotheses that are still open, and never falls below the one before."""
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_it_is_between_the_p_value_and_bonferroni(p_values: list[float]) -> None:
    for p, adjusted in zip(p_values, holm(p_values), strict=True):
        assert p <= adjusted <= min(1.0, len(p_values) * p) or adjusted == pytest.approx(min(1.0, len(p_values) * p))
