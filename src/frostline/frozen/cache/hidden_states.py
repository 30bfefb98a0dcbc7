"""Read the cached hidden states of a batch.

One shard of cached hidden states, and whether its files are intact.

Compute the hidden states of some examples and write them as one shard.
"""

import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.data.files import checksum, file_checksum, is_left_over, json_bytes, seal, unseal
from frostline.frozen.batches import Lengths, Rows
from frostline.frozen.forward_pass import ForwardPass
from frostline.frozen.layer_by_layer import states_of_batches
from frostline.frozen.selection import POOLED, StateSelection
from frostline.model.tokens import Tokens, flat_positions


class Shard:
    """One shard: a folder with the hidden states of some examples.

    Attributes:
        keys: Digests of the examples' tokens, ``[N]``.
        offsets: Where each example's tokens begin, ``[N + 1]``.
        seconds: Seconds that the forward pass took.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        facts = json.loads((folder / "shard.json").read_text())
        self.keys: NDArray[np.void] = np.load(folder / "keys.npy").view("V16")[:, 0]
        self.offsets: NDArray[np.int64] = np.load(folder / "offsets.npy")
        self.cuts: tuple[int, ...] = tuple(facts["cuts"])
        self.head: bool = facts["head"]
        self.pooled: tuple[int, ...] = tuple(facts["pooled"])
        self.seconds: float = facts["seconds"]
        self._arrays: dict[str, Tensor] = {}

    def array(self, name: str) -> Tensor:
        """A memory-mapped file. It is copy-on-write, so changes to the tensor do not reach the file."""
        if name not in self._arrays:
            self._arrays[name] = torch.from_numpy(np.load(self.folder / f"{name}.npy", mmap_mode="c"))
        return self._arrays[name]

    @property
    def open_files(self) -> set[str]:
        """The names of the arrays whose files are mapped."""
        return set(self._arrays)

    def close(self) -> None:
        """Close the files that are mapped."""
        self._arrays.clear()

    def covers(self, selection: StateSelection) -> bool:
        """Whether the shard holds all hidden states of a selection."""
        vectors = (self.head or not selection.head) and set(selection.pooled) <= set(self.pooled)
        return vectors and set(selection.cuts) <= set(self.cuts)


def shard_folders(recipe_folder: Path) -> list[Path]:
    """The folders of all shards of a recipe, damaged ones too, but none that is being written."""
    return sorted(path for path in recipe_folder.iterdir() if path.is_dir() and path.suffix != ".part")


def is_unfinished(path: Path) -> bool:
    """Whether a process was writing or removing this when it was killed."""
    return is_left_over(path) or re.fullmatch(r"[0-9a-f]{32}\.part", path.name) is not None


def find_damage(shard: Path) -> str:
    """Compare a shard's files with their sizes and checksums. Returns a description of the damage, empty if intact."""
    record = shard / "shard.json"
    try:
        facts = unseal(record.read_bytes())
    except (FileNotFoundError, ValueError) as error:
        return f"{record} is {'damaged' if isinstance(error, ValueError) else 'missing'}"
    for name, (size, expected) in facts["files"].items():
        file = shard / name
        if not file.exists() or file.stat().st_size != size or file_checksum(file) != expected:
            return f"{file} is {'damaged' if file.exists() else 'missing'}"
    return ""


def remove_shard(shard: Path) -> None:
    """Remove a shard. A process that is killed meanwhile leaves a folder that the next one removes, and no part of a shard."""
    shutil.rmtree(shard.rename(shard.with_name(f"{uuid.uuid4().hex}.part")))


def write_shard(
    folder: Path, forward_pass: ForwardPass, tokens: Tokens, rows: Rows, progress: Callable[[float], None]
) -> Path:
    """Compute the hidden states of these rows of ``tokens`` and write them as a shard into ``folder``.

    Args:
        folder: The folder of the recipe.
        forward_pass: Computes the hidden states.
        tokens: The token table.
        rows: Positions in the table. No two rows may have the same tokens.
        progress: Called after every batch with the number of examples that it is worth.

    Returns:
        The folder of the shard.
    """
    part = folder / f"{uuid.uuid4().hex}.part"
    part.mkdir()
    selection, begun = forward_pass.selection, perf_counter()
    batches = forward_pass.batches(tokens.lengths, rows)
    rows = np.concatenate([batch.rows for batch in batches])
    lengths = tokens.lengths[rows]
    try:
        np.save(part / "keys.npy", tokens.keys[rows].view(np.uint8).reshape(-1, 16))
        np.save(part / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
        with ExitStack() as opened:
            files = {
                name: opened.enter_context(_array_file(part / f"{name}.npy", shape))
                for name, shape in _shapes(selection, lengths, forward_pass.anatomy.width).items()
            }
            for states, examples in states_of_batches(forward_pass, tokens, batches, part):
                for name, array in states.items():
                    files[name].write(array.float().cpu().contiguous().numpy().data)
                progress(examples)
        sizes = {file.name: (file.stat().st_size, file_checksum(file)) for file in sorted(part.iterdir())}
        seconds = perf_counter() - begun
        facts = {"rows": len(rows), **asdict(selection), "files": sizes}
        (part / "shard.json").write_bytes(seal({**facts, "seconds": seconds}))
        for written in part.iterdir():
            with written.open("rb+") as file:
                os.fsync(file.fileno())
        return part.rename(folder / checksum(json_bytes(facts))[:20])
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _shapes(selection: StateSelection, lengths: Lengths, width: int) -> dict[str, tuple[int, int]]:
    """The shapes of a shard's arrays, by name."""
    shapes = {f"tokens-{cut}": (int(lengths.sum()), width) for cut in selection.cuts}
    shapes |= {"head": (len(lengths), width)} if selection.head else {}
    return shapes | {f"pooled-{layers}": (len(lengths), len(POOLED) * width) for layers in selection.pooled}


def _array_file(path: Path, shape: tuple[int, int]) -> BinaryIO:
    """Create a .npy file of float32 and reserve its disk space. Its rows are written later."""
    file = path.open("wb")
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    try:
        np.lib.format.write_array_header_1_0(file, header)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, file.tell() + 4 * shape[0] * shape[1])
    except OSError:
        file.close()
        raise
    return file


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
