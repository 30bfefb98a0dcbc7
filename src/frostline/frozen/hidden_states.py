"""The cache of hidden states on disk: compute, write and read them. :mod:`frostline.frozen.cache` lists and removes them.

Inside the cache folder, each recipe has a folder with ``recipe.json``: everything that determines hidden states, except the
examples. Beside it are shards. A shard is one safetensors file, named after its checksum, with these arrays of some examples:

- ``keys``, ``[N, 16]``: digests of the examples' tokens.
- ``offsets``, ``[N + 1]``: where each example's tokens begin.
- ``tokens-<cut>``, ``[T, D]``: hidden states of all real tokens after ``<cut>`` layers.
- ``head``, ``[N, D]``: hidden states of the head's tokens after the last layer.
- ``pooled-<n>``, ``[N, 3 D]``: first token, mean and last token of each example after ``<n>`` layers.
- ``seconds``, ``[1]``: the seconds that the forward pass took.

The hidden states of an example depend on that example alone (:mod:`frostline.frozen.forward_pass`). The cache can therefore grow:
examples that are computed later, in other batches, get bitwise identical hidden states. A shard is written under a temporary
name, and then renamed. It never changes afterwards.
"""

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from frostline import FrostlineError
from frostline.data.files import (
    CANNOT_WRITE,
    NOT_ALLOWED,
    locked,
    publish_tensors,
    remove,
    replace_file,
)
from frostline.frozen.cache import ALWAYS, UNREADABLE, CacheKey, cache_folder, is_damaged
from frostline.frozen.forward_pass import POOLED, ForwardPass, Rows, StateSelection
from frostline.model.device import to_device
from frostline.model.tokens import Tokens, flat_positions

Shard = Mapping[str, Tensor]  # by name; mapped from a file, but copy-on-write, so that no change reaches it


def keys_of(shard: Shard) -> NDArray[np.void]:
    """``[N]``: the digests of the examples' tokens."""
    keys: NDArray[np.void] = shard["keys"].numpy().view("V16")[:, 0]
    return keys


def write_shard(
    folder: Path, forward_pass: ForwardPass, tokens: Tokens, rows: Rows, progress: Callable[[float], None]
) -> Path:
    """Compute the hidden states of these rows of ``tokens`` and write them as a shard into ``folder``, that of the recipe.

    No two rows may have the same tokens. ``progress`` is called after every batch with the number of examples that it is worth.
    Returns the file of the shard.
    """
    begun, batches = perf_counter(), forward_pass.batches(tokens.lengths, rows)
    rows = np.concatenate([batch.rows for batch in batches])
    lengths = tokens.lengths[rows]
    states = forward_pass.selection.shapes(len(rows), int(lengths.sum()), forward_pass.anatomy.width)
    shapes = {"keys": ("U8", (len(rows), 16)), "offsets": ("I64", (len(rows) + 1,)), "seconds": ("F64", (1,))}
    shapes |= {name: ("F32", shape) for name, shape in states.items()}

    def write_all(path: Path) -> None:
        with path.open("wb") as file, tempfile.TemporaryDirectory(dir=folder, suffix=".part") as scratch:
            begins = _write_header(file, shapes)

            def write(name: str, array: NDArray[np.generic]) -> None:
                """Write the next rows of an array."""
                file.seek(begins[name])
                file.write(array.data)
                begins[name] += array.nbytes

            write("keys", tokens.keys[rows].view(np.uint8).reshape(-1, 16))
            write("offsets", np.concatenate([[0], np.cumsum(lengths)]))
            for found, examples in forward_pass.hidden_states(tokens, batches, Path(scratch)):
                for name, array in found.items():
                    write(name, array.float().cpu().contiguous().numpy())
                progress(examples)
            write("seconds", np.array([perf_counter() - begun]))

    return publish_tensors(folder, "", write_all, inside=folder)


def _write_header(file: BinaryIO, shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, int]:
    """Begin a safetensors file, and reserve its disk space. Returns where each array begins, which is written later."""
    header, begins, end = {}, {}, 0
    for name, (kind, shape) in shapes.items():
        begins[name], end = end, end + {"U8": 1, "F32": 4}.get(kind, 8) * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": (begins[name], end)}
    content = json.dumps(header).encode()
    content += b" " * (-len(content) % 8)  # so that the address of each number is a multiple of its size
    file.write(len(content).to_bytes(8, "little") + content)
    start = 8 + len(content)
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, start + end)
    return {name: start + begin for name, begin in begins.items()}


