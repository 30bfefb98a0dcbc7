"""Measure time and memory of a training step on the longest examples."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from frostline.frozen.forward_pass import Rows
from frostline.model.device import peak_memory
from frostline.training.experiment import Experiment
from frostline.training.loop import train
from frostline.training.rows import validation_rows
from frostline.training.session import set_mode, training_session
from frostline.training.specification import RunSpec


def profile_step(specs: Sequence[RunSpec], context: Experiment, *, steps: int = 4) -> tuple[float, int]:
    """Train these runs as one stack for a few steps, on their longest examples.

    Returns:
        Seconds of the fastest step, infinite if fewer than two steps completed; and peak memory in bytes.
    """
    first, lengths = specs[0], context.problem.lengths
    context = context.for_run(first)

    def longest(rows: Rows, count: int) -> Rows:  # repeats rows if there are fewer
        return np.resize(rows[np.argsort(-lengths[rows], kind="stable")], count)

    ends: list[float] = []
    scored = validation_rows(context, first)
    with peak_memory(context.machine) as peak, training_session(specs, context) as (learners, forward):
        train(
            forward,
            [replace(one, rows=longest(one.rows, steps * first.batch_size)) for one in learners],
            context.problem,
            longest(scored, min(len(scored), first.per_device_eval_batch_size)),
            # With two evaluations, peak memory includes the copy of the best parameters.
            first.model_copy(update={"num_train_epochs": 1.0, "evaluations_per_epoch": 2}),
            set_mode=lambda training: set_mode(context, first, training=training),
            prefetch=forward.prefetch,
            on_step=lambda step, total: ends.append(context.machine.time()),
        )
    gaps = [after - before for before, after in pairwise(ends)]
    return min(gaps, default=math.inf), peak.bytes  # no gaps if the loss is not finite
