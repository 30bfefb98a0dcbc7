"""Load cached hidden states; compute and cache those that are missing."""

import errno
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
from filelock import FileLock

from frostline import FrostlineError
from frostline.frozen.batches import Rows
from frostline.frozen.cache.hidden_states import HiddenStates
from frostline.frozen.cache.recipe import UNREADABLE, Recipe, cache_folder
from frostline.frozen.cache.shard import Shard, find_damage
from frostline.frozen.cache.writing import write_shard
from frostline.frozen.forward_pass import ForwardPass
from frostline.frozen.selection import StateSelection
from frostline.model.tokens import Tokens

SHARD_ROWS = 16384  # examples in one shard, at most
RESERVED_BYTES = 1 << 30  # of the disk that are left to others


def load_or_compute(
    forward_pass: ForwardPass,
    tokens: Tokens,
    rows: Rows,
    recipe: Recipe,
    *,
    folder: Path | None = None,
    progress: Callable[[int], None] = lambda examples: None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> HiddenStates:
    """Load the cached hidden states of these rows of ``tokens``; compute and cache those that are missing.

    Args:
        forward_pass: Computes what is missing.
        tokens: The table.
        rows: The examples that are wanted.
        recipe: The key of the cache.
        folder: The cache folder; by default :func:`cache_folder`.
        progress: Called with the number of examples that were cached, then with those of each batch.
        warn: Called with a sentence for each damaged shard, which is computed again.

    Raises:
        FrostlineError: The disk is full, or the folder cannot be written. Shards that were published remain.
    """
    place = (folder or cache_folder()) / recipe.key
    with _disk_errors(place), _locked(place):
        for leftover in place.glob("*.part"):  # of a process that was killed: nobody else writes under the lock
            shutil.rmtree(leftover)
        (place / "recipe.new").write_text(json.dumps(asdict(recipe), indent=1))
        (place / "recipe.new").replace(place / "recipe.json")  # others read the whole file or none
        shards = [shard for shard in _intact_shards(place, warn) if shard.covers(forward_pass.selection)]
        missing = _missing(tokens, rows, shards)
        progress(len(rows) - len(missing))
        for start in range(0, len(missing), SHARD_ROWS):
            published = write_shard(place, forward_pass, tokens, missing[start : start + SHARD_ROWS], progress)
            shards.append(Shard(published))
    return HiddenStates(forward_pass.selection, shards, tokens.keys, rows)


def missing_rows(
    tokens: Tokens,
    rows: Rows,
    selection: StateSelection,
    recipe: Recipe | None = None,
    *,
    folder: Path | None = None,
) -> Rows:
    """Those of these rows that :func:`load_or_compute` would compute, sorted by length.

    Rows with the same tokens appear once. Nothing is verified or changed. Without a recipe: as if nothing were cached.
    """
    files = (folder or cache_folder()).glob(f"{recipe.key}/*/shard.json") if recipe else ()
    shards = []
    for file in files:
        with suppress(*UNREADABLE):  # it will be computed again
            shards.append(Shard(file.parent))
    return _missing(tokens, rows, [shard for shard in shards if shard.covers(selection)])


def _missing(tokens: Tokens, rows: Rows, shards: Sequence[Shard]) -> Rows:
    """One row for each sequence of tokens that is in none of the shards, sorted by length."""
    cached = np.concatenate([np.zeros(0, "V16"), *(shard.keys for shard in shards)])
    unique, first = np.unique(tokens.keys[rows], return_index=True)
    missing = rows[first[~np.isin(unique, cached)]]
    ordered: Rows = missing[np.lexsort((tokens.keys[missing], tokens.lengths[missing]))]
    return ordered


def _intact_shards(place: Path, warn: Callable[[str], None]) -> Iterator[Shard]:
    """Verify and open all shards; damaged ones are removed."""
    for file in sorted(place.glob("*/shard.json")):
        if damage := find_damage(file.parent):
            warn(f"Cached hidden states are computed again: {damage}.")
            shutil.rmtree(file.parent)
        else:
            yield Shard(file.parent)


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "lock"):
        yield


@contextmanager
def _disk_errors(place: Path) -> Iterator[None]:
    """Explain a full disk and a folder that cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise FrostlineError(
                f"Hidden states cannot be cached in {place} ({error.strerror}): set HF_ASSETS_CACHE to a folder that can be "
                "written, or cache nothing (--cache-limit 0)."
            ) from error
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise FrostlineError(
            f"The disk is full: hidden states could not be cached in {place}. Free disk space (`frostline cache rm`), "
            "or set a lower --cache-limit, and run the same command again; finished runs remain."
        ) from error
