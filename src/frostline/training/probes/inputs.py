"""What a linear probe reads: one vector of each example, after one layer or after several side by side."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from frostline.frozen.check.packed_pass import packed_pass_is_exact
from frostline.frozen.forward_pass import ForwardPass
from frostline.frozen.selection import POOLED, StateSelection
from frostline.model.device import Machine
from frostline.model.pretrained import Pretrained
from frostline.training.probes.linear import Features

LAST_LAYERS = 4  # how many of the last layers are also read together


@dataclass(frozen=True)
class ProbeInput:
    """One vector of each example, after each of some layers."""

    layers: tuple[int, ...]  # 0: the embeddings
    pooled: str  # one of POOLED: first, mean or last token

    def features(self, states: Callable[[int], Any]) -> Features:
        """``[n, D * layers]`` from ``states(layer)``, which gives ``[n, 3, D]``."""
        which = POOLED.index(self.pooled)
        return np.concatenate([states(layer)[:, which] for layer in self.layers], 1)


def single_layer_inputs(layers: int) -> list[ProbeInput]:
    """Every vector after every single layer, in a model of so many ``layers``."""
    return [ProbeInput((n,), pooled) for n in range(layers + 1) for pooled in POOLED]


def last_layers_inputs(layers: int, pooled: str) -> list[ProbeInput]:
    """The last layers side by side, if there are two. These are many features, so their probe takes longest to fit."""
    last = tuple(range(max(1, layers - LAST_LAYERS + 1), layers + 1))
    return [ProbeInput(last, pooled)] * (len(last) > 1)


def vectors_pass(pretrained: Pretrained, machine: Machine, selection: StateSelection) -> ForwardPass:
    """The forward pass that computes the vectors which probes read, where no sweep has cached them."""
    model, anatomy = pretrained.model, pretrained.anatomy
    return ForwardPass(model, anatomy, selection, "", packed_pass_is_exact(model, anatomy), machine.autocast)
