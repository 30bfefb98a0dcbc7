"""Read the cached hidden states of a batch."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.frozen.batches import Rows
from frostline.frozen.cache.shard import Shard
from frostline.frozen.selection import POOLED, StateSelection
from frostline.model.tokens import flat_positions


class HiddenStates:
    """Cached hidden states of some rows of a token table. A row is a position in that table.

    A file is mapped into memory when it is first read.

    Attributes:
        selection: Which hidden states can be read.
        rows: The rows whose hidden states can be read.
        seconds: Seconds of the forward pass over these rows, also if an earlier process ran it.
    """

    def __init__(self, selection: StateSelection, shards: Sequence[Shard], keys: NDArray[np.void], rows: Rows) -> None:
        self.selection, self.rows, self._shards = selection, rows, shards
        self._group: int | None = None  # the cut of the runs that read now
        found: dict[bytes, tuple[int, int]] = {}
        for number, shard in enumerate(shards):
            found.update((key.tobytes(), (number, row)) for row, key in enumerate(shard.keys))
        self._shard, self._row = np.full((2, len(keys)), -1, np.int64)  # of each row of the table
        for row in rows.tolist():
            self._shard[row], self._row[row] = found[keys[row].tobytes()]
        used = [len(np.unique(self._row[rows][self._shard[rows] == n])) for n in range(len(shards))]
        self.seconds = sum(s.seconds * n / len(s.keys) for s, n in zip(shards, used, strict=True))

    def has(self, rows: Rows) -> bool:
        """Whether the hidden states of these rows can be read."""
        return bool((self._shard[rows] >= 0).all())

    @property
    def open_files(self) -> set[str]:
        """The names of the arrays whose files are mapped."""
        return {name for shard in self._shards for name in shard.open_files}

    def begin_group(self, cut: int | None) -> None:
        """Runs from this cut follow: close the files that runs from another cut have opened."""
        if cut != self._group:
            for shard in self._shards:
                shard.close()
        self._group = cut

    def tokens(self, cut: int, rows: Rows) -> Tensor:
        """Hidden states of all tokens of these rows after ``cut`` layers, ``[1, T, D]``, in the order of the rows."""
        parts, order = [], []
        for number, inside, positions in self._by_shard(rows):
            shard = self._shards[number]
            flat = flat_positions(shard.offsets, inside)
            parts.append(shard.array(f"tokens-{cut}").index_select(0, torch.from_numpy(flat)))
            order.append((positions, np.diff(shard.offsets)[inside]))
        if len(parts) == 1:
            return parts[0][None]
        return _in_order(parts, order)[None]

    def head(self, rows: Rows) -> Tensor:
        """Hidden states of the head's tokens after the last layer, ``[1, B, D]``."""
        return self._vectors("head", rows)[None]

    def pooled(self, layer: int, rows: Rows) -> Tensor:
        """Pooled vectors after ``layer`` layers, ``[B, 3, D]``, in the order of ``POOLED``."""
        return self._vectors(f"pooled-{layer}", rows).view(len(rows), len(POOLED), -1)

    def _vectors(self, name: str, rows: Rows) -> Tensor:
        parts, order = [], []
        for number, inside, positions in self._by_shard(rows):
            parts.append(self._shards[number].array(name).index_select(0, torch.from_numpy(inside)))
            order.append((positions, np.ones_like(positions)))
        return parts[0] if len(parts) == 1 else _in_order(parts, order)

    def _by_shard(self, rows: Rows) -> Iterator[tuple[int, Rows, Rows]]:
        """For each shard that holds some of these rows: its number, the rows inside it, and their positions in the batch."""
        shards = self._shard[rows]
        assert (shards >= 0).all(), "hidden states of these rows were not loaded"
        for number in np.unique(shards):
            positions = np.flatnonzero(shards == number)
            yield int(number), self._row[rows[positions]], positions


def _in_order(parts: list[Tensor], order: list[tuple[Rows, Rows]]) -> Tensor:
    """The vectors from several shards, in the order of the batch.

    Args:
        parts: The vectors from each shard.
        order: For each shard, the positions of its rows in the batch, and how many vectors each row has.
    """
    positions = np.concatenate([position for position, _ in order])
    lengths = np.concatenate([length for _, length in order])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return torch.cat(parts).index_select(0, torch.from_numpy(flat_positions(offsets, np.argsort(positions))))
