"""The knee and the one-standard-error rule."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from curve_cells import cells_of
from frostline.statistics.curve_rules import knee, one_standard_error

scores = st.floats(0.0, 1.0, allow_nan=False).map(lambda value: round(value, 3))
curves = st.lists(scores, min_size=3, max_size=8)


@given(st.floats(0, 1), st.floats(0.001, 1), st.integers(3, 12))
def test_a_straight_line_has_no_knee(first: float, step: float, steps: int) -> None:
    assert knee(cells_of([first + step * k for k in range(steps)])) is None
    assert knee(cells_of([first - step * k for k in range(steps)])) is None


def test_a_bend_is_a_knee() -> None:
    assert knee(cells_of([0.5, 0.6, 0.8, 0.82, 0.83])) == "2"


@given(curves, st.floats(0, 0.2))
def test_the_one_standard_error_rule_never_selects_more_layers_than_the_best_mean(
    means: list[float], std: float
) -> None:
    named = one_standard_error(cells_of(means, std))
    assert named is not None and int(named) <= int(np.argmax(means))
    assert means[int(named)] >= max(means) - std / 2
