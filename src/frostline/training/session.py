"""Prepare the model for training runs: trained parameters, training and evaluation mode, and the forward function."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
from numpy.typing import NDArray
from torch import nn

from frostline.frozen.batches import Rows
from frostline.model.modes import set_train_mode
from frostline.model.stacking import stacked
from frostline.training.context import RunContext
from frostline.training.forward import forward_function
from frostline.training.learner import Learner
from frostline.training.optimizer import optimizer_groups
from frostline.training.problem import Forward
from frostline.training.rows import order_generator, train_rows
from frostline.training.seeds import generator_seed
from frostline.training.specification import RunSpec


@contextmanager
def training_session(
    specs: Sequence[RunSpec], context: RunContext, *, batched: bool | None = None
) -> Iterator[tuple[list[Learner], Forward]]:
    """Prepare the model for training these runs as one stack.

    ``batched``: see :func:`frostline.training.run.run_stacked`.

    Yields:
        The runs as learners, and the function from rows to logits.
    """
    pretrained = context.pretrained
    names = specs[0].to_train.parameters(pretrained.anatomy)

    def start(number: int) -> Mapping[str, nn.Parameter]:
        return pretrained.start_run(names, generator_seed(specs[number].seed, "head"))

    batched = context.machine.device.type != "cpu" if batched is None else batched
    with (
        nullcontext([start(0)])
        if len(specs) == 1
        else stacked(pretrained.model, names, len(specs), start, batched=batched) as own,
        forward_function(context, specs) as forward,
    ):
        learners = [
            Learner(
                parameters,
                optimizer_groups(spec, pretrained.anatomy, parameters),
                train_rows(context, spec),
                order_generator(spec),
            )
            for spec, parameters in zip(specs, own, strict=True)
        ]
        yield learners, forward


def set_mode(context: RunContext, spec: RunSpec, names: frozenset[str], *, training: bool) -> None:
    """Set the model to evaluation mode, or to training mode for training the parameters ``names``."""
    model = context.pretrained.model
    if not training:
        model.eval()
    elif spec.frozen_dropout:
        model.train()
    else:
        set_train_mode(model, context.pretrained.anatomy, names)


def score_rows(forward: Forward, context: RunContext, rows: Rows, specs: Sequence[RunSpec]) -> NDArray[np.float32]:
    """Logits of the same rows ``[n]`` by each of the K runs, ``[K, n, C]``."""
    rows = np.stack([rows] * len(specs))
    return context.problem.logits(forward, rows, specs[0].per_device_eval_batch_size)
