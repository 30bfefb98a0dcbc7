"""The number of steps of a training, and the steps after which it is evaluated."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.training.run import evaluation_steps


@given(st.integers(1, 50), st.integers(1, 20), st.fractions(0, 6).filter(bool))
def test_evaluation_steps(per_epoch, times, epochs):
    total = max(1, math.ceil(epochs * per_epoch))
    steps = evaluation_steps(total, per_epoch, times)
    assert steps == sorted(set(steps)) and steps[0] >= 1 and steps[-1] == total
    assert {epoch * per_epoch for epoch in range(1, total // per_epoch + 1)} <= set(steps)
    gaps = np.diff([0, *steps])
    assert gaps.max() <= math.ceil(per_epoch / times)
    if total % per_epoch == 0:
        assert len(steps) == min(times, per_epoch) * (total // per_epoch)


@pytest.mark.parametrize(
    "arguments, steps",
    [
        ((9, 3, 1), [3, 6, 9]),
        ((8, 4, 2), [2, 4, 6, 8]),
        ((2, 5, 1), [2]),
        ((7, 5, 1), [5, 7]),
        ((4, 2, 5), [1, 2, 3, 4]),
        ((9, 3, 0), [9]),
    ],
)
def test_evaluation_steps_by_hand(arguments, steps):
    assert evaluation_steps(*arguments) == steps
