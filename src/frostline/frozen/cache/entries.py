"""List, remove and verify the cached hidden states on this machine."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.data.locks import locked
from frostline.frozen.cache.recipe import cache_folder
from frostline.frozen.cache.shard import find_damage, remove_shard, shard_folders

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
