"""Batches of the forward pass over the frozen layers.

The last bits of a kernel's result depend on the shapes of its inputs. To get bitwise identical hidden states in every
batch, an example is computed in shapes that depend on its own length only, never on the other examples of its batch.

- Packed batches: every matrix product has the same number of tokens. Attention gets examples of the same rounded length, or
  one long example alone (:mod:`frostline.model.packing`).
- Padded batches, for model types that cannot be packed: all examples of a batch have the same rounded length.

Copies fill the remaining positions of a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.model.anatomy import Anatomy
from frostline.model.memory import memory_limit
from frostline.model.packed_layout import LENGTH_MULTIPLE
from frostline.model.tokens import Tokens

TOKENS = {"cpu": 4096, "cuda": 32768, "mps": 8192}  # in one batch, at most
MEMORY = 16 << 30  # bytes; a CUDA GPU with n times as many free computes n times as many tokens
MOST_TIMES = 4
WIDE = 384  # for wider models, the number of tokens shrinks in proportion, so that a batch needs no more memory
# A packed batch has a capacity of one example per LENGTH_MULTIPLE tokens. Examples of at most LENGTH_MULTIPLE tokens have
# separate batches, with a capacity of one example per TINY tokens.
TINY = 4
GRID = 4  # the padded grid of a packed batch has at most this many times the tokens of the batch

Rows = NDArray[np.int64]  # positions of examples in a table
Lengths = NDArray[np.int64]  # tokens of each example


@dataclass(frozen=True)
class ForwardBatch:
    """A batch of examples.

    Attributes:
        rows: Their positions in the table, ``[B]``.
        lengths: Their tokens, ``[B]``.
        padded_lengths: Their rounded lengths, ``[B]``.
        capacity: The number of computed tokens of a packed batch; 0 for a padded batch.
        examples: The number of computed examples, with copies. In a packed batch, copies of one token fill the rows that
            the head reads. In a padded batch, copies of one example fill the batch.
    """

    rows: Rows
    lengths: Lengths
    padded_lengths: Lengths
    capacity: int
    examples: int

    def inputs(self, tokens: Tokens) -> dict[str, Tensor]:
        """The model's inputs, including the copies that fill a padded batch."""
        copies = 0 if self.capacity else self.examples - len(self.rows)
        rows = np.concatenate([self.rows, np.repeat(self.rows[:1], copies)])
        batch = tokens.batch(rows, int(self.padded_lengths.max()))
        if copies:
            batch["attention_mask"][-1, -1] = 0  # without any padding, torch would choose other kernels
        return batch


def tokens_per_batch(device: torch.device, anatomy: Anatomy) -> int:
    """How many tokens the forward pass computes in one batch."""
    most = TOKENS[device.type]
    if device.type == "cuda":
        most *= _times_as_many(device)
    return min(most, max(1, most * WIDE // anatomy.width // LENGTH_MULTIPLE) * LENGTH_MULTIPLE)


@cache
def _times_as_many(device: torch.device) -> int:
    """How many times as many tokens a CUDA GPU computes in one batch, by its free memory when this is first asked."""
    return min(MOST_TIMES, max(1, memory_limit(device) // MEMORY))


def packed_batches(lengths: Lengths, rows: Rows, budget: int, *, positions: int | None) -> list[ForwardBatch]:
    """Packed batches of these rows.

    Args:
        lengths: Tokens of each example of the table.
        rows: The examples to compute.
        budget: Tokens of one batch. An example with more tokens gets a batch of its own.
        positions: The most tokens per example that the model accepts; None: no limit.
    """
    padded = _rounded(lengths, -(-lengths // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, positions)
    rows = rows[np.argsort(lengths[rows], kind="stable")]
    tiny = lengths[rows] <= LENGTH_MULTIPLE
    found = []
    for some, tokens_per_example in ((rows[~tiny], LENGTH_MULTIPLE), (rows[tiny], TINY)):
        for chosen in _filled(lengths, some, budget, budget // tokens_per_example):
            capacity = max(budget, int(padded[chosen[0]]))
            examples = capacity // tokens_per_example
            found.append(ForwardBatch(chosen, lengths[chosen], padded[chosen], capacity, examples))
    return found


def padded_batches(lengths: Lengths, rows: Rows, budget: int, *, positions: int | None) -> list[ForwardBatch]:
    """Padded batches of these rows, with the arguments of :func:`packed_batches`."""
    padded = _rounded(lengths, (lengths // LENGTH_MULTIPLE + 1) * LENGTH_MULTIPLE, positions)
    rows = rows[np.argsort(lengths[rows], kind="stable")]
    found = []
    for length in np.unique(padded[rows]):
        of_length, size = rows[padded[rows] == length], max(1, budget // int(length))
        examples = size + (length == positions)  # an example of that length has no padding, so a copy must have some
        for some in np.split(of_length, range(size, len(of_length), size)):
            found.append(ForwardBatch(some, lengths[some], padded[some], 0, examples))
    return found


def _rounded(lengths: Lengths, rounded: Lengths, positions: int | None) -> Lengths:
    """``rounded``, limited to the model's ``positions``."""
    return np.maximum(np.minimum(rounded, positions), lengths) if positions else rounded


def _filled(lengths: Lengths, rows: Rows, budget: int, most: int) -> Iterator[Rows]:
    """Groups of at most ``most`` examples and ``budget`` tokens. An example with more tokens is a group of its own.

    Each group takes the longest remaining example, then repeatedly the longest example that still fits. The padded grid of a
    group, which is mostly not computed, stays below ``GRID`` times the budget.
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
