"""Forecast memory: of oneDNN's kernels, and of the batch with the most tokens."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from frostline.frozen.forward_pass import StateSelection
from frostline.model.device import Machine
from frostline.sweep.forecast import timer as timer_module
from frostline.sweep.forecast.timer import Timer
from frostline.sweep.work.workload import KEPT_KERNELS, KERNEL_BYTES, KERNELS, Workload, kernel_bytes
from frostline.training.forward import training_batches
from frostline.training.train import training_session
from training.runs import context_of, spec_of


def test_kernels_are_counted_for_bfloat16_on_a_cpu_up_to_those_that_are_kept() -> None:
    bf16 = Machine(torch.device("cpu"), "bfloat16")
    assert kernel_bytes(bf16, 3) == 3 * KERNELS * KERNEL_BYTES
    assert kernel_bytes(bf16, 10_000) == KEPT_KERNELS * KERNEL_BYTES
    assert kernel_bytes(replace(bf16, precision="float32"), 3) == 0
    assert kernel_bytes(replace(bf16, device=torch.device("cuda")), 3) == 0


@pytest.mark.parametrize("packed", [True, False])
def test_the_heaviest_batch_is_one_that_a_run_trains_on(packed: bool, tiny_bert: Path) -> None:
    context = context_of(tiny_bert).with_worker(packed=packed)
    workload = Workload(context, StateSelection((), head=False))
    runs = [spec_of("w", seed=seed, num_train_epochs=2.0) for seed in (0, 1, 2)]
    lengths = context.tokens.lengths
    drawn = [batch for run in runs for batch in training_batches(context, run)]
    sizes = [int(lengths[batch].sum() if packed else len(batch) * lengths[batch].max()) for batch in drawn]
    (case,) = workload.timing_cases(runs)
    assert context.computed_tokens(lengths[case.heaviest]) == max(sizes)
    assert max(workload.run_work(run).longest for run in runs) == max(sizes)
    assert frozenset().union(*map(workload.batch_sizes, runs)) == set(sizes)


def test_batches_are_those_that_a_run_draws(tiny_bert: Path) -> None:
    context, spec = context_of(tiny_bert), spec_of("w", num_train_epochs=2.0)
    with training_session([spec], context) as ([learner], _):
        rows, order = learner.rows, learner.order
        drawn = [rows[torch.randperm(len(rows), generator=order).numpy()] for _ in range(2)]
    size = spec.per_device_train_batch_size
    expected = [epoch[n : n + size] for epoch in drawn for n in range(0, len(epoch), size)]
    for batch, other in zip(training_batches(context, spec), expected, strict=True):
        np.testing.assert_array_equal(batch, other)


def test_the_memory_of_a_step_is_that_of_the_heaviest_batch(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in use beside the trained values is divided by the tokens of this batch."""
    context, spec = context_of(tiny_bert), spec_of("w")
    workload = Workload(context, StateSelection((), head=False))
    (case,) = workload.timing_cases([spec])
    computed: list[np.ndarray] = []
    real = timer_module.backward
    monkeypatch.setattr(timer_module, "backward", lambda f, rows, *more: (computed.append(rows), real(f, rows, *more)))
    timer = Timer(context, 1e9, idle=0)
    monkeypatch.setattr(Timer, "_held", lambda *_: 0)
    each = timer._step_bytes(case, [spec])
    np.testing.assert_array_equal(computed[0], [case.heaviest])
    total = each * context.computed_tokens(context.tokens.lengths[case.heaviest])
    assert total > sum(p.numel() * p.element_size() for p in context.pretrained.model.parameters())
