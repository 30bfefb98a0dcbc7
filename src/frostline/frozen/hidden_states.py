"""Hidden states of the frozen layers: computed once, kept, verified, read back.

On disk, below the cache folder:

    <recipe>/recipe.json              everything but the texts that determines the bytes
    <recipe>/<shard>/shard.json       sizes and checksums of the files beside it
                     keys.npy         [N] 16-byte digests of the rows' tokens
                     offsets.npy      [N + 1] where each row's tokens begin
                     tokens-<cut>.npy [T, D] hidden states of all real tokens after <cut> layers
                     head.npy         [N, D] the one hidden state that the head looks at, after the last layer
                     pooled-<n>.npy   [N, 3 D] of each text after n layers: its first token, its mean, its last

A row's states are a function of the row alone (:mod:`frostline.frozen.forward_pass`), so rows that join later, or meet other company,
get the same bits. A shard is written aside and published by one rename; it is never changed.
"""

import errno
import json
import os
import shutil
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
from filelock import FileLock
from huggingface_hub import constants
from numpy.typing import NDArray
from torch import Tensor

from frostline import FrostlineError
from frostline.frozen.forward_pass import POOLED, Need, Pass, Rows
from frostline.model.tokens import Tokens, flat_positions

FORMAT = 8
SHARD_ROWS = 16384
RESERVE = 1 << 30  # bytes of the disk that are left to others
DAMAGED = (OSError, ValueError, LookupError, TypeError, EOFError)  # what reading a damaged record ends in


@dataclass(frozen=True)
class Recipe:
    """All that determines a row's hidden states, but the row."""

    model: str  # for people
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
    narrow: str = ""  # modules of the last layer that run for the head's token only
    format: int = FORMAT

    @property
    def key(self) -> str:
        facts = {name: value for name, value in asdict(self).items() if name != "model"}
        return xxhash.xxh3_128_hexdigest(json.dumps(facts, sort_keys=True).encode())[:20]


def cache_folder() -> Path:
    """Where hidden states are kept: among the assets of Hugging Face's own cache. It need not be there."""
    return Path(constants.HF_ASSETS_CACHE) / "frostline" / "hidden-states" / "default"


