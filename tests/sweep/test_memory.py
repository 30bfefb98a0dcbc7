"""Forecast memory: of oneDNN's kernels, and of the batch with the most tokens."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from frostline.frozen.forward_pass import StateSelection
from frostline.model.device import Machine
from frostline.sweep.execution import forecast as forecast_module
from frostline.sweep.execution.forecast import Timer
from frostline.sweep.operations import KEPT_KERNELS, KERNEL_BYTES, KERNELS, CostModel, kernel_bytes
from frostline.training.forward import training_batches
from frostline.training.train import training_session
from training.runs import context_of, spec_of


def test_kernels_are_counted_for_bfloat16_on_a_cpu_up_to_those_that_are_kept() -> None:
    bf16 = Machine(torch.device("cpu"), "bfloat16")
    assert kernel_bytes(bf16, 3) == 3 * KERNELS * KERNEL_BYTES
    assert kernel_bytes(bf16, 10_000) == KEPT_KERNELS * KERNEL_BYTES
    assert kernel_bytes(replace(bf16, precision="float32"), 3) == 0
    assert kernel_bytes(replace(bf16, device=torch.device("cuda")), 3) == 0


def test_batches_are_those_that_a_run_draws(tiny_bert: Path) -> None:
    context, spec = context_of(tiny_bert), spec_of("w", num_train_epochs=2.0)
    with training_session([spec], context) as ([learner], _):
        rows, order = learner.rows, learner.order
        drawn = [rows[torch.randperm(len(rows), generator=order).numpy()] for _ in range(2)]
    size = spec.per_device_train_batch_size
    expected = [epoch[n : n + size] for epoch in drawn for n in range(0, len(epoch), size)]
    for batch, other in zip(training_batches(context, spec), expected, strict=True):
        np.testing.assert_array_equal(batch, other)


@pytest.mark.parametrize("packed", [True, False])
def test_the_memory_of_a_step_is_that_of_the_heaviest_batch(
    packed: bool, tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in use beside the trained values is divided by the tokens of the heaviest batch that a run trains on."""
    context = context_of(tiny_bert).with_worker(packed=packed)
    costs = CostModel(context, StateSelection((), head=False))
    runs = [spec_of("w", seed=seed, num_train_epochs=2.0) for seed in (0, 1, 2)]
    sizes = {costs.computed_tokens(batch) for run in runs for batch in training_batches(context, run)}
    assert max(costs.batches(run).longest for run in runs) == max(sizes)
    assert frozenset().union(*map(costs.batch_sizes, runs)) == sizes
    computed: list[np.ndarray] = []
    real = forecast_module.backward
    monkeypatch.setattr(
        forecast_module, "backward", lambda f, rows, *more: (computed.append(rows), real(f, rows, *more))
    )
    monkeypatch.setattr(Timer, "_held", lambda *_: 0)
    each = Timer(costs, 1e9, idle=0)._step_bytes(runs[0], runs[:1], runs)
    assert costs.computed_tokens(computed[0][0]) == max(sizes)
    assert each * max(sizes) > sum(p.numel() * p.element_size() for p in context.pretrained.model.parameters())
