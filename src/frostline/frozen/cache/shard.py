"""One shard of cached hidden states, and whether its files are intact."""

import json
import re
import shutil
import uuid
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from frostline.data.files import is_left_over
from frostline.data.sealed import file_checksum, unseal
from frostline.frozen.selection import StateSelection


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
