"""The number of steps of a training, and the steps after which it is evaluated."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.training.run import StepPlan
from frostline.training.settings import TrainingSettings


def plan(per_epoch, times, epochs):
    """The steps of a training with one example a step."""
    given = {"num_train_epochs": epochs, "evaluations_per_epoch": times, "per_device_train_batch_size": 1}
    return StepPlan.of(TrainingSettings(**given), per_epoch)


@given(st.integers(1, 50), st.integers(1, 20), st.fractions(0, 6, max_denominator=50).filter(bool))
def test_evaluation_steps(per_epoch, times, epochs):
    found, total = plan(per_epoch, times, float(epochs)), max(1, math.ceil(epochs * per_epoch))
    steps = sorted(found.evaluate_after)
    assert (found.per_epoch, found.total) == (per_epoch, total) and steps[0] >= 1 and steps[-1] == total
    assert {epoch * per_epoch for epoch in range(1, total // per_epoch + 1)} <= set(steps)
    gaps = np.diff([0, *steps])
    assert gaps.max() <= math.ceil(per_epoch / times)
    if total % per_epoch == 0:
        assert len(steps) == min(times, per_epoch) * (total // per_epoch)


@pytest.mark.parametrize(
    "per_epoch, times, epochs, steps",
    [
        (3, 1, 3, [3, 6, 9]),
        (4, 2, 2, [2, 4, 6, 8]),
        (5, 1, 0.4, [2]),
        (5, 1, 1.4, [5, 7]),
        (2, 5, 2, [1, 2, 3, 4]),
        (3, 0, 3, [9]),
    ],
)
def test_evaluation_steps_by_hand(per_epoch, times, epochs, steps):
    assert sorted(plan(per_epoch, times, epochs).evaluate_after) == steps


@pytest.mark.parametrize("given, steps", [(0, 0), (0.1, 3), (0.99, 30), (1, 1), (2.5, 3), (40, 40)])
def test_a_warm_up_is_a_share_below_one_and_else_a_number_of_steps(given, steps):
    settings = TrainingSettings(num_train_epochs=3, per_device_train_batch_size=1, warmup_steps=given)
    assert StepPlan.of(settings, 10).warmup == steps
