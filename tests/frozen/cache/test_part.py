"""The parts of cached hidden states."""

import numpy as np
import torch

from frostline.frozen.forward_pass import StateSelection
from frostline.frozen.readers import Part
from frozen.cached import Cache
from frozen.random_tokens import ragged_tokens


def test_a_part_reads_what_its_states_hold(cache: Cache) -> None:
    tokens, rows = ragged_tokens(9), np.array([3, 8, 0])
    states = cache.load(tokens, range(9), StateSelection((1, 2), head=True))
    parts = [Part.tokens(states, 2, tokens.lengths), Part.head(states, tokens.lengths)]
    assert [part.name for part in parts] == ["tokens-2", "head"]
    expected = (states.tokens(2, rows), states.head(rows))
    for part, vectors in zip(parts, expected, strict=True):
        assert torch.equal(part.read(rows), vectors) and part.counts[rows].sum() == vectors.shape[1]
