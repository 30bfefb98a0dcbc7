"""Load cached hidden states; compute and cache those that are missing.

The key of cached hidden states: everything that determines them, except the examples.

List, remove and verify the cached hidden states on this machine.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from huggingface_hub import constants

from frostline import FrostlineError
from frostline.data.files import CANNOT_WRITE, DISK_FULL, NOT_ALLOWED, replace_file
from frostline.data.locks import locked
from frostline.frozen.batches import Rows
from frostline.frozen.cache.hidden_states import (
    HiddenStates,
    Shard,
    find_damage,
    is_unfinished,
    remove_shard,
    shard_folders,
    write_shard,
)
from frostline.frozen.forward_pass import ForwardPass
from frostline.frozen.selection import StateSelection
from frostline.model.tokens import Tokens

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
    found = [_read_entry(path.parent) for path in (folder or cache_folder()).glob("*/recipe.json")]
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


def _read_entry(folder: Path) -> CacheEntry:
    shards = [_read_record(path) for path in folder.glob("*/shard.json")]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return CacheEntry(
        key=folder.name,
        folder=folder,
        recipe=_read_record(folder / "recipe.json"),
        rows=sum(shard.get("rows", 0) for shard in shards),
        cuts=tuple(sorted({cut for shard in shards for cut in shard.get("cuts", ())})),
        bytes=sum(path.stat().st_size for path in files),
        modified=max(path.stat().st_mtime for path in files),
    )


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
        progress: Called first with the number of cached examples, then after each batch with the number of examples
            that it is worth.
        warn: Called with a sentence for each damaged shard. Its hidden states are computed again.

    Raises:
        FrostlineError: The disk is full, or the folder cannot be written. Shards that are already complete remain.
    """
    recipe_folder = (folder or cache_folder()) / recipe.key
    with _disk_errors(recipe_folder), locked(recipe_folder / "lock", ELSEWHERE, inside=recipe_folder):
        for leftover in filter(is_unfinished, recipe_folder.glob("*.part")):  # a process that lives would hold the lock
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        replace_file(recipe_folder / "recipe.json", json.dumps(asdict(recipe), indent=1).encode(), inside=recipe_folder)
        shards = [shard for shard in _intact_shards(recipe_folder, warn) if shard.covers(forward_pass.selection)]
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


def _intact_shards(recipe_folder: Path, warn: Callable[[str], None]) -> Iterator[Shard]:
    """Verify all shards. Damaged shards are removed."""
    for folder in shard_folders(recipe_folder):
        if damage := find_damage(folder):
            warn(f"Cached hidden states are computed again: {damage}.")
            remove_shard(folder)
        else:
            yield Shard(folder)


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


@contextmanager
def temporary_states(forward_pass: ForwardPass, tokens: Tokens, rows: Rows) -> Iterator[HiddenStates]:
    """The selected hidden states of these rows of ``tokens``, while the context is open.

    Raises:
        FrostlineError: The disk is full, or its folder cannot be written.
    """
    unique = missing_rows(tokens, rows, forward_pass.selection)
    with scratch_folder() as folder:
        shard = write_shard(folder, forward_pass, tokens, unique, lambda examples: None)
        yield HiddenStates(forward_pass.selection, [Shard(shard)], tokens.keys, rows)
