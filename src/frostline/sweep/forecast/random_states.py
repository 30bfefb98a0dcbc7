"""Random hidden states for timing."""

import torch
from torch import Tensor

from frostline.frozen.batches import Rows
from frostline.frozen.cache.hidden_states import HiddenStates
from frostline.frozen.selection import StateSelection
from frostline.model.tokens import Tokens


class RandomStates(HiddenStates):
    """Random hidden states of the right shape and scale. They replace hidden states that are not cached yet."""

    seconds = 0.0  # nothing was computed

    def __init__(self, need: StateSelection, tokens: Tokens, width: int) -> None:
        self.selection, self._lengths, self._width = need, tokens.lengths, width
        self._any = torch.zeros(0, width)

    def tokens(self, cut: int, rows: Rows) -> Tensor:
        return self._some(int(self._lengths[rows].sum()))

    def head(self, rows: Rows) -> Tensor:
        return self._some(len(rows))

    def _some(self, count: int) -> Tensor:
        if count > len(self._any):
            self._any = torch.randn(2 * count, self._width, generator=torch.Generator().manual_seed(0))
        return self._any[:count].clone()[None]
