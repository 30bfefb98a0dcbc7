"""The cache of hidden states on disk: compute, write, check, read, list and remove.

Inside the cache folder, each recipe has a folder with ``recipe.json``: everything that determines hidden states, except the
examples. It has a folder for each shard, with these files:

- ``shard.json``: sizes and checksums of the other files, and its own checksum.
- ``keys.npy``, ``[N]``: 16-byte digests of the examples' tokens.
- ``offsets.npy``, ``[N + 1]``: where each example's tokens begin.
- ``tokens-<cut>.npy``, ``[T, D]``: hidden states of all real tokens after ``<cut>`` layers.
- ``head.npy``, ``[N, D]``: hidden states of the head's tokens after the last layer.
- ``pooled-<n>.npy``, ``[N, 3 D]``: first token, mean and last token of each example after ``<n>`` layers.

The hidden states of an example depend on that example alone (:mod:`frostline.frozen.forward_pass`). The cache can therefore grow:
examples that are computed later, in other batches, get bitwise identical hidden states. A shard is written to a temporary
folder, which is then renamed. It never changes afterwards.
"""

import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO

import numpy as np
import torch
import xxhash
from huggingface_hub import constants
from numpy.typing import NDArray
from torch import Tensor

from frostline import FrostlineError
from frostline.data.files import (
    CANNOT_WRITE,
    DISK_FULL,
    NOT_ALLOWED,
    checksum,
    file_checksum,
    is_left_over,
    json_bytes,
    locked,
    replace_file,
    seal,
    unseal,
)
from frostline.frozen.forward_pass import POOLED, ForwardPass, Rows, StateSelection, states_of_batches
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
    """Compute the hidden states of these rows of ``tokens`` and write them as a shard into ``folder``, that of the recipe.

    No two rows may have the same tokens. ``progress`` is called after every batch with the number of examples that it is worth.
    Returns the folder of the shard.
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
        width = forward_pass.anatomy.width
        shapes = {f"tokens-{cut}": (int(lengths.sum()), width) for cut in selection.cuts}
        shapes |= {"head": (len(lengths), width)} if selection.head else {}
        shapes |= {f"pooled-{layers}": (len(lengths), len(POOLED) * width) for layers in selection.pooled}
        with ExitStack() as opened:
            files = {
                name: opened.enter_context(_array_file(part / f"{name}.npy", shape)) for name, shape in shapes.items()
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
        return _in_order(parts, order)

    def _by_shard(self, rows: Rows) -> Iterator[tuple[int, Rows, Rows]]:
        """For each shard that holds some of these rows: its number, the rows inside it, and their positions in the batch."""
        shards = self._shard[rows]
        assert (shards >= 0).all(), "hidden states of these rows were not loaded"
        for number in np.unique(shards):
            positions = np.flatnonzero(shards == number)
            yield int(number), self._row[rows[positions]], positions


def _in_order(parts: list[Tensor], order: list[tuple[Rows, Rows]]) -> Tensor:
    """The vectors from several shards in the order of the batch, from each shard's rows in it and how many vectors each has."""
    if len(parts) == 1:
        return parts[0]
    positions = np.concatenate([position for position, _ in order])
    lengths = np.concatenate([length for _, length in order])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return torch.cat(parts).index_select(0, torch.from_numpy(flat_positions(offsets, np.argsort(positions))))


FORMAT = 10
UNREADABLE = (OSError, ValueError, LookupError, TypeError, EOFError)  # errors of reading a damaged record


@dataclass(frozen=True)
class CacheKey:
    """Everything that determines an example's hidden states, except the example."""

    model: str  # its name, for display; not part of the key
    weights: str  # digest of weights and configuration
    precision: str
    attention: str
    device: str
    threads: int
    instructions: str
    torch: str
    transformers: str
    head_reads: str
    packed: bool = True
    head_token: str = ""  # modules of the last layer that run for the head's token only
    format: int = FORMAT

    @property
    def key(self) -> str:
        """The name of the folder with the hidden states."""
        facts = {name: value for name, value in asdict(self).items() if name != "model"}
        return xxhash.xxh3_128_hexdigest(json.dumps(facts, sort_keys=True).encode())[:20]


