"""Several learners trained together: each as if it were alone."""

import math

import pytest

from frostline.training.specification import Settings
from training.lines import (
    TRAIN,
    Line,
    fit_together,
    record_facts,
    same,
)

TOGETHER = Settings(
    num_train_epochs=3, per_device_train_batch_size=8, max_grad_norm=0.2, warmup_steps=2, evaluations_per_epoch=2
)


def test_several_learners_are_trained_as_each_alone():
    """Each with its own rows, their order, rate, schedule, clipping, scores and best values: bitwise identical."""
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
def test_a_learner_that_diverges_stops_and_leaves_the_others_as_they_are(what):
    def forward_of(line, bad):
        def forward(rows):
            logits = line.forward(rows)
            if len(line.calls) == 6 and bad:  # its value is 0, or not a number; its slope has no bound
                logits = logits + (line.parameters["bias"] * 0).sqrt().sum() * (1 if what == "gradient" else math.nan)
            return logits

        return forward

    found = []
    for bad in (False, True):
        lines = [Line(), Line(), Line()]
        forwards = [forward_of(line, bad and n == 1) for n, line in enumerate(lines)]
        trained = fit_together(lines, TOGETHER, (0, 1, 2), [0.05] * 3, [TRAIN] * 3, forward=forwards)
        found.append([(record_facts(one), line.values()) for one, line in zip(trained, lines, strict=True)])
    beside, among = found
    for n in (0, 2):
        assert among[n][0] == beside[n][0] and same(among[n][1], beside[n][1])
    (outcome, reason, _, steps, train_last, points), values = among[1]
    assert (outcome, steps, train_last, len(points)) == ("diverged", 3, {}, 2)
    assert reason == f"the {what} of step 4 of 9 is not finite"
    assert all(value.isfinite().all() for value in values.values())
