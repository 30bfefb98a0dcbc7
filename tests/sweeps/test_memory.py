"""Forecast memory: of oneDNN's kernels, and of the batch with the most tokens."""

from pathlib import Path

import numpy as np
import torch

from frostline.training.forward import training_batches
from frostline.training.train import training_session
from training.runs import context_of, spec_of


def test_batches_are_those_that_a_run_draws(tiny_bert: Path) -> None:
    experiment, spec = context_of(tiny_bert), spec_of(2, num_train_epochs=2.0)
    with training_session([spec], experiment) as ([learner], _):
        rows, order = learner.rows, learner.order
        drawn = [rows[torch.randperm(len(rows), generator=order).numpy()] for _ in range(2)]
    size = spec.per_device_train_batch_size
    expected = [epoch[n : n + size] for epoch in drawn for n in range(0, len(epoch), size)]
    for batch, other in zip(training_batches(experiment, spec), expected, strict=True):
        np.testing.assert_array_equal(batch, other)