class HiddenStates:
    """Hidden states of some rows of a token table, in one or more shards. A row is a position in that table.

    Attributes:
        selection: Which hidden states can be read.
        rows: The rows whose hidden states can be read.
        lengths: ``[N]``, the tokens of each row of the table; 0 if its hidden states cannot be read.
        seconds: Seconds of the forward pass over these rows, also if an earlier process ran it.
    """

    def __init__(self, selection: StateSelection, shards: Sequence[Shard], keys: NDArray[np.void], rows: Rows) -> None:
        self.selection, self.rows, self._shards, self._keys = selection, rows, shards, keys
        found: dict[bytes, tuple[int, int]] = {}
        for number, shard in enumerate(shards):
            found.update((key.tobytes(), (number, place)) for place, key in enumerate(keys_of(shard)))
        self._shard, self._place = np.full((2, len(keys)), -1, np.int64)  # of each row of the table
        for row in rows.tolist():
            self._shard[row], self._place[row] = found[keys[row].tobytes()]
        self.lengths, self.seconds = np.zeros(len(keys), np.int64), 0.0
        for number, shard in enumerate(shards):
            here = self._shard == number
            self.lengths[here] = np.diff(shard["offsets"].numpy())[self._place[here]]
            self.seconds += float(shard["seconds"]) * len(np.unique(self._place[here])) / len(shard["keys"])

    def has(self, rows: Rows) -> bool:
        """Whether the hidden states of these rows can be read."""
        return bool((self._shard[rows] >= 0).all())

    def tokens(self, cut: int, rows: Rows) -> Tensor:
        """Hidden states of all tokens of these rows after ``cut`` layers, ``[1, T, D]``, in the order of the rows."""
        return self.read(f"tokens-{cut}", rows)[None]

    def head(self, rows: Rows) -> Tensor:
        """Hidden states of the head's tokens after the last layer, ``[1, B, D]``."""
        return self.read("head", rows)[None]

    def pooled(self, layer: int, rows: Rows) -> Tensor:
        """Pooled vectors after ``layer`` layers, ``[B, 3, D]``, in the order of ``POOLED``."""
        return self.read(f"pooled-{layer}", rows).view(len(rows), len(POOLED), -1)

    def counts(self, name: str, rows: Rows) -> NDArray[np.int64]:
        """``[B]``: how many vectors of this name each row has."""
        return self.lengths[rows] if name.startswith("tokens") else np.ones(len(rows), np.int64)

    def read(self, name: str, rows: Rows) -> Tensor:
        """The vectors of this name, as in a shard, in the order of the rows."""
        parts, order, shards = list[Tensor](), list[Rows](), self._shard[rows]
        assert (shards >= 0).all(), "hidden states of these rows were not loaded"
        for number in np.unique(shards):
            shard, positions = self._shards[number], np.flatnonzero(shards == number)
            places = self._place[rows[positions]]
            flat = flat_positions(shard["offsets"].numpy(), places) if name.startswith("tokens") else places
            parts.append(_chosen(shard[name], flat))
            order.append(positions)
        if len(parts) == 1:
            return parts[0]
        mixed = np.concatenate(order)
        offsets = np.concatenate([[0], np.cumsum(self.counts(name, rows[mixed]))])
        return _chosen(torch.cat(parts), flat_positions(offsets, np.argsort(mixed)))

    def copied(self, name: str, device: torch.device) -> "HiddenStates":
        """A copy of the vectors of one name in the memory of a device. A read only sends positions there."""
        rows, counts = self.rows, self.counts(name, self.rows)
        ends, one = np.cumsum(counts), self.read(name, self.rows[:1])
        vectors = torch.empty((int(ends[-1]), *one.shape[1:]), dtype=one.dtype, device=device)
        for start in range(0, len(rows), COPIED_ROWS):
            some = self.read(name, rows[start : start + COPIED_ROWS])
            vectors[ends[start] - counts[start] :][: len(some)].copy_(some)
        shard = {
            "keys": torch.from_numpy(self._keys[rows].view(np.uint8).reshape(-1, 16)),
            "offsets": torch.from_numpy(np.concatenate([[0], np.cumsum(self.lengths[rows])])),
            "seconds": torch.tensor([self.seconds]),
            name: vectors,
        }
        return HiddenStates(self.selection, [shard], self._keys, rows)


COPIED_ROWS = 1024  # that are copied to a device at once


def _chosen(vectors: Tensor, positions: Rows) -> Tensor:
    """The vectors at these positions."""
    return vectors.index_select(0, to_device(torch.from_numpy(positions), vectors.device))


def _readable_shards(recipe_folder: Path, selection: StateSelection) -> list[Shard]:
    """The shards of a recipe that hold all hidden states of a selection. They are not verified, and damaged ones are left out."""
    needed, shards = {*ALWAYS, *selection.shapes(0, 0, 0)}, list[Shard]()
    for file in recipe_folder.glob("*.safetensors"):
        with suppress(*UNREADABLE):
            shard = load_file(file)
            if needed <= shard.keys() and len(keys_of(shard)):
                shards.append(shard)
    return shards


SHARD_ROWS = 16384  # examples in one shard, at most
RESERVED_BYTES = 1 << 30  # disk space that the cache leaves free
ELSEWHERE = (
    "set HF_ASSETS_CACHE to a folder on another file system, or cache nothing in a sweep or search (--cache-limit 0)"
)


