"""Load cached hidden states; compute and cache those that are missing."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np

from frostline import FrostlineError
from frostline.data.files import DISK_FULL, NOT_ALLOWED, replace_file
from frostline.data.locks import locked
from frostline.frozen.batches import Rows
from frostline.frozen.cache.hidden_states import HiddenStates
from frostline.frozen.cache.recipe import UNREADABLE, Recipe, cache_folder
from frostline.frozen.cache.shard import Shard, find_damage, is_unfinished, remove_shard, shard_folders
from frostline.frozen.cache.writing import write_shard
from frostline.frozen.forward_pass import ForwardPass
from frostline.frozen.selection import StateSelection
from frostline.model.tokens import Tokens

SHARD_ROWS = 16384  # examples in one shard, at most
RESERVED_BYTES = 1 << 30  # disk space that the cache leaves free
ELSEWHERE = "set HF_ASSETS_CACHE to a folder on another file system, or cache nothing (cache_limit = 0)"


def load_or_compute(
    forward_pass: ForwardPass,
    tokens: Tokens,
    rows: Rows,
    recipe: Recipe,
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
    recipe: Recipe | None = None,
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
