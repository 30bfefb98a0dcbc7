"""The experiment: model, examples and device of all runs, and what one worker has loaded and found out."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.examples import Examples
from frostline.data.kinds import TOKENS
from frostline.fast.last_layer import HeadTokenPart
from frostline.frozen.exactness import find_last_linear
from frostline.frozen.forward_pass import ForwardPass, Rows, StateSelection, embeddings_are_lookups, tokens_per_batch
from frostline.frozen.hidden_states import HiddenStates
from frostline.frozen.readers import DeviceCopies
from frostline.model.anatomy import Anatomy
from frostline.model.device import Machine
from frostline.model.pretrained import Pretrained
from frostline.model.terms import LAST, MEAN, OWN, OWN_HEAD, HeadKind
from frostline.model.tokens import Tokens, chunks_within
from frostline.training.probes import has_features
from frostline.training.problem import Problem
from frostline.training.run import Run


@dataclass(frozen=True)
class Batching:
    """How batches are computed, as the check of the cuts has found.

    Attributes:
        packed: Whether without padding.
        head_tokens: By head, the part of the last layer that runs for the head's token only; without one, all of it runs for all
            tokens.
    """

    packed: bool = False
    head_tokens: Mapping[HeadKind, HeadTokenPart | None] = field(default_factory=dict)


@dataclass
class Worker:
    """What one process has loaded and found out. It changes while runs are trained.

    Attributes:
        batching: How batches are computed; None until the cuts were found to be exact.
        states: The cached hidden states; None until they are loaded.
        copies: Copies of cached hidden states on a GPU.
        stack_sizes: For what is stacked alike: its first run, how many runs fit into a stack, and the reason if no two can be
            stacked (:mod:`frostline.sweeps.execution.stacks`).
        micro_batches: By the key of a stack: how many examples of each run are computed together in training, if memory ran out
            with more (:mod:`frostline.sweeps.execution.stacks`).
        scoring_tokens: By cut: how many tokens of each run are scored together, if memory ran out with more.
        at_a_time: How many runs train at the same time and share the cores.
        batched: Compute the runs of a stack by batched operations on a CPU, too, as on all other devices.
        as_trainer: Compute like transformers' Trainer, to time it: no scoring in chunks, and a gradient for every row of an
            embedding table.
        forward_pass_seconds: Wall-clock seconds of computing and loading the hidden states.
        means_apart: By row of the pool: the means of the texts of a pair, each read alone, ``[layers, 2, D]``.
        last_linears: By head: the linear module that it ends in; None if it ends otherwise.
    """

    batching: Batching | None = None
    states: HiddenStates | None = None
    copies: DeviceCopies = field(default_factory=DeviceCopies)
    stack_sizes: dict[Hashable, tuple[Run, int, str | None]] = field(default_factory=dict)
    micro_batches: dict[str, int] = field(default_factory=dict)
    scoring_tokens: dict[int | None, int] = field(default_factory=dict)
    at_a_time: int = 1
    batched: bool = False
    as_trainer: bool = False
    forward_pass_seconds: float = 0.0
    means_apart: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    last_linears: dict[HeadKind, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """Settings resolved to a model, examples and a device: what all runs share.

    Attributes:
        pretrained: The model with the head of its type; each run starts from its pretrained values.
        machine: Device and precision.
        problem: Targets, loss and metrics.
        tokens: The encoded examples of the pool. The pool is the concatenation of all splits.
        splits: The rows of each split in the pool.
        head_reads: Which tokens the head reads: ``first``, ``last`` or ``all``.
        folds: The fold of each training row; None without folds. With folds, each run is scored on the training rows of one
            fold.
        examples: The texts of each split, with ``labels``, the names of the classes: what runs need that are not trained in the
            loop.
        worker: What this process has loaded and found out.
    """

    pretrained: Pretrained
    machine: Machine
    problem: Problem
    tokens: Tokens
    splits: Mapping[str, Rows]
    head_reads: str
    folds: Rows | None = None
    examples: Mapping[str, Examples] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    worker: Worker = field(default_factory=Worker)

    def with_worker(self, **changes: Any) -> "Experiment":
        """The same for a worker of which some attributes differ. Both share all others."""
        return replace(self, worker=replace(self.worker, **changes))

    def for_run(self, spec: Run) -> "Experiment":
        """The same with the head that a run trains."""
        kind = head_of(spec, self.problem.task_type)
        if kind == self.pretrained.head:
            return self
        reads = LAST if kind.reads == LAST and not kind.lstm_width else "all"
        return replace(self, pretrained=self.pretrained.with_head(kind), head_reads=reads)

    @property
    def states(self) -> HiddenStates | None:
        """The cached hidden states; None until they are loaded."""
        return self.worker.states

    @property
    def packed(self) -> bool:
        """Whether batches are computed without padding."""
        return self.worker.batching is not None and self.worker.batching.packed

    @property
    def batched(self) -> bool:
        """Whether the runs of a stack are computed by batched operations (:mod:`frostline.model.stacking`), or one by one."""
        return self.worker.batched or self.machine.device.type != "cpu"

    @property
    def head_token(self) -> HeadTokenPart | None:
        """The part of the last layer that runs for the token of the head only; None: all of it runs for all tokens."""
        return self.worker.batching.head_tokens.get(self.pretrained.head) if self.worker.batching else None

    @property
    def last_linear(self) -> str | None:
        """The path of the linear module of the head whose outputs become the logits; None if there is none."""
        found, kind = self.worker.last_linears, self.pretrained.head
        if kind not in found:
            found[kind] = find_last_linear(self.pretrained.model, self.pretrained.anatomy)
        return found[kind]

    @property
    def one_token_cached(self) -> bool:
        """Whether the hidden state of the one token is cached that the head reads after the last layer."""
        return self.states is not None and self.states.selection.head and self.pretrained.head == OWN_HEAD

    def reads_one_token(self, cut: int | None) -> bool:
        """Whether a run from this cut reads the cached hidden state of one token of each example."""
        return cut == self.pretrained.anatomy.count and self.one_token_cached

    def examples_of(self, rows: Rows, split: str) -> Examples:
        """The texts of rows of a split, given as rows of the pool."""
        return self.examples[split].take(rows - self.splits[split][0])

    def micro_batch(self, spec: Run) -> int:
        """How many examples of a run are computed together in training. Their gradients are added up to those of a batch."""
        return self.worker.micro_batches.get(spec.stack_key, spec.per_device_train_batch_size)

    def scoring_chunks(self, lengths: NDArray[np.int64], cut: int | None) -> list[slice]:
        """Split a batch into chunks for scoring, so that the tokens of a chunk fit into memory.

        If only the head runs, the batch is not split, because the head needs little memory, unless memory ran out.

        Args:
            lengths: Tokens of the examples, ``[K, B]``.
            cut: The number of layers that do not run; None runs the whole model.
        """
        capacity = self.worker.scoring_tokens.get(cut)
        if capacity is None and (self.worker.as_trainer or cut == self.pretrained.anatomy.count):
            return [slice(0, lengths.shape[1])]
        most = tokens_per_batch(self.machine.device, self.pretrained.anatomy) // 2
        return list(chunks_within(lengths, most if capacity is None else capacity))

    def score_smaller_chunks(self, lengths: NDArray[np.int64], cut: int | None) -> None:
        """Let chunks have at most half the tokens of this one, ``[K, B]``, for which there was no memory."""
        half = lengths.shape[1] * int(lengths.max()) // 2
        self.worker.scoring_tokens[cut] = min(half, self.worker.scoring_tokens.get(cut, half))

    def computed_tokens(self, lengths: NDArray[np.int64]) -> int:
        """The number of computed tokens of a batch, with padding unless packed. ``lengths`` are its tokens, ``[B]``."""
        return int(lengths.sum()) if self.packed else len(lengths) * int(lengths.max())

    def largest_chunk(self, lengths: NDArray[np.int64], cut: int | None) -> int:
        """The number of computed tokens of the largest chunk of a batch. ``lengths`` are its tokens, ``[B]``."""
        return max(self.computed_tokens(lengths[chunk]) for chunk in self.scoring_chunks(lengths[None], cut))

    def cut(self, spec: Run) -> int | None:
        """The cut from which the run starts; None runs the whole model."""
        return None if self.states is None else starting_cut(self.states.selection, self.pretrained.anatomy, spec)

    def forward_pass(self, selection: StateSelection) -> ForwardPass:
        """The forward pass over the frozen layers that computes the selected hidden states."""
        anatomy = self.pretrained.anatomy
        all_tokens = anatomy.count in (*selection.pooled, *selection.cuts)  # of the last layer
        head_token = None if all_tokens else self.head_token
        packed = self.packed and embeddings_are_lookups(self.pretrained.model, anatomy)
        return ForwardPass(
            self.pretrained.model, anatomy, selection, self.head_reads, packed, self.machine.autocast, head_token
        )


def head_of(spec: Run, task_type: str) -> HeadKind:
    """The kind of head that a run trains. A BiLSTM reads each token for tags of words, and the mean of its outputs for a text."""
    kind = spec.way.head
    return replace(kind, reads=MEAN) if kind.lstm_width and kind.reads == OWN and task_type != TOKENS else kind


def starting_cut(cached: StateSelection, anatomy: Anatomy, spec: Run) -> int | None:
    """The cut from which a run starts: its own cut, or the nearest cached cut below it.

    None runs the whole model: the embeddings are trained, dropout is on in frozen layers, or no such cut is cached. No run in
    the loop starts from cached embeddings, which probes of words read. A run that reads frozen features starts after the last
    layer if they are cached.
    """
    if not spec.way.in_loop:
        cached_features = any(has_features(cached, anatomy.count, of_words=of_words) for of_words in (False, True))
        return anatomy.count if spec.way.estimator == "probe" and cached_features else None
    tuned = spec.depth(anatomy)
    if tuned is None or spec.frozen_dropout:
        return None
    cut = anatomy.count - max(tuned, spec.way.head.layers)
    one_token = tuned == 0 and cached.head and spec.way.head == OWN_HEAD
    return cut if one_token else max((c for c in cached.cuts if 0 < c <= cut), default=None)
