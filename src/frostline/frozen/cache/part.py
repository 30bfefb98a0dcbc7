"""The cached hidden states of one kind, which a run reads batch by batch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline.frozen.batches import Rows
from frostline.frozen.cache.hidden_states import HiddenStates


@dataclass(frozen=True)
class Part:
    """The cached hidden states of one kind, for example those of all tokens after two layers.

    Attributes:
        name: The kind. No other part of the same hidden states has this name.
        states: Where they are cached.
        read: The vectors ``[1, N, ...]`` of some rows on the host, in the order of the rows.
        counts: How many vectors each row of the token table has.
    """

    name: str
    states: HiddenStates
    read: Callable[[Rows], Tensor]
    counts: NDArray[np.int64]

    @classmethod
    def tokens(cls, states: HiddenStates, cut: int, lengths: NDArray[np.int64]) -> Self:
        """``[1, T, D]``, of all tokens after ``cut`` layers. ``lengths`` are the tokens of each row of the table."""
        return cls(f"tokens-{cut}", states, partial(states.tokens, cut), lengths)

    @classmethod
    def head(cls, states: HiddenStates, lengths: NDArray[np.int64]) -> Self:
        """``[1, B, D]``, of the token that the head reads."""
        return cls("head", states, states.head, np.ones_like(lengths))
