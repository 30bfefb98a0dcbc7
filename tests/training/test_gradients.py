"""The gradients of a divided batch equal those of the whole batch within rounding."""

import numpy as np
import pytest
import torch

from frostline.data.kinds import REGRESSION
from frostline.training.run import StepPlan
from frostline.training.settings import TrainingSettings
from frostline.training.updates import backward
from training.lines import TRAIN, Line, fit, problem_of, record_facts
from training.runs import spec_of, stack_gap

WEIGHTS = {"weighted": torch.tensor([0.3, 2.0]), "one class counts": torch.tensor([0.0, 2.0])}
MIXED = np.stack([TRAIN[:10], TRAIN[7:17]])


def gradients(problem_kind, micro_batch, *, rows=MIXED, scales=None):
    lines = [Line(0), Line(1)]
    if problem_kind == "regression":
        problem = problem_of(lines[0].x[:, 0].double().numpy(), task_type=REGRESSION, metric="pearson")
    else:
        problem = problem_of(lines[0].targets, weights=WEIGHTS.get(problem_kind))
    logits, losses = backward(
        lambda rows: torch.stack([line.forward(own) for line, own in zip(lines, rows, strict=True)]),
        rows,
        problem,
        micro_batch=micro_batch,
        scales=scales,
    )
    return logits, losses, [p.grad for line in lines for p in line.parameters.values()]


@pytest.mark.parametrize("kind", ["plain", "weighted", "regression"])
@pytest.mark.parametrize("micro_batch", [1, 4, 5, 9])
def test_a_divided_batch_has_the_gradients_of_the_whole_batch(kind, micro_batch):
    """Also if the last part is smaller, and if class weights give the parts unequal weights."""
    (logits, losses, whole), (parts, sums, divided) = gradients(kind, None), gradients(kind, micro_batch)
    torch.testing.assert_close(parts, logits)
    torch.testing.assert_close(sums, losses)
    for one, other in zip(divided, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_losses_are_scaled_for_each_run_also_in_parts_without_weight():
    """In the last rows, the first part of run 0 and the second one of run 1 only have examples without weight."""
    without, counts = (TRAIN[Line(0).targets[TRAIN] == label][:4] for label in (0, 1))
    uneven, scales = np.stack([np.append(without, counts), np.append(counts, without)]), torch.tensor([4.0, 0.5])
    for kind, rows in (("plain", MIXED), ("one class counts", uneven)):
        _, losses, plain = gradients(kind, None, rows=rows)
        for micro_batch in (None, 4):
            _, scaled_losses, scaled = gradients(kind, micro_batch, rows=rows, scales=scales)
            torch.testing.assert_close(losses, scaled_losses)
            for n, (one, other) in enumerate(zip(plain, scaled, strict=True)):
                torch.testing.assert_close(other, one * scales[n // 2])


def test_accumulation_trains_like_one_larger_batch():
    larger = TrainingSettings(num_train_epochs=2, per_device_train_batch_size=12, warmup_steps=0)
    divided = larger.model_copy(update={"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3})
    assert StepPlan.of(larger, 24) == StepPlan.of(divided, 24)
    lines, records = (Line(), Line()), []
    for line, settings in zip(lines, (larger, divided), strict=True):
        records.append(record_facts(fit(line, settings)))
    assert [len(call) for call in lines[1].calls[:6]] == [4] * 6
    assert records[0][:4] == records[1][:4]
    for name, value in lines[0].values().items():
        torch.testing.assert_close(lines[1].values()[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("batched", [False, True])
def test_stacked_runs_with_accumulation_equal_runs_one_by_one(even, batched):
    divided = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    specs = [spec_of(seed=seed, **divided) for seed in (0, 1)]
    assert stack_gap(specs, even, batched=batched) < 1e-4