def cache_folder() -> Path:
    """The folder of cached hidden states, in the assets cache of Hugging Face. It may not exist yet."""
    return Path(constants.HF_ASSETS_CACHE) / "frostline" / "hidden-states" / "default"


def similar_recipes(recipe: CacheKey, *, folder: Path | None = None) -> Iterator[CacheKey]:
    """Keys on disk that differ only in ``packed`` and ``head_token``.

    Both are unknown before the exactness check.
    """
    for file in (folder or cache_folder()).glob("*/recipe.json"):
        with suppress(*UNREADABLE):
            found = CacheKey(**json.loads(file.read_text()))
            if replace(recipe, model=found.model, packed=found.packed, head_token=found.head_token) == found:
                yield found


INSTEAD = "end all processes that use this folder, and remove it yourself"


@dataclass(frozen=True)
class CacheEntry:
    """The cached hidden states of one recipe: one model, in one precision, on one kind of machine."""

    key: str
    folder: Path
    recipe: dict[str, Any]  # empty if recipe.json is damaged
    rows: int  # examples
    cuts: tuple[int, ...]
    bytes: int
    modified: float  # seconds since 1970

    @property
    def model(self) -> str:
        """The model's name, for display."""
        return str(self.recipe.get("model", "(its record is damaged)"))


def list_entries(folder: Path | None = None) -> Iterator[CacheEntry]:
    """All entries, the least recently modified first."""
    found = []
    for recipe in (folder or cache_folder()).glob("*/recipe.json"):
        shards = [_read_record(path) for path in recipe.parent.glob("*/shard.json")]
        files = [path.stat() for path in recipe.parent.rglob("*") if path.is_file()]
        found.append(
            CacheEntry(
                key=recipe.parent.name,
                folder=recipe.parent,
                recipe=_read_record(recipe),
                rows=sum(shard.get("rows", 0) for shard in shards),
                cuts=tuple(sorted({cut for shard in shards for cut in shard.get("cuts", ())})),
                bytes=sum(file.st_size for file in files),
                modified=max(file.st_mtime for file in files),
            )
        )
    yield from sorted(found, key=lambda entry: entry.modified)


def remove_entries(keys: list[str] | None, folder: Path | None = None) -> list[CacheEntry]:
    """Remove the entries whose key starts with one of ``keys``; None removes all.

    Returns:
        The removed entries.

    Raises:
        FrostlineError: One of ``keys`` matches no entry.
    """
    entries = list(list_entries(folder))
    for key in keys or ():
        if not any(entry.key.startswith(key) for entry in entries):
            raise FrostlineError(f"No cached hidden states have the key {key!r}: `frostline cache ls` lists them.")
    removed = [entry for entry in entries if keys is None or entry.key.startswith(tuple(keys))]
    for entry in removed:
        with locked(entry.folder / "lock", INSTEAD, inside=entry.folder):  # wait for a process that is writing
            for path in entry.folder.iterdir():
                if path.is_dir():
                    remove_shard(path)
            (entry.folder / "recipe.json").unlink()
        shutil.rmtree(entry.folder, ignore_errors=True)
    return removed


def verify_entries(folder: Path | None = None) -> Iterator[tuple[CacheEntry, str]]:
    """Verify all cached files. Yields each entry with a description of its damage, or an empty text if it is intact."""
    for entry in list_entries(folder):
        damages = [find_damage(shard) for shard in shard_folders(entry.folder)]
        if not entry.recipe:
            damages.append(f"{entry.folder / 'recipe.json'} is damaged")
        yield entry, "; ".join(filter(None, damages))


def _read_record(path: Path) -> dict[str, Any]:
    """The contents of a JSON file; empty if it is damaged."""
    try:
        found = json.loads(path.read_text())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


SHARD_ROWS = 16384  # examples in one shard, at most
RESERVED_BYTES = 1 << 30  # disk space that the cache leaves free
ELSEWHERE = "set HF_ASSETS_CACHE to a folder on another file system, or cache nothing (cache_limit = 0)"