class _Shard:
    """One published folder, opened and verified."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts = json.loads((folder / "shard.json").read_text())
        self.keys: NDArray[np.void] = np.load(folder / "keys.npy").view("V16")[:, 0]
        self.offsets: NDArray[np.int64] = np.load(folder / "offsets.npy")
        self.cuts: tuple[int, ...] = tuple(self.facts["cuts"])
        self.head: bool = self.facts["head"]
        self.pooled: tuple[int, ...] = tuple(self.facts["pooled"])
        self.seconds: float = self.facts["seconds"]  # that the pass took
        self._arrays: dict[str, Tensor] = {}

    def array(self, name: str) -> Tensor:
        """A memory-mapped file; copy-on-write, so that nobody can change what is on the disk."""
        if name not in self._arrays:
            self._arrays[name] = torch.from_numpy(np.load(self.folder / f"{name}.npy", mmap_mode="c"))
        return self._arrays[name]

    def covers(self, need: Need) -> bool:
        vectors = (self.head or not need.head) and set(need.pooled) <= set(self.pooled)
        return vectors and set(need.cuts) <= set(self.cuts)


class HiddenStates:
    """Kept states of a table of texts, by row number of that table; other rows than those asked for are not there."""

    def __init__(self, need: Need, shards: Sequence[_Shard], keys: NDArray[np.void], rows: Rows) -> None:
        self.need, self.rows, self._shards = need, rows, shards
        where: dict[bytes, tuple[int, int]] = {}
        for number, shard in enumerate(shards):
            where.update((key.tobytes(), (number, row)) for row, key in enumerate(shard.keys))
        self._shard, self._row = np.full((2, len(keys)), -1, np.int64)
        for row in rows.tolist():
            self._shard[row], self._row[row] = where[keys[row].tobytes()]
        used = [len(np.unique(self._row[rows][self._shard[rows] == n])) for n in range(len(shards))]
        # What the pass over these rows took, also when that was another day.
        self.seconds = sum(s.seconds * n / len(s.keys) for s, n in zip(shards, used, strict=True))

    def has(self, rows: Rows) -> bool:
        """Whether these rows were asked for."""
        return bool((self._shard[rows] >= 0).all())

    def tokens(self, cut: int, rows: Rows) -> Tensor:
        """``[1, T, D]``: the states of all tokens of these rows after ``cut`` layers, in the order of the rows."""
        parts = []
        order = []
        for number, inside, places in self._by_shard(rows):
            shard = self._shards[number]
            flat = flat_positions(shard.offsets, inside)
            parts.append(shard.array(f"tokens-{cut}").index_select(0, torch.from_numpy(flat)))
            order.append((places, np.diff(shard.offsets)[inside]))
        if len(parts) == 1:
            return parts[0][None]
        return _in_order(parts, order)[None]

    def head(self, rows: Rows) -> Tensor:
        """``[1, B, D]``: after the last layer, the state of the one token that the head looks at."""
        return self._of_texts("head", rows)[None]

    def pooled(self, layer: int, rows: Rows) -> Tensor:
        """``[B, 3, D]``: after ``layer`` layers, the vectors of these texts that ``POOLED`` names."""
        return self._of_texts(f"pooled-{layer}", rows).view(len(rows), len(POOLED), -1)

    def _of_texts(self, name: str, rows: Rows) -> Tensor:
        parts = []
        order = []
        for number, inside, places in self._by_shard(rows):
            parts.append(self._shards[number].array(name).index_select(0, torch.from_numpy(inside)))
            order.append((places, np.ones_like(places)))
        return parts[0] if len(parts) == 1 else _in_order(parts, order)

    def _by_shard(self, rows: Rows) -> Iterator[tuple[int, Rows, Rows]]:
        shards = self._shard[rows]
        assert (shards >= 0).all(), "hidden states of these rows were not asked for"
        for number in np.unique(shards):
            places = np.flatnonzero(shards == number)
            yield int(number), self._row[rows[places]], places


def _in_order(parts: list[Tensor], order: list[tuple[Rows, Rows]]) -> Tensor:
    """Put the tokens of rows that came from several shards back into the order of the batch."""
    places = np.concatenate([place for place, _ in order])
    lengths = np.concatenate([length for _, length in order])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return torch.cat(parts).index_select(0, torch.from_numpy(flat_positions(offsets, np.argsort(places))))


def keep(
    made_by: Pass,
    tokens: Tokens,
    rows: Rows,
    recipe: Recipe,
    *,
    folder: Path | None = None,
    progress: Callable[[int], None] = lambda rows: None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> HiddenStates:
    """Hidden states of these rows of ``tokens``: those on disk are used, the others computed in one pass and kept.

    Raises:
        FrostlineError: the disk is full, or the folder cannot be written. What was published before stays.
    """
    place = (folder or cache_folder()) / recipe.key
    with _said_of_the_disk(place), _locked(place):
        for leftover in place.glob("*.part"):  # of a process that was killed: nobody else writes under the lock
            shutil.rmtree(leftover)
        (place / "recipe.new").write_text(json.dumps(asdict(recipe), indent=1))
        (place / "recipe.new").replace(place / "recipe.json")  # whoever lists what is kept reads all of it or none
        shards = [shard for shard in _open_all(place, warn) if shard.covers(made_by.need)]
        missing = _missing(tokens, rows, shards)
        progress(len(rows) - len(missing))
        for start in range(0, len(missing), SHARD_ROWS):
            published = _write_shard(place, made_by, tokens, missing[start : start + SHARD_ROWS], progress)
            shards.append(_Shard(published))
    return HiddenStates(made_by.need, shards, tokens.keys, rows)


def not_kept(
    tokens: Tokens, rows: Rows, need: Need, recipe: Recipe | None = None, *, folder: Path | None = None
) -> Rows:
    """Those of these rows that :func:`keep` would compute, one of each text, sorted by length; nothing is verified or
    changed. Without a recipe: as if nothing were on disk."""
    files = (folder or cache_folder()).glob(f"{recipe.key}/*/shard.json") if recipe else ()
    shards = []
    for file in files:
        with suppress(*DAMAGED):  # it will be computed again
            shards.append(_Shard(file.parent))
    return _missing(tokens, rows, [shard for shard in shards if shard.covers(need)])


def recipes_like(recipe: Recipe, *, folder: Path | None = None) -> Iterator[Recipe]:
    """Recipes on disk that differ from this one in how the pass is made alone, which is not known before the model was
    checked."""
    for file in (folder or cache_folder()).glob("*/recipe.json"):
        with suppress(*DAMAGED):
            found = Recipe(**json.loads(file.read_text()))
            if replace(recipe, model=found.model, packed=found.packed, narrow=found.narrow) == found:
                yield found


def _missing(tokens: Tokens, rows: Rows, shards: Sequence[_Shard]) -> Rows:
    """One row of each text that is in none of the shards, sorted by length."""
    have = np.concatenate([np.zeros(0, "V16"), *(shard.keys for shard in shards)])
    unique, first = np.unique(tokens.keys[rows], return_index=True)
    missing = rows[first[~np.isin(unique, have)]]
    ordered: Rows = missing[np.lexsort((tokens.keys[missing], tokens.lengths[missing]))]
    return ordered


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "lock"):
        yield


def _open_all(place: Path, warn: Callable[[str], None]) -> Iterator[_Shard]:
    for file in sorted(place.glob("*/shard.json")):
        if problem := damage(file.parent):
            warn(f"Kept hidden states were damaged and are computed again: {problem}.")
            shutil.rmtree(file.parent)
        else:
            yield _Shard(file.parent)


def damage(shard: Path) -> str:
    """What is wrong with a shard's files, by size and checksum; empty if nothing is."""
    try:
        facts = json.loads((shard / "shard.json").read_text())
    except ValueError:
        facts = None
    if _name(facts) != shard.name or not isinstance(facts.get("seconds"), float):
        return f"{shard / 'shard.json'} is not what was written"
    for name, (size, checksum) in facts["files"].items():
        file = shard / name
        if not file.exists() or file.stat().st_size != size or _checksum(file) != checksum:
            return f"{file} is not what was written"
    return ""


