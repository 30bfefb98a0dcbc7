"""The best linear probe on frozen features, chosen as ``frostline probe`` chooses it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from frostline.data.examples import Examples
from frostline.frozen.batches import Rows
from frostline.frozen.selection import POOLED, StateSelection
from frostline.statistics.predictions import Labelled
from frostline.training.context import RunContext
from frostline.training.estimators.estimator import Logits, Refitted, require_one_target
from frostline.training.probes.fitting import FittedProbe, Vectors, best_probe, pooled_vectors
from frostline.training.probes.inputs import LAST_LAYERS, pooled_forward_pass
from frostline.training.probes.linear import PENALTIES
from frostline.training.probes.saved import save_probe
from frostline.training.rows import train_rows
from frostline.training.specification import RunSpec


@dataclass(frozen=True)
class RunProbe(Refitted):
    """The probe of a run. Its logits are those whose softmax ``frostline predict`` prints."""

    fitted: FittedProbe
    context: RunContext

    @property
    def parameters(self) -> int:
        probe = self.fitted.probe
        return int(probe.weights.size + probe.bias.size)

    def logits(self, rows: Rows, split: str) -> Logits:
        values = self.fitted.values(vectors_of(self.context, rows, self.fitted.input.layers))
        return np.asarray(self.fitted.probe.inverse_temperature * values, np.float32)

    def save(self, folder: Path, about: Mapping[str, Any]) -> None:
        context, fitted = self.context, self.fitted
        save_probe(folder, fitted.input, fitted.probe, context.pretrained, context.machine, about)


class ProbeEstimator:
    """Fits probes after every layer, and takes the one with the best cross-validated score on training rows."""

    def require_installed(self) -> None: ...

    def require_suitable(self, spec: RunSpec, train: Examples) -> None:
        require_one_target(spec, train)

    def fit(self, spec: RunSpec, context: RunContext) -> RunProbe:
        rows, layers = train_rows(context, spec), context.pretrained.anatomy.count
        problem = context.problem
        train = Labelled(problem.targets[rows], problem.task_type, context.labels, problem.metric)
        return RunProbe(best_probe(vectors_of(context, rows, range(layers + 1)), train, layers), context)

    def restore(self, spec: RunSpec, context: RunContext, learned: Mapping[str, Tensor]) -> RunProbe:
        return self.fit(spec, context)

    def operations(self, spec: RunSpec, context: RunContext, training: float) -> float:
        """An eigendecomposition takes about ten times the cube of its size, and the product of the features before it."""
        anatomy, penalties = context.pretrained.anatomy, len(PENALTIES)
        size, other = sorted((spec.train_size, anatomy.width))
        one = 10.0 * size**3 + 2.0 * size**2 * other + 2.0 * penalties * spec.train_size * anatomy.width
        return (len(POOLED) * (anatomy.count + 1) + LAST_LAYERS**2) * one  # one probe reads the last layers together


def vectors_of(context: RunContext, rows: Rows, layers: Iterable[int]) -> Vectors:
    """The pooled vectors of these rows, from the cache if they are there, else from a forward pass over the rows."""
    states = context.states
    if states is not None and states.selection.pooled:
        return pooled_vectors(states, rows)
    return _computed(context, rows, tuple(layers))


def _computed(context: RunContext, rows: Rows, layers: tuple[int, ...]) -> Vectors:
    """The pooled vectors of these rows after these layers, in memory."""
    pretrained = context.pretrained
    pretrained.restore()
    forward_pass = pooled_forward_pass(pretrained, context.machine, StateSelection((), head=False, pooled=layers))
    batches = forward_pass.batches(context.tokens.lengths, rows)
    found = {layer: torch.zeros(len(context.tokens), len(POOLED), pretrained.anatomy.width) for layer in layers}
    for batch, states in zip(batches, forward_pass.hidden_states(context.tokens, batches), strict=True):
        for layer in layers:
            found[layer][batch.rows] = states[f"pooled-{layer}"].view(len(batch.rows), len(POOLED), -1).float().cpu()
    return lambda layer: found[layer][rows].numpy()
