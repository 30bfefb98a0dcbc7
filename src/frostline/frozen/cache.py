"""The hidden states that are kept on this machine: listed, removed, verified."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from frostline import FrostlineError
from frostline.frozen.hidden_states import cache_folder, damage


@dataclass(frozen=True)
class Kept:
    """The hidden states of one model on one kind of machine."""

    key: str
    folder: Path
    recipe: dict[str, Any]  # empty where its record is damaged
    rows: int
    cuts: tuple[int, ...]
    bytes: int
    modified: float  # seconds since 1970

    @property
    def model(self) -> str:
        """Its name, for people."""
        return str(self.recipe.get("model", "(its record is damaged)"))


def kept_states(folder: Path | None = None) -> Iterator[Kept]:
    """Everything that is kept, the oldest first."""
    found = [_read(path.parent) for path in (folder or cache_folder()).glob("*/recipe.json")]
    yield from sorted(found, key=lambda kept: kept.modified)


def _read(folder: Path) -> Kept:
    shards = [_record(path) for path in folder.glob("*/shard.json")]
    files = [path for path in folder.rglob("*") if path.is_file()]
    return Kept(
        key=folder.name,
        folder=folder,
        recipe=_record(folder / "recipe.json"),
        rows=sum(shard.get("rows", 0) for shard in shards),
        cuts=tuple(sorted({cut for shard in shards for cut in shard.get("cuts", ())})),
        bytes=sum(path.stat().st_size for path in files),
        modified=max(path.stat().st_mtime for path in files),
    )


def _record(path: Path) -> dict[str, Any]:
    """What is written there; nothing where it is damaged."""
    try:
        found = json.loads(path.read_text())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def remove(keys: list[str] | None, folder: Path | None = None) -> list[Kept]:
    """Remove those whose key begins with one of ``keys``; None: all. Gives what was removed.

    Raises:
        FrostlineError: a key that nothing begins with.
    """
    known = list(kept_states(folder))
    for key in keys or ():
        if not any(kept.key.startswith(key) for kept in known):
            raise FrostlineError(f"No kept hidden states have the key {key!r}: `frostline cache ls` lists them.")
    gone = [kept for kept in known if keys is None or kept.key.startswith(tuple(keys))]
    for kept in gone:
        with FileLock(kept.folder / "lock"):  # a pass that is under way is not torn apart
            for path in kept.folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
            (kept.folder / "recipe.json").unlink()
        shutil.rmtree(kept.folder, ignore_errors=True)
    return gone


def verify(folder: Path | None = None) -> Iterator[tuple[Kept, str]]:
    """Read every kept file again: each entry with what is damaged in it, empty when all is as it was written."""
    for kept in kept_states(folder):
        problems = [damage(path.parent) for path in sorted(kept.folder.glob("*/shard.json"))]
        if not kept.recipe:
            problems.append(f"{kept.folder / 'recipe.json'} is not what was written")
        yield kept, "; ".join(filter(None, problems))
