"""The entries of the cache of hidden states: list, verify and remove them. Needs no torch.

:mod:`frostline.frozen.hidden_states` describes the files, and reads and writes them.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import xxhash
from huggingface_hub import constants
from safetensors import SafetensorError, safe_open

from frostline import FrostlineError
from frostline.data.files import file_checksum, locked, remove

UNREADABLE = (OSError, ValueError, LookupError, TypeError, SafetensorError)  # errors of reading a damaged record
ALWAYS = {"keys", "offsets", "seconds"}  # arrays of every shard


def is_damaged(shard: Path) -> bool:
    """Whether a shard is not as it was written."""
    return file_checksum(shard) != shard.stem


FORMAT = 11


@dataclass(frozen=True)
class CacheKey:
    """Everything that determines an example's hidden states, except the example.

    Attributes:
        model: Its name, for display; not part of the key.
        weights: A digest of weights and configuration.
        precision: That of matrix products.
        machine: All else that their last bits depend on: attention, device, threads, instructions and versions.
        head_reads: Which tokens the head reads.
        packed: Whether batches were packed.
        head_token: The modules of the last layer that ran for the head's token only.
    """

    model: str
    weights: str
    precision: str
    machine: Mapping[str, str | int]
    head_reads: str
    packed: bool = True
    head_token: str = ""

    @property
    def key(self) -> str:
        """The name of the folder with the hidden states."""
        facts = {**asdict(self), "model": "", "format": FORMAT}
        return xxhash.xxh3_128_hexdigest(json.dumps(facts, sort_keys=True).encode())[:20]


def cache_folder() -> Path:
    """The folder of cached hidden states, in the assets cache of Hugging Face. It may not exist yet."""
    return Path(constants.HF_ASSETS_CACHE) / "frostline" / "hidden-states" / "default"


def _read_key(file: Path) -> CacheKey | None:
    """The key in a ``recipe.json``; None if it is damaged."""
    with suppress(*UNREADABLE):
        return CacheKey(**json.loads(file.read_text()))
    return None


def similar_recipes(recipe: CacheKey, *, folder: Path | None = None) -> Iterator[CacheKey]:
    """Keys on disk that differ only in ``packed`` and ``head_token``.

    Both are unknown before the exactness check.
    """
    for file in (folder or cache_folder()).glob("*/recipe.json"):
        found = _read_key(file)
        if found and replace(recipe, model=found.model, packed=found.packed, head_token=found.head_token) == found:
            yield found


@dataclass(frozen=True)
class CacheEntry:
    """The cached hidden states of one recipe: one model, in one precision, on one kind of machine."""

    folder: Path  # its name is the key
    recipe: CacheKey | None  # None if recipe.json is damaged
    rows: int  # examples
    after: tuple[str, ...]  # layers: numbers, ascending, then "last" if there is what the head reads
    bytes: int
    modified: float  # seconds since 1970

    @property
    def model(self) -> str:
        """The model's name, for display."""
        return self.recipe.model if self.recipe else "(its record is damaged)"


def list_entries(folder: Path | None = None) -> list[CacheEntry]:
    """All entries, the least recently modified first."""
    found = []
    for recipe in (folder or cache_folder()).glob("*/recipe.json"):
        shards = _readable_shards(recipe.parent)
        try:
            files = [path.stat() for path in recipe.parent.rglob("*") if path.is_file()]
        except FileNotFoundError:
            files = []
        if not files:  # another process has removed the entry
            continue
        names = {name for own, _ in shards for name in own}
        layers = sorted({int(layer) for name in names if (layer := name.partition("-")[2]).isdecimal()})
        found.append(
            CacheEntry(
                folder=recipe.parent,
                recipe=_read_key(recipe),
                rows=len({key for _, keys in shards for key in keys}),
                after=(*map(str, layers), *["last"] * ("head" in names)),
                bytes=sum(file.st_size for file in files),
                modified=max(file.st_mtime for file in files),
            )
        )
    return sorted(found, key=lambda entry: entry.modified)


def remove_entries(keys: list[str] | None, folder: Path | None = None) -> list[CacheEntry]:
    """Remove the entries whose key starts with one of ``keys``; None removes all.

    Returns:
        The removed entries.

    Raises:
        FrostlineError: One of ``keys`` matches no entry.
    """
    entries = list_entries(folder)
    for key in keys or ():
        if not any(entry.folder.name.startswith(key) for entry in entries):
            raise FrostlineError(f"No cached hidden states have the key {key!r}: `frostline cache ls` lists them.")
    removed = [entry for entry in entries if keys is None or entry.folder.name.startswith(tuple(keys))]
    for entry in removed:
        lock, instead = entry.folder / "lock", "end all processes that use this folder, and remove it yourself"
        with locked(lock, instead, inside=entry.folder):  # wait for a process that is writing
            # last the record, without which the others are not listed
            for path in sorted(entry.folder.iterdir(), key=lambda path: path.name == "recipe.json"):
                if path != lock:
                    remove(path, inside=entry.folder)
        remove(entry.folder, inside=entry.folder.parent)
    return removed


def _readable_shards(recipe_folder: Path) -> list[tuple[set[str], set[bytes]]]:
    """The names of the arrays of each shard, and the keys of its examples, which other shards may have with other cuts.

    Shards are not verified, and damaged ones are left out.
    """
    shards = []
    for file in recipe_folder.glob("*.safetensors"):
        with suppress(*UNREADABLE), safe_open(file, "np") as opened:
            if (names := set(opened.keys())) >= ALWAYS and (
                keys := {row.tobytes() for row in opened.get_tensor("keys")}
            ):
                shards.append((names, keys))
    return shards
