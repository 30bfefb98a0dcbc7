"""A cache folder for tests that records how many examples were computed."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from frostline.frozen.forward_pass import ForwardPass, StateSelection
from frostline.frozen.hidden_states import CacheKey, HiddenStates, load_or_compute
from frostline.model.anatomy import Anatomy
from frostline.model.tokens import Tokens

ALL = StateSelection((1, 2, 4), head=True)
RECIPE = CacheKey("m", "w", "float32", "sdpa", "cpu", 1, "AVX2", "2", "5", head_reads="first")


class Cache:
    """Calls ``load_or_compute`` for one folder, and records progress and warnings of the last call."""

    def __init__(self, folder: Path, model: Any, anatomy: Anatomy) -> None:
        self.folder, self.model, self.anatomy = folder, model, anatomy
        self.progress: list[int] = []
        self.warnings: list[str] = []

    def load(
        self,
        tokens: Tokens,
        rows: Any,
        selection: StateSelection = ALL,
        *,
        batch_tokens: int | None = None,
        **recipe: Any,
    ) -> HiddenStates:
        self.progress, self.warnings = [], []
        key = dataclasses.replace(RECIPE, **recipe)
        forward_pass = ForwardPass(
            self.model, self.anatomy, selection, key.head_reads, key.packed, max_tokens=batch_tokens or 512
        )
        return load_or_compute(
            forward_pass,
            tokens,
            np.asarray(rows, np.int64),
            key,
            folder=self.folder,
            progress=self.progress.append,
            warn=self.warnings.append,
        )

    @property
    def computed(self) -> int:
        """The number of examples that the last call computed. Its first progress report counts cached examples."""
        return sum(self.progress[1:])

    @property
    def shards(self) -> list[Path]:
        return sorted(file.parent for file in self.folder.glob("*/*/shard.json"))


def state_bytes(states: HiddenStates, rows: Iterable[int]) -> list[list[bytes]]:
    """The bytes of each row's hidden states, at every cut and of the head's token."""
    return [
        [states.tokens(cut, np.array([row])).numpy().tobytes() for cut in states.selection.cuts]
        + [states.head(np.array([row])).numpy().tobytes()] * states.selection.head
        for row in rows
    ]