def load_or_compute(
    forward_pass: ForwardPass,
    tokens: Tokens,
    rows: Rows,
    recipe: CacheKey,
    *,
    folder: Path | None = None,
    progress: Callable[[float], None],
    warn: Callable[[str], None] = lambda sentence: None,
) -> HiddenStates:
    """Load the cached hidden states of these rows of ``tokens``. Compute and cache the missing ones.

    Args:
        forward_pass: Computes the missing hidden states.
        tokens: The token table.
        rows: Positions in the table.
        recipe: Identifies the folder of the hidden states in the cache.
        folder: The cache folder; by default :func:`cache_folder`.
        progress: Called with the number of cached examples, then after each batch with that of the examples it is worth.
        warn: Called with a sentence for each damaged shard. Its hidden states are computed again.

    Raises:
        FrostlineError: The disk is full, or the folder cannot be written. Shards that are already complete remain.
    """
    recipe_folder = (folder or cache_folder()) / recipe.key
    with _disk_errors(recipe_folder, cached=True), locked(recipe_folder / "lock", ELSEWHERE, inside=recipe_folder):
        for leftover in recipe_folder.glob(
            "*.part"
        ):  # of a process that was killed; one that lives would hold the lock
            remove(leftover, inside=recipe_folder)
        replace_file(recipe_folder / "recipe.json", json.dumps(asdict(recipe), indent=1).encode(), inside=recipe_folder)
        for file in filter(is_damaged, recipe_folder.glob("*.safetensors")):
            warn(f"Cached hidden states are computed again: {file} is damaged.")
            file.unlink()
        shards = _readable_shards(recipe_folder, forward_pass.selection)
        missing = _missing(tokens, rows, shards)
        progress(len(rows) - len(missing))
        for start in range(0, len(missing), SHARD_ROWS):
            some = missing[start : start + SHARD_ROWS]
            shards.append(load_file(write_shard(recipe_folder, forward_pass, tokens, some, progress)))
    return HiddenStates(forward_pass.selection, shards, tokens.keys, rows)


def missing_rows(
    tokens: Tokens,
    rows: Rows,
    selection: StateSelection,
    recipe: CacheKey | None = None,
    *,
    folder: Path | None = None,
) -> Rows:
    """The rows that :func:`load_or_compute` would have to compute, sorted by length.

    Of several rows with the same tokens, one is returned. No file is verified or changed. Without a ``recipe``, no row
    counts as cached.
    """
    shards = _readable_shards((folder or cache_folder()) / recipe.key, selection) if recipe else []
    return _missing(tokens, rows, shards)


def _missing(tokens: Tokens, rows: Rows, shards: Sequence[Shard]) -> Rows:
    """One row for each token sequence that no shard holds, sorted by length."""
    cached = np.concatenate([np.zeros(0, "V16"), *map(keys_of, shards)])
    unique, first = np.unique(tokens.keys[rows], return_index=True)
    missing = rows[first[~np.isin(unique, cached)]]
    ordered: Rows = missing[np.lexsort((tokens.keys[missing], tokens.lengths[missing]))]
    return ordered


@contextmanager
def _disk_errors(folder: Path, *, cached: bool) -> Iterator[None]:
    """Explain what to do if hidden states cannot be written into a folder, to be cached or only for a while."""
    try:
        yield
    except (OSError, FrostlineError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__  # replace_file raises a FrostlineError
        if not isinstance(cause, OSError) or cause.errno not in CANNOT_WRITE:
            raise
        if cause.errno in NOT_ALLOWED:
            advice = "set HF_ASSETS_CACHE to a folder that can be written"
            advice += ", or cache nothing in a sweep or search (--cache-limit 0)" if cached else ""
        elif cached:
            advice = (
                "free disk space (`frostline cache rm`), set HF_ASSETS_CACHE to another folder, or set a lower --cache-limit of "
                "a sweep or search, and run the same command again. Finished runs remain"
            )
        else:
            advice = "free disk space (`frostline cache rm`), or set HF_ASSETS_CACHE to another folder"
        raise FrostlineError(f"Hidden states cannot be written to {folder} ({cause.strerror}): {advice}.") from error


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder on the disk of the cache. It is removed when the context closes.

    Raises:
        FrostlineError: The disk is full, or the folder cannot be written.
    """
    folder = cache_folder()
    with _disk_errors(folder, cached=False):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, suffix=".part") as made:
            yield Path(made)


def computed_states(folder: Path, forward_pass: ForwardPass, tokens: Tokens, rows: Rows) -> HiddenStates:
    """The selected hidden states of these rows of ``tokens``, which are computed and written into a folder of the caller."""
    unique = missing_rows(tokens, rows, forward_pass.selection)
    shard = write_shard(folder, forward_pass, tokens, unique, lambda examples: None)
    return HiddenStates(forward_pass.selection, [load_file(shard)], tokens.keys, rows)
