"""Batches of the forward pass over the frozen layers.

The last bits of a result depend on the shapes that a kernel gets. The shapes in which an example is computed therefore
depend on its own length only, never on the other examples of its batch.

- Packed: matrix products see the same number of tokens in every batch. Attention sees examples of one rounded length, or
  a long example by itself (:mod:`frostline.model.packing`).
- Padded, for types that cannot be packed: examples of one rounded length form batches of one shape.

Copies fill up what is left over.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.model.anatomy import Anatomy
from frostline.model.packed_layout import STEP
from frostline.model.tokens import Tokens

TOKENS = {"cpu": 4096, "cuda": 32768, "mps": 8192}  # in one batch, at most
WIDE = 384  # a wider model gets fewer tokens in proportion, so that a batch takes no more memory
# One example per this many tokens of a batch: examples of at most STEP tokens have batches of their own, with TINY.
TINY = 4
GRID = 4  # the padded grid of a batch has at most this many times its tokens

Rows = NDArray[np.int64]  # positions of examples in a table
Lengths = NDArray[np.int64]  # tokens of each example


@dataclass(frozen=True)
class ForwardBatch:
    """Examples that are computed together.

    Attributes:
        rows: Their positions in the table, ``[B]``.
        lengths: Their tokens, ``[B]``.
        padded_lengths: The same, rounded up, ``[B]``.
        capacity: The number of tokens that are computed, if packed; 0 if padded.
        examples: The number of examples that are computed. Packed, copies of one token fill the rows that the head reads;
            padded, copies of an example fill the batch.
    """

    rows: Rows
    lengths: Lengths
    padded_lengths: Lengths
    capacity: int
    examples: int

    def inputs(self, tokens: Tokens) -> dict[str, Tensor]:
        """The model's inputs, with the copies that fill a padded batch."""
        copies = 0 if self.capacity else self.examples - len(self.rows)
        rows = np.concatenate([self.rows, np.repeat(self.rows[:1], copies)])
        batch = tokens.batch(rows, int(self.padded_lengths.max()))
        if copies:
            batch["attention_mask"][-1, -1] = 0  # other kernels would compute a batch without padding
        return batch


def tokens_per_batch(device: torch.device, anatomy: Anatomy) -> int:
    """How many tokens the forward pass computes in one batch."""
    most = TOKENS[device.type]
    return min(most, max(1, most * WIDE // anatomy.width // STEP) * STEP)


def packed_batches(lengths: Lengths, rows: Rows, budget: int, *, positions: int | None) -> list[ForwardBatch]:
    """Packed batches of these rows.

    Args:
        lengths: Tokens of each example of the table.
        rows: The examples to compute.
        budget: Tokens of one batch. A longer example is a batch by itself.
        positions: The longest input that the model takes; None: no limit.
    """
    padded = _rounded(lengths, -(-lengths // STEP) * STEP, positions)
    rows = rows[np.argsort(lengths[rows], kind="stable")]
    tiny = lengths[rows] <= STEP
    found = []
    for some, tokens_per_example in ((rows[~tiny], STEP), (rows[tiny], TINY)):
        for chosen in _filled(lengths, some, budget, budget // tokens_per_example):
            capacity = max(budget, int(padded[chosen[0]]))
            examples = capacity // tokens_per_example
            found.append(ForwardBatch(chosen, lengths[chosen], padded[chosen], capacity, examples))
    return found


def padded_batches(lengths: Lengths, rows: Rows, budget: int, *, positions: int | None) -> list[ForwardBatch]:
    """Padded batches of these rows; the arguments are those of :func:`packed_batches`."""
    padded = _rounded(lengths, (lengths // STEP + 1) * STEP, positions)
    rows = rows[np.argsort(lengths[rows], kind="stable")]
    found = []
    for length in np.unique(padded[rows]):
        of_length, size = rows[padded[rows] == length], max(1, budget // int(length))
        examples = size + (length == positions)  # no example that long has padding, so a copy must
        for some in np.split(of_length, range(size, len(of_length), size)):
            found.append(ForwardBatch(some, lengths[some], padded[some], 0, examples))
    return found


def _rounded(lengths: Lengths, rounded: Lengths, positions: int | None) -> Lengths:
    """``rounded``, but no more than the model's ``positions``."""
    return np.maximum(np.minimum(rounded, positions), lengths) if positions else rounded


def _filled(lengths: Lengths, rows: Rows, budget: int, most: int) -> Iterator[Rows]:
    """Groups of at most ``most`` examples and ``budget`` tokens; an example with more tokens is a group by itself.

    Each group takes the longest example that is left, then repeatedly the longest that still fits. Its padded grid, of which
    little is computed, stays below ``GRID`` times the budget.
    """
    waiting: dict[int, list[int]] = {}
    for row in rows.tolist():
        waiting.setdefault(int(lengths[row]), []).append(row)
    while waiting:
        longest = max(waiting)
        chosen: list[int] = []
        tokens_left, examples = max(budget, longest), max(1, min(most, GRID * budget // longest))
        for length in sorted(waiting, reverse=True):
            count = min(tokens_left // length, examples - len(chosen), len(waiting[length]))
            if not count:
                continue
            chosen += waiting[length][-count:]
            del waiting[length][-count:]
            tokens_left -= count * length
            if not waiting[length]:
                del waiting[length]
        yield np.array(chosen)
