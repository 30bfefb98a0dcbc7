"""The features of a linear probe: one vector of each text or word, after one layer or after several layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from frostline.frozen.exactness import packed_pass_is_exact
from frostline.frozen.forward_pass import POOLED, ForwardPass, StateSelection
from frostline.model.device import Machine
from frostline.model.pretrained import Pretrained
from frostline.training.probes.linear import Features

LAST_LAYERS = 4  # one probe reads this many of the last layers together
WORD = "word"  # the vector of a word: its first token


@dataclass(frozen=True)
class ProbeInput:
    """Which vector of each text or word a probe reads, after which layers."""

    layers: tuple[int, ...]  # 0: the embeddings
    vector: str  # of a text one of POOLED: first, mean or last token; of a word WORD

    def features(self, states: Callable[[int], Any]) -> Features:
        """The features ``[U, D * layers]``. ``states(layer)`` returns the vectors after a layer, ``[U, P, D]``."""
        position = 0 if self.vector == WORD else POOLED.index(self.vector)
        return np.concatenate([states(layer)[:, position] for layer in self.layers], 1)


def single_layer_inputs(layers: int, *, of_words: bool) -> list[ProbeInput]:
    """Every vector after every single layer of a model with this number of ``layers``."""
    return [ProbeInput((n,), vector) for n in range(layers + 1) for vector in ((WORD,) if of_words else POOLED)]


def last_layers_inputs(layers: int, vector: str) -> list[ProbeInput]:
    """The last layers together, if there are at least two. This probe has the most features and takes longest to fit."""
    last = tuple(range(max(1, layers - LAST_LAYERS + 1), layers + 1))
    return [ProbeInput(last, vector)] * (len(last) > 1)


def features_after(layers: Sequence[int], *, of_words: bool) -> StateSelection:
    """The hidden states that probes read after these layers: pooled vectors of texts, or all tokens of sentences."""
    return StateSelection(tuple(layers) if of_words else (), head=False, pooled=() if of_words else tuple(layers))


def has_features(selection: StateSelection, layers: int, *, of_words: bool) -> bool:
    """Whether these hidden states are enough for probes after each of a model's ``layers`` and after the embeddings."""
    return set(range(layers + 1)) <= set(selection.cuts if of_words else selection.pooled)


def probe_forward_pass(pretrained: Pretrained, machine: Machine, selection: StateSelection) -> ForwardPass:
    """The forward pass that computes vectors for probes outside of a sweep."""
    model, anatomy = pretrained.model, pretrained.anatomy
    return ForwardPass(model, anatomy, selection, "", packed_pass_is_exact(model, anatomy), machine.autocast)
