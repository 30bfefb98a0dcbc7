"""Token tables of random examples."""

from collections.abc import Sequence

import numpy as np

from frostline.model.tokens import Tokens
from small_models import FIRST_WORD


def random_tokens(lengths: Sequence[int], *, seed: int = 0) -> Tokens:
    """Random examples of these lengths."""
    ids = np.random.default_rng(seed).integers(FIRST_WORD, 300, sum(lengths)).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Tokens({"input_ids": ids}, offsets, {"input_ids": 0}, np.zeros(len(lengths), np.int32))


def ragged_tokens(count: int = 40, *, seed: int = 0, longest: int = 40) -> Tokens:
    """Random examples of 2 to ``longest`` tokens."""
    return random_tokens(np.random.default_rng(seed).integers(2, longest + 1, count).tolist(), seed=seed)
