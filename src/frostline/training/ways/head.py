"""The head of a run that trains its head first: ridge regression on what the head reads of the frozen model.

LP-FT (Kumar et al. 2022, arXiv:2202.10054) fits a linear probe, then tunes everything from there. The probe is that of
:mod:`frostline.training.probes.linear`, so the penalty is chosen by leave-one-out, and class values are scaled to probabilities.
"""

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline import FrostlineError
from frostline.model.anatomy import Anatomy
from frostline.model.terms import HEAD
from frostline.training.experiment import Experiment
from frostline.training.forward import forward_function
from frostline.training.probes.linear import ridge
from frostline.training.rows import train_rows
from frostline.training.specification import RunSpec
from frostline.training.ways.phases import frozen


def last_linear(model: PreTrainedModel, anatomy: Anatomy) -> nn.Linear:
    """The linear module of the head whose outputs are the logits.

    Raises:
        FrostlineError: The head has none.
    """
    outputs = model.config.num_labels
    paths = {name.rpartition(".")[0]: None for name, place in anatomy.places.items() if place == HEAD}
    found = [
        module
        for path in paths
        if isinstance(module := model.get_submodule(path), nn.Linear) and module.out_features == outputs
    ]
    if not found:
        raise FrostlineError(
            f"The head of a {model.config.model_type} has no linear module with {outputs} outputs: choose another way than lp-ft."
        )
    return found[-1]


def fit_head(spec: RunSpec, context: Experiment) -> None:
    """Fit the last linear module of the head on the run's training rows, if the way of the run begins with that.

    The model must have the values that the run starts from. The logits then are those of the fitted probe; a head without a
    bias leaves out the probe's.
    """
    if spec.way.order != "head-first":
        return
    pretrained = context.pretrained
    head, rows = last_linear(pretrained.model, pretrained.anatomy), train_rows(context, spec)
    features = _inputs_of(head, spec, context, rows)
    targets = context.problem.targets[rows]
    outputs = head.out_features
    probe = ridge(features, targets, 0 if outputs == 1 else outputs)  # 0 classes: a number to predict
    weights = probe.inverse_temperature * probe.weights / probe.scale[:, None]  # [D, C]
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(weights.T))
        if head.bias is not None:
            head.bias.copy_(torch.from_numpy(probe.inverse_temperature * probe.bias - probe.mean @ weights))


def _inputs_of(head: nn.Linear, spec: RunSpec, context: Experiment, rows: np.ndarray) -> np.ndarray:
    """What the module reads for each of these rows, ``[n, D]``, in evaluation mode."""
    size = spec.per_device_eval_batch_size
    seen: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Tensor], out: Tensor) -> None:
        read = args[0].detach().float().cpu()
        if read.dim() == 3:  # the head runs for every token, and the model then takes the logits of one
            done = sum(map(len, seen))
            lengths = torch.from_numpy(context.tokens.lengths[rows[done : done + len(read)]])
            at = lengths - 1 if context.head_reads == "last" else torch.zeros_like(lengths)
            read = read[torch.arange(len(read)), at.clamp(max=read.shape[1] - 1)]
        seen.append(read)

    hook = head.register_forward_hook(keep)
    context.pretrained.model.eval()
    try:
        with torch.no_grad(), forward_function(context, [frozen(spec)]) as forward:
            for n in range(0, len(rows), size):
                forward(rows[None, n : n + size])
    finally:
        hook.remove()
    features: np.ndarray = torch.cat(seen).flatten(1).numpy()
    return features
