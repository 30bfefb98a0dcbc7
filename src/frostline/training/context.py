"""What all runs of one worker share: the model, the encoded examples of all splits, and their cached hidden states."""

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from frostline.fast.last_layer import HeadTokenPart
from frostline.frozen.batches import Rows, tokens_per_batch
from frostline.frozen.cache.hidden_states import HiddenStates
from frostline.frozen.forward_pass import ForwardPass, embeddings_are_lookups
from frostline.frozen.selection import StateSelection
from frostline.model.anatomy import Anatomy
from frostline.model.device import Machine
from frostline.model.pretrained import Pretrained
from frostline.model.tokens import Tokens, parts_within
from frostline.training.problem import Problem
from frostline.training.specification import RunSpec


@dataclass
class RunContext:
    """The model, the data and the hidden states that the runs of one worker use one after the other.

    Attributes:
        pretrained: The model; each run starts from its pretrained values.
        machine: Device and precision.
        problem: Targets, loss and metrics.
        tokens: The encoded examples of the pool: every split, one after the other.
        splits: The rows of the pool that belong to each split.
        head_reads: Which tokens the head reads: ``first``, ``last`` or ``all``.
        packed: Whether batches are computed without padding.
        folds: The fold of each training row, where validation is all training rows and each run is scored on one fold.
        head_token: The part of the last layer that is computed for the head's token only; None computes it for all tokens.
        states: The cached hidden states; None until they are loaded.
        workers: How many runs share the cores, and so the wall-clock time.
        plain: Compute as transformers alone does: no scoring in chunks, a gradient for every row of an embedding table.
        forward_pass_seconds: Wall-clock seconds until the hidden states were loaded, including those that were cached before.
        stack_sizes: How many runs are trained as one stack, by :mod:`frostline.sweep.execution.stacks`; where no two can
            be, the reason.
    """

    pretrained: Pretrained
    machine: Machine
    problem: Problem
    tokens: Tokens
    splits: dict[str, Rows]
    head_reads: str
    packed: bool
    folds: Rows | None = None
    head_token: HeadTokenPart | None = None
    states: HiddenStates | None = None
    workers: int = 1
    plain: bool = False
    forward_pass_seconds: float = 0.0
    stack_sizes: dict[Hashable, tuple[int, str | None]] = field(default_factory=dict)

    def scoring_chunks(self, lengths: NDArray[np.int64], cut: int | None) -> list[slice]:
        """The chunks in which a batch is scored from ``cut`` on, so that its tokens fit into memory.

        The head alone needs little memory and scores a batch at once.

        Args:
            lengths: Tokens of the examples, ``[K, B]``.
            cut: The number of layers that do not run; None runs the whole model.
        """
        if self.plain or cut == self.pretrained.anatomy.count:
            return [slice(0, lengths.shape[1])]
        return list(parts_within(lengths, tokens_per_batch(self.machine.device, self.pretrained.anatomy) // 2))

    def computed_tokens(self, lengths: NDArray[np.int64]) -> int:
        """Tokens that are computed for one batch of examples of these ``lengths``, ``[B]``: with padding unless packed."""
        return int(lengths.sum()) if self.packed else len(lengths) * int(lengths.max())

    def largest_chunk(self, lengths: NDArray[np.int64], cut: int | None) -> int:
        """The most tokens that are computed together while one batch of these ``lengths``, ``[B]``, is scored."""
        return max(self.computed_tokens(lengths[chunk]) for chunk in self.scoring_chunks(lengths[None], cut))

    def cut(self, spec: RunSpec) -> int | None:
        """After how many layers the run starts from cached hidden states; None runs the whole model."""
        return None if self.states is None else starting_cut(self.states.selection, self.pretrained.anatomy, spec)

    def forward_pass(self, selection: StateSelection) -> ForwardPass:
        """The forward pass over the frozen layers that computes these hidden states."""
        anatomy = self.pretrained.anatomy
        head_token = None if anatomy.count in selection.pooled else self.head_token  # probes read vectors of all tokens
        packed = self.packed and embeddings_are_lookups(self.pretrained.model, anatomy)
        return ForwardPass(
            self.pretrained.model, anatomy, selection, self.head_reads, packed, self.machine.autocast, head_token
        )


def starting_cut(cached: StateSelection, anatomy: Anatomy, spec: RunSpec) -> int | None:
    """After how many layers a run starts from ``cached`` hidden states: at its own cut, or at the nearest one below it.

    None runs the whole model: embeddings are trained, dropout stays on in the frozen part, or no such cut is cached.
    """
    tuned = spec.to_train.depth(anatomy)
    if tuned is None or spec.frozen_dropout:
        return None
    cut = anatomy.count - tuned
    return cut if tuned == 0 and cached.head else max((c for c in cached.cuts if c <= cut), default=None)
