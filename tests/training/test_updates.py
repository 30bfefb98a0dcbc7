"""Parameter groups, schedules, and the optimizer steps of several runs: as those of each run alone, on a CPU and on a device.

The steps that read nothing back from a device run here on a CPU.
"""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import get_scheduler

from frostline.model.anatomy import Anatomy
from frostline.model.terms import FINAL_NORM, HEAD, POOLER
from frostline.training import updates
from frostline.training.run import StepPlan
from frostline.training.settings import TrainingSettings
from frostline.training.updates import next_scales, optimizer_groups, schedule_factors
from training.lines import TRAIN, Line, fit_together, record_facts, same
from training.runs import spec_of

TOGETHER = TrainingSettings(
    num_train_epochs=3, per_device_train_batch_size=8, max_grad_norm=0.2, warmup_steps=2, evaluations_per_epoch=2
)
HALF = TrainingSettings(num_train_epochs=4, per_device_train_batch_size=4, warmup_steps=0, precision="float16")


PLACES = {
    **{"layer.0.weight": "layer 0", "layer.0.bias": "layer 0", "norm.weight": FINAL_NORM},
    **{"pooler.weight": POOLER, "head.weight": HEAD, "head.bias": HEAD},
}


@pytest.mark.parametrize(("head_rate", "of_head"), [(0.5, 0.5), ("same", 0.2)])
def test_parameter_groups(head_rate, of_head):
    parameters = {name: torch.ones(*[2] * (1 + (name.endswith("weight") and "norm" not in name))) for name in PLACES}
    spec = spec_of(1, weight_decay=0.1, learning_rate=0.2, head_learning_rate=head_rate)
    groups = optimizer_groups(spec, Anatomy("layer", 1, PLACES, (), 1), parameters)
    names = {id(p): name for name, p in parameters.items()}
    assert [([names[id(p)] for p in g["params"]], g["lr"], g["weight_decay"]) for g in groups] == [
        (["layer.0.weight"], 0.2, 0.1),
        (["layer.0.bias", "norm.weight"], 0.2, 0.0),
        (["pooler.weight", "head.weight"], of_head, 0.1),
        (["head.bias"], of_head, 0.0),
    ]


@pytest.mark.parametrize("name", TrainingSettings.model_fields["lr_scheduler_type"].annotation.__args__)
@pytest.mark.parametrize("rate", [1e-3, 2e-5])
def test_schedules_are_those_of_transformers(name, rate):
    optimizer = torch.optim.AdamW([nn.Parameter(torch.ones(1))], lr=rate)
    schedule, expected = get_scheduler(name, optimizer, 3, 10), []
    for _ in range(10):
        expected.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    settings = TrainingSettings(
        lr_scheduler_type=name, num_train_epochs=1, per_device_train_batch_size=1, warmup_steps=3
    )
    assert [rate * factor for factor in schedule_factors(settings, StepPlan.of(settings, 10), rate)] == expected


def forward_of(line, *, bad=None, calls=(6,)):
    """With ``bad``, logits or gradients are not finite in some calls."""

    def forward(rows):
        logits = line.forward(rows)
        if len(line.calls) in calls and bad:  # the value is 0 or NaN, and the gradient is infinite
            logits = logits + (line.parameters["bias"] * 0).sqrt().sum() * (1 if bad == "gradient" else math.nan)
        return logits

    return forward


def trained(settings, bad=(None, None, None), rates=(0.05,) * 3, rows=(TRAIN,) * 3):
    """What three runs of one loop record, and their parameters."""
    lines = [Line(), Line(), Line()]
    forwards = [forward_of(line, bad=what) for line, what in zip(lines, bad, strict=True)]
    records = fit_together(lines, settings, (0, 1, 2), rates, rows, forward=forwards)
    assert len({one.train_seconds for one in records}) == 1
    return [(record_facts(record), line.values()) for record, line in zip(records, lines, strict=True)]


def as_on_a_device(monkeypatch):
    monkeypatch.setattr(updates, "HOST_READS", set())


def test_a_run_in_a_stack_is_bitwise_identical_to_the_same_run_alone():
    """Each run has its own rows, order, learning rate, schedule, clipping, scores and best parameters."""
    rates, rows = (0.5, 0.05, 0.005), [TRAIN[:20], TRAIN[4:], TRAIN[2:22]]
    together = trained(TOGETHER, rates=rates, rows=rows)
    for n, (facts, values) in enumerate(together):
        line = Line()
        (alone,) = fit_together([line], TOGETHER, (n,), rates[n : n + 1], rows[n : n + 1])
        assert record_facts(alone) == facts and same(line.values(), values)
    assert not same(together[0][1], together[1][1])


