"""Loss scaling for float16: the scales of torch's GradScaler, one for each run."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from transformers import get_scheduler

from frostline.training import updates as loss_scale
from frostline.training.settings import TrainingSettings
from frostline.training.updates import LossScale, parameter_groups
from training.lines import TRAIN, Line, fit_together, record_facts

HALF = TrainingSettings(num_train_epochs=4, per_device_train_batch_size=4, warmup_steps=0, precision="float16")


def test_scales_follow_those_of_torch(monkeypatch):
    monkeypatch.setattr(loss_scale, "INTERVAL", 3)
    draw = torch.Generator().manual_seed(0)
    found = LossScale(2, torch.device("cpu"))
    scales, growths = torch.full((2, 1), loss_scale.START), torch.zeros(2, 1, dtype=torch.int32)
    seen = set()
    for _ in range(60):
        overflowed = torch.rand(2, generator=draw) < 0.3
        found.update(overflowed)
        for n in range(2):
            torch._amp_update_scale_(scales[n], growths[n], overflowed[n].float(), 2.0, 0.5, 3)
        assert torch.equal(found.values, scales[:, 0])
        seen |= set(found.values.tolist())
    assert len(seen) > 4


def overflowing(line, calls):
    """A forward whose gradient is infinite in these calls, and whose values are always finite."""

    def forward(rows):
        logits = line.forward(rows)
        if len(line.calls) in calls:
            logits = logits + (line.parameters["bias"] * 0).sqrt().sum()
        return logits

    return forward


def test_a_step_whose_gradients_overflow_is_skipped_for_this_run_only():
    lines = [Line(), Line(), Line()]
    without = fit_together([Line()], HALF, (0,), [0.05], [TRAIN])[0]
    forwards = [overflowing(line, {3} if n == 1 else ()) for n, line in enumerate(lines)]
    records = fit_together(lines, HALF, (0, 0, 0), [0.05] * 3, [TRAIN] * 3, forward=forwards)
    assert [record.outcome for record in records] == ["ok"] * 3 and [record.steps for record in records] == [24] * 3
    assert record_facts(records[0]) == record_facts(records[2]) == record_facts(without)
    assert record_facts(records[1])[5] != record_facts(records[0])[5]


def test_a_skipped_step_changes_nothing():
    line, seen = Line(), []
    forward = overflowing(line, {2})

    def watched(rows):
        seen.append(line.values())
        return forward(rows)

    fit_together([line], HALF, (0,), [0.05], [TRAIN], forward=[watched])
    same = [all(torch.equal(seen[n][name], seen[n + 1][name]) for name in seen[n]) for n in range(4)]
    assert same == [False, True, False, False]


@pytest.mark.parametrize(("epochs", "reason"), [(2, ""), (3, "the gradient of step 17 of 18 is not finite")])
def test_a_run_whose_gradients_overflow_at_every_scale_diverges(epochs, reason):
    """From 65536 to 1 the scale is halved sixteen times; the seventeenth overflow is no matter of the scale."""
    line = Line()
    before = line.values()
    settings = HALF.model_copy(update={"num_train_epochs": epochs, "load_best_model_at_end": False})
    (record,) = fit_together([line], settings, (0,), [0.05], [TRAIN], forward=[overflowing(line, range(100))])
    assert (record.outcome == "diverged", record.reason, record.steps) == (epochs == 3, reason, min(16, 6 * epochs))
    assert all(torch.equal(line.values()[name], before[name]) for name in before)


@pytest.mark.parametrize("skipped", [{1, 2}, {2, 5, 6}])
def test_a_skipped_step_takes_no_learning_rate_of_the_schedule(skipped):
    """The reference is a loop as that of transformers' Trainer: the schedule advances when the optimizer does."""
    line, reference = Line(), Line()
    settings = HALF.model_copy(update={"warmup_steps": 4, "load_best_model_at_end": False, "max_grad_norm": 0.0})
    fit_together([line], settings, (0,), [0.05], [TRAIN], forward=[overflowing(line, skipped)])
    groups = parameter_groups(reference.parameters, frozenset(), settings, 0.05)
    optimizer = torch.optim.AdamW(groups, betas=(settings.adam_beta1, settings.adam_beta2), eps=settings.adam_epsilon)
    schedule, batches = get_scheduler("linear", optimizer, 4, 24), [np.array(x) for x in line.calls if len(x) == 4]
    for call, rows in enumerate(batches, start=1):
        optimizer.zero_grad()
        F.cross_entropy(reference.forward(rows), torch.from_numpy(reference.targets[rows])).backward()
        if call not in skipped:
            optimizer.step()
            schedule.step()
    for name, value in reference.values().items():
        torch.testing.assert_close(line.values()[name], value, rtol=1e-4, atol=1e-5)
