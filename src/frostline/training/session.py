"""Prepare the model for training runs: trained parameters, training and evaluation mode, and the forward function."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from frostline.frozen.forward_pass import Rows
from frostline.model.anatomy import set_train_mode
from frostline.model.stacking import stacked
from frostline.training.experiment import Experiment
from frostline.training.forward import ForwardFunction, forward_function
from frostline.training.learner import Learner
from frostline.training.optimizer import optimizer_groups
from frostline.training.problem import Forward
from frostline.training.rows import order_generator, train_rows
from frostline.training.seeds import generator_seed
from frostline.training.specification import RunSpec
from frostline.training.ways.head import fit_head
from frostline.training.ways.start import reinitialized, start_of


@contextmanager
def training_session(
    specs: Sequence[RunSpec],
    context: Experiment,
    *,
    batched: bool | None = None,
    earlier: Mapping[str, Tensor] = MappingProxyType({}),
) -> Iterator[tuple[list[Learner], ForwardFunction]]:
    """Prepare the model for training these runs as one stack. It begins and ends in evaluation mode.

    Args:
        specs: The runs.
        context: Model and data.
        batched: See :func:`frostline.training.run.run_stacked`.
        earlier: The parameters that an earlier phase of a single run has trained, by name.

    Yields:
        The runs as learners, and the function from rows to logits.
    """
    context = context.for_run(specs[0])
    pretrained = context.pretrained
    names = specs[0].to_train.parameters(pretrained.anatomy)

    def start(number: int) -> Mapping[str, nn.Parameter]:
        return start_values(specs[number], context, earlier)

    batched = context.machine.device.type != "cpu" if batched is None else batched
    with (
        nullcontext([start(0)])
        if len(specs) == 1
        else stacked(pretrained.model, names, len(specs), start, batched=batched) as own,
        forward_function(context, specs) as forward,
    ):
        pretrained.model.eval()
        try:
            yield [_learner(spec, parameters, context) for spec, parameters in zip(specs, own, strict=True)], forward
        finally:
            pretrained.model.eval()


def start_values(
    spec: RunSpec, context: Experiment, earlier: Mapping[str, Tensor] = MappingProxyType({})
) -> dict[str, nn.Parameter]:
    """Set the model to the values that a run starts from. Returns the parameters that it changes, by name.

    ``earlier`` are the parameters that an earlier phase of the run has trained.
    """
    pretrained = context.pretrained
    names, new = spec.to_train.parameters(pretrained.anatomy), reinitialized(spec, pretrained.anatomy)
    parameters = pretrained.start_run(names, generator_seed(spec.seed, "head"), new)
    if not earlier:
        fit_head(spec, context)
    with torch.no_grad():
        for name, value in earlier.items():
            parameters[name].copy_(value)
    return parameters


def _learner(spec: RunSpec, parameters: Mapping[str, Tensor], context: Experiment) -> Learner:
    """A run in the training loop. ``parameters`` are those of the model that it changes."""
    pretrained = context.pretrained
    start = start_of(spec, pretrained, parameters)
    return Learner(
        start.trained,
        optimizer_groups(spec, pretrained.anatomy, start.trained),
        train_rows(context, spec),
        order_generator(spec),
        in_model=parameters,
        restraints=start.restraints,
    )


def set_mode(context: Experiment, spec: RunSpec, *, training: bool) -> None:
    """Set the model of a run, with the head of the run, to training mode or to evaluation mode."""
    pretrained = context.for_run(spec).pretrained
    model = pretrained.model
    if not training:
        model.eval()
    elif spec.frozen_dropout:
        model.train()
    else:
        set_train_mode(model, pretrained.anatomy, spec.to_train.parameters(pretrained.anatomy))


def score_rows(forward: Forward, context: Experiment, rows: Rows, specs: Sequence[RunSpec]) -> NDArray[np.float32]:
    """Logits of the same rows ``[n]`` by each of the K runs, ``[K, n, C]``."""
    rows = np.stack([rows] * len(specs))
    return context.problem.logits(forward, rows, specs[0].per_device_eval_batch_size)