def load_or_compute(
    forward_pass: ForwardPass,
    tokens: Tokens,
    rows: Rows,
    recipe: CacheKey,
    *,
    folder: Path | None = None,
    progress: Callable[[float], None] = lambda examples: None,
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
    with _disk_errors(recipe_folder), locked(recipe_folder / "lock", ELSEWHERE, inside=recipe_folder):
        for leftover in recipe_folder.glob(
            "*.part"
        ):  # of a process that was killed; one that lives would hold the lock
            if is_left_over(leftover) or re.fullmatch(r"[0-9a-f]{32}\.part", leftover.name):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        replace_file(recipe_folder / "recipe.json", json.dumps(asdict(recipe), indent=1).encode(), inside=recipe_folder)
        shards = []
        for found in shard_folders(recipe_folder):
            if damage := find_damage(found):
                warn(f"Cached hidden states are computed again: {damage}.")
                remove_shard(found)
            elif (shard := Shard(found)).covers(forward_pass.selection):
                shards.append(shard)
        missing = _missing(tokens, rows, shards)
        progress(len(rows) - len(missing))
        for start in range(0, len(missing), SHARD_ROWS):
            published = write_shard(recipe_folder, forward_pass, tokens, missing[start : start + SHARD_ROWS], progress)
            shards.append(Shard(published))
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
    files = (folder or cache_folder()).glob(f"{recipe.key}/*/shard.json") if recipe else ()
    shards = []
    for file in files:
        with suppress(*UNREADABLE):  # a damaged shard is computed again
            shards.append(Shard(file.parent))
    return _missing(tokens, rows, [shard for shard in shards if shard.covers(selection)])


def _missing(tokens: Tokens, rows: Rows, shards: Sequence[Shard]) -> Rows:
    """One row for each token sequence that no shard holds, sorted by length."""
    cached = np.concatenate([np.zeros(0, "V16"), *(shard.keys for shard in shards)])
    unique, first = np.unique(tokens.keys[rows], return_index=True)
    missing = rows[first[~np.isin(unique, cached)]]
    ordered: Rows = missing[np.lexsort((tokens.keys[missing], tokens.lengths[missing]))]
    return ordered


@contextmanager
def _disk_errors(recipe_folder: Path) -> Iterator[None]:
    """Explain what to do if the disk is full or the folder cannot be written."""
    try:
        yield
    except (OSError, FrostlineError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__  # replace_file raises a FrostlineError
        if not isinstance(cause, OSError):
            raise
        if cause.errno in NOT_ALLOWED:
            raise FrostlineError(
                f"Hidden states cannot be cached in {recipe_folder} ({cause.strerror}): set HF_ASSETS_CACHE to a folder that "
                "can be written, or cache nothing (cache_limit = 0)."
            ) from error
        if cause.errno not in DISK_FULL:
            raise
        raise FrostlineError(
            f"The disk is full: hidden states could not be cached in {recipe_folder}. Free disk space "
            "(`frostline cache rm`), or set a lower cache_limit, and run the same command again; finished runs remain."
        ) from error


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder on the disk of the cache. It is removed when the context closes.

    Raises:
        FrostlineError: The disk is full, or the folder cannot be written.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, suffix=".part") as made:
            yield Path(made)
    except OSError as error:
        if error.errno not in CANNOT_WRITE:
            raise
        raise FrostlineError(
            f"Hidden states cannot be written to {folder} ({error.strerror}): free disk space (`frostline cache rm`), or set "
            "HF_ASSETS_CACHE to another folder."
        ) from error


def computed_states(folder: Path, forward_pass: ForwardPass, tokens: Tokens, rows: Rows) -> HiddenStates:
    """The selected hidden states of these rows of ``tokens``, which are computed and written into a folder of the caller."""
    unique = missing_rows(tokens, rows, forward_pass.selection)
    shard = write_shard(folder, forward_pass, tokens, unique, lambda examples: None)
    return HiddenStates(forward_pass.selection, [Shard(shard)], tokens.keys, rows)
