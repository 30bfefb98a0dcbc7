"""The features of a linear probe: one pooled vector of each example, after one layer or after several layers."""

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

LAST_LAYERS = 4  # one probe reads this many of the last layers together


@dataclass(frozen=True)
class ProbeInput:
    """Which vector of each example a probe reads, after which layers."""

    layers: tuple[int, ...]  # 0: the embeddings
    pooled: str  # one of POOLED: first, mean or last token

    def features(self, states: Callable[[int], Any]) -> Features:
        """The features ``[n, D * layers]``. ``states(layer)`` returns the pooled vectors after a layer, ``[n, 3, D]``."""
        position = POOLED.index(self.pooled)
        return np.concatenate([states(layer)[:, position] for layer in self.layers], 1)


def single_layer_inputs(layers: int) -> list[ProbeInput]:
    """Every pooled vector after every single layer of a model with this number of ``layers``."""
    return [ProbeInput((n,), pooled) for n in range(layers + 1) for pooled in POOLED]


def last_layers_inputs(layers: int, pooled: str) -> list[ProbeInput]:
    """The last layers together, if there are at least two. This probe has the most features and takes longest to fit."""
    last = tuple(range(max(1, layers - LAST_LAYERS + 1), layers + 1))
    return [ProbeInput(last, pooled)] * (len(last) > 1)


def pooled_forward_pass(pretrained: Pretrained, machine: Machine, selection: StateSelection) -> ForwardPass:
    """The forward pass that computes pooled vectors for probes outside of a sweep."""
    model, anatomy = pretrained.model, pretrained.anatomy
    return ForwardPass(model, anatomy, selection, "", packed_pass_is_exact(model, anatomy), machine.autocast)
