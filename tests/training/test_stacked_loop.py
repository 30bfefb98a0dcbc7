"""Several runs in one training loop give the same results as separate runs."""

import math

import pytest

from frostline.training.settings import TrainingSettings
from training.lines import (
    TRAIN,
    Line,
    fit_together,
    record_facts,
    same,
)

TOGETHER = TrainingSettings(
    num_train_epochs=3, per_device_train_batch_size=8, max_grad_norm=0.2, warmup_steps=2, evaluations_per_epoch=2
)


def test_a_run_in_a_stack_is_bitwise_identical_to_the_same_run_alone():
    """Each run has its own rows, order, learning rate, schedule, clipping, scores and best parameters."""
    seeds, rates = (0, 1, 2), (0.5, 0.05, 0.005)
    rows = [TRAIN[:20], TRAIN[4:], TRAIN[2:22]]
    alone, values = [], []
    for n in range(3):
        line = Line()
        alone += fit_together([line], TOGETHER, seeds[n : n + 1], rates[n : n + 1], rows[n : n + 1])
        values.append(line.values())
    lines = [Line(), Line(), Line()]
    together = fit_together(lines, TOGETHER, seeds, rates, rows)
    assert [record_facts(one) for one in together] == [record_facts(one) for one in alone]
    assert all(same(line.values(), one) for line, one in zip(lines, values, strict=True))
    assert not same(values[0], values[1])
    assert len({one.train_seconds for one in together}) == 1


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_run_that_diverges_does_not_change_the_others(what):
    def forward_of(line, bad):
        def forward(rows):
            logits = line.forward(rows)
            if len(line.calls) == 6 and bad:  # the value is 0 or NaN, and the gradient is infinite
                logits = logits + (line.parameters["bias"] * 0).sqrt().sum() * (1 if what == "gradient" else math.nan)
            return logits

        return forward

    found = []
    for bad in (False, True):
        lines = [Line(), Line(), Line()]
        forwards = [forward_of(line, bad and n == 1) for n, line in enumerate(lines)]
        trained = fit_together(lines, TOGETHER, (0, 1, 2), [0.05] * 3, [TRAIN] * 3, forward=forwards)
        found.append([(record_facts(one), line.values()) for one, line in zip(trained, lines, strict=True)])
    without, diverged = found
    for n in (0, 2):
        assert diverged[n][0] == without[n][0] and same(diverged[n][1], without[n][1])
    (outcome, reason, _, steps, train_last, points), values = diverged[1]
    assert (outcome, steps, train_last, len(points)) == ("diverged", 3, {}, 2)
    assert reason == f"the {what} of step 4 of 9 is not finite"
    assert all(value.isfinite().all() for value in values.values())