@pytest.mark.parametrize("max_norm", [0.2, 100.0, 0.0])
def test_a_device_takes_the_same_steps(monkeypatch, max_norm):
    settings = TOGETHER.model_copy(update={"max_grad_norm": max_norm})
    on_host = trained(settings, rates=(0.5, 0.05, 0.05))
    as_on_a_device(monkeypatch)
    for host, device in zip(on_host, trained(settings, rates=(0.5, 0.05, 0.05)), strict=True):
        assert host[0][:4] == device[0][:4] == ("ok", "", host[0][2], 9)
        for name, value in host[1].items():
            torch.testing.assert_close(device[1][name], value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("read_every", "evaluations"), [(None, 2), (None, 0), (1, 2), (2, 0), (32, 2)]
)  # of a device; None: on the host
def test_diverged_runs_end_before_that_step_and_do_not_change_the_others(monkeypatch, read_every, evaluations):
    settings = TOGETHER.model_copy(update={"evaluations_per_epoch": evaluations})
    if read_every:
        as_on_a_device(monkeypatch)
        monkeypatch.setattr(updates, "READ_EVERY", read_every)
    without, diverged = trained(settings), trained(settings, ("loss", None, "gradient"))
    assert diverged[1][0] == without[1][0] and same(diverged[1][1], without[1][1])
    at = 4 if evaluations else 6  # two calls are evaluations
    for n, what in ((0, "loss"), (2, "gradient")):
        (outcome, reason, _, steps, train_last, points), values = diverged[n]
        assert (outcome, steps, train_last, len(points)) == ("diverged", at - 1, {}, evaluations)
        assert reason == f"the {what} of step {at} of 9 is not finite"
        assert all(value.isfinite().all() for value in values.values())


def test_scales_of_losses_follow_those_of_torch(monkeypatch):
    monkeypatch.setattr(updates, "INTERVAL", 3)
    draw = torch.Generator().manual_seed(0)
    found, in_row = torch.full((2,), updates.START), torch.zeros(2)
    scales, growths, seen = found[:, None].clone(), torch.zeros(2, 1, dtype=torch.int32), set()
    for _ in range(60):
        overflowed = torch.rand(2, generator=draw) < 0.3
        found, in_row = next_scales(found, in_row, overflowed)
        for n in range(2):
            torch._amp_update_scale_(scales[n], growths[n], overflowed[n].float(), 2.0, 0.5, 3)
        assert torch.equal(found, scales[:, 0])
        seen |= set(found.tolist())
    assert len(seen) > 4


@pytest.fixture(params=["host", "device"])
def on_both(request, monkeypatch):
    if request.param == "device":
        as_on_a_device(monkeypatch)


@pytest.mark.usefixtures("on_both")
def test_a_step_whose_gradients_overflow_is_skipped_for_this_run_only():
    lines, seen = [Line(), Line(), Line()], []
    (without,) = fit_together([Line()], HALF, (0,), [0.05], [TRAIN])
    forwards = [forward_of(line, bad=n == 1 and "gradient", calls={2}) for n, line in enumerate(lines)]

    def watched(rows):
        seen.append(lines[1].values())
        return forwards[1](rows)

    records = fit_together(lines, HALF, (0, 0, 0), [0.05] * 3, [TRAIN] * 3, forward=[forwards[0], watched, forwards[2]])
    assert [(record.outcome, record.steps) for record in records] == [("ok", 24)] * 3
    assert record_facts(records[0]) == record_facts(records[2]) == record_facts(without)
    assert record_facts(records[1])[5] != record_facts(records[0])[5]
    assert [same(seen[n], seen[n + 1]) for n in range(4)] == [False, True, False, False]


@pytest.mark.usefixtures("on_both")
@pytest.mark.parametrize(("epochs", "reason"), [(2, ""), (3, "the gradient of step 17 of 18 is not finite")])
def test_a_run_whose_gradients_overflow_at_every_scale_diverges(epochs, reason):
    """From 65536 to 1 the scale is halved sixteen times; the seventeenth overflow is no matter of the scale."""
    line = Line()
    before = line.values()
    settings = HALF.model_copy(update={"num_train_epochs": epochs, "load_best_model_at_end": False})
    forward = forward_of(line, bad="gradient", calls=range(100))
    (record,) = fit_together([line], settings, (0,), [0.05], [TRAIN], forward=[forward])
    assert (record.outcome == "diverged", record.reason, record.steps) == (epochs == 3, reason, min(16, 6 * epochs))
    assert same(line.values(), before)


@pytest.mark.usefixtures("on_both")
@pytest.mark.parametrize("skipped", [{1, 2}, {2, 5, 6}])
def test_a_skipped_step_takes_no_learning_rate_of_the_schedule(skipped):
    """The reference is a loop as that of transformers' Trainer: the schedule advances when the optimizer does."""
    line, reference = Line(), Line()
    settings = HALF.model_copy(update={"warmup_steps": 4, "load_best_model_at_end": False, "max_grad_norm": 0.0})
    forward = forward_of(line, bad="gradient", calls=skipped)
    fit_together([line], settings, (0,), [0.05], [TRAIN], forward=[forward])
    groups = reference.groups(settings, 0.05)
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