def _name(facts: Any) -> str:
    """A shard is named by what its shard.json says but for the time it took, so that this file too is checked."""
    if isinstance(facts, dict):
        facts = {name: value for name, value in facts.items() if name != "seconds"}
    return xxhash.xxh3_128_hexdigest(json.dumps(facts, sort_keys=True).encode())[:20]


@contextmanager
def _said_of_the_disk(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise FrostlineError(
                f"Hidden states cannot be kept in {place} ({error.strerror}): set HF_ASSETS_CACHE to a folder that can be "
                "written; a sweep can also keep none (--cache-limit 0)."
            ) from error
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise FrostlineError(
            f"The disk is full: hidden states could not be kept in {place}. Make room (`frostline cache rm`), "
            "or set a lower --cache-limit, and run the same command again; finished runs are kept."
        ) from error


def _write_shard(place: Path, made_by: Pass, tokens: Tokens, rows: Rows, progress: Callable[[int], None]) -> Path:
    part = place / f"{uuid.uuid4().hex}.part"
    part.mkdir()
    need, width, start = made_by.need, made_by.anatomy.width, perf_counter()
    batches = made_by.batches(tokens.lengths, rows)
    rows = np.concatenate([batch.rows for batch in batches])
    lengths = tokens.lengths[rows]
    try:
        np.save(part / "keys.npy", tokens.keys[rows].view(np.uint8).reshape(-1, 16))
        np.save(part / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
        with ExitStack() as files:
            shapes = {f"tokens-{cut}": (int(lengths.sum()), width) for cut in need.cuts}
            shapes |= {"head": (len(rows), width)} if need.head else {}
            shapes |= {f"pooled-{layer}": (len(rows), len(POOLED) * width) for layer in need.pooled}
            open_files = {
                name: files.enter_context(_array_file(part / f"{name}.npy", shape)) for name, shape in shapes.items()
            }
            for batch, states in zip(batches, made_by.states(tokens, batches), strict=True):
                for name, array in states.items():
                    open_files[name].write(array.float().cpu().contiguous().numpy().data)
                progress(len(batch.rows))
        files_written = {file.name: (file.stat().st_size, _checksum(file)) for file in sorted(part.iterdir())}
        seconds = perf_counter() - start
        facts = {"rows": len(rows), **asdict(need), "seconds": seconds, "files": files_written}
        (part / "shard.json").write_text(json.dumps(facts, indent=1))
        for written in part.iterdir():
            with written.open("rb+") as file:
                os.fsync(file.fileno())
        return part.rename(place / _name(facts))
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _array_file(path: Path, shape: tuple[int, int]) -> BinaryIO:
    """A .npy file of float32 with its header written, to be filled row by row; its room on the disk is taken now."""
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


def _checksum(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
