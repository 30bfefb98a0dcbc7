"""Which hidden states fit on the disk, and the key under which they are cached."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from frostline.frozen.forward_pass import ForwardPass, Lengths, Rows, StateSelection
from frostline.frozen.hidden_states import (
    RESERVED_BYTES,
    SHARD_ROWS,
    CacheKey,
    cache_folder,
    missing_rows,
    similar_recipes,
)
from frostline.model.device import Machine, free_bytes
from frostline.model.pretrained import Pretrained
from frostline.training.experiment import Experiment


@dataclass(frozen=True)
class CacheSpace:
    """The disk space for the hidden states of some examples."""

    context: Experiment
    unique: Rows  # one row of each distinct example
    tokens: int  # their tokens
    free: int  # bytes of the disk
    limit: float  # bytes that the user allows

    @classmethod
    def of(cls, context: Experiment, rows: Rows, limit: float | None) -> "CacheSpace":
        """The space for ``rows`` of the pool, with a ``limit`` in GB."""
        unique = rows[np.unique(context.tokens.keys[rows], return_index=True)[1]]
        tokens = int(context.tokens.lengths[unique].sum())
        return cls(context, unique, tokens, free_cache_bytes(), math.inf if limit is None else limit * 1e9)

    def bytes(self, selection: StateSelection) -> int:
        """The size of these hidden states of all examples."""
        return selection.bytes(len(self.unique), self.tokens, self.context.pretrained.anatomy.width)

    def fits(self, selection: StateSelection) -> bool:
        """Whether the disk has space for the states that are not cached yet, and the limit allows all of them."""
        context = self.context
        recipe = recipe_of(context.pretrained, context.machine, context.forward_pass(selection))
        # if states after the last layer are cached, it ran for all tokens
        whole = context.pretrained.anatomy.count in (*selection.pooled, *selection.cuts)
        recipes = [one for one in similar_recipes(recipe) if bool(one.head_token) != whole]
        lacking = (missing_rows(context.tokens, self.unique, selection, one) for one in recipes)
        missing = min(lacking, key=len, default=self.unique)
        lengths = context.tokens.lengths[missing]
        width = context.pretrained.anatomy.width
        more = selection.bytes(len(missing), int(lengths.sum()), width) + passage_bytes(context.pretrained, lengths)
        return more <= self.free and self.bytes(selection) <= self.limit


def recipe_of(pretrained: Pretrained, machine: Machine, forward_pass: ForwardPass) -> CacheKey:
    """Everything that determines this model's hidden states on this machine."""
    facts = machine.facts()
    return CacheKey(
        model=pretrained.name,
        weights=pretrained.weights,
        precision=machine.precision,
        attention=str(pretrained.model.config._attn_implementation),
        device=str(facts["device_name"]),
        threads=torch.get_num_threads(),
        instructions=str(facts["instructions"]),
        torch=str(facts["torch"]),
        transformers=str(facts["transformers"]),
        head_reads=forward_pass.head_reads,
        packed=forward_pass.packed,
        head_token=" ".join(forward_pass.head_token.modules) if forward_pass.head_token else "",
    )


def passage_bytes(pretrained: Pretrained, lengths: Lengths) -> int:
    """The size of the two files with hidden states between layers while examples of these lengths are streamed, else 0."""
    longest = int(np.sort(lengths)[-SHARD_ROWS:].sum())
    return 2 * 4 * pretrained.anatomy.width * longest if pretrained.stream else 0


def free_cache_bytes() -> int:
    """How many more bytes of disk the cache may take."""
    return max(0, free_bytes(nearest_existing(cache_folder())) - RESERVED_BYTES)


def nearest_existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists."""
    return path if path.exists() else nearest_existing(path.parent)
