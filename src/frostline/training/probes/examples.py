"""What a probe is fitted and scored on: texts with a vector each, or the words of sentences.

Shapes: n rows, U texts or words, P vectors of each, D features, C classes, W words of the longest sentence.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from frostline.data.examples import Targets
from frostline.frozen.forward_pass import POOLED, ForwardBatch, ForwardPass, Rows
from frostline.frozen.hidden_states import SHARD_ROWS, HiddenStates, temporary_states
from frostline.model.streaming import stream_of
from frostline.model.tokens import LabelledTokens, Tokens, flat_positions
from frostline.statistics.predictions import Labelled
from frostline.training.probes.inputs import LAST_LAYERS

Vectors = Callable[[int], Any]  # from a layer to the vectors after it, [U, P, D]


@dataclass(frozen=True)
class ProbeExamples:
    """The rows of a split with their vectors.

    Attributes:
        split: The targets of the n rows, and the metric.
        vectors: From a layer to the vectors of the U texts or words after it, ``[U, P, D]``.
        words: The words of the rows; None for texts.
    """

    split: Labelled
    vectors: Vectors
    words: LabelledTokens | None

    @property
    def targets(self) -> Targets:
        """The target of each text or word, ``[U]``; for label sets ``[U, C]``."""
        if self.words is None:
            return self.split.targets
        return self.split.targets[self.words.example, self.words.word]

    def by_row(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values ``[U, C]`` as the predictions of rows: ``[n, C]``, or ``[n, W, C]`` with NaN where there is no word."""
        return values if self.words is None else words_by_row(values, self.words, self.split.targets.shape)

    def score(self, values: NDArray[Any]) -> float:
        """The metric of values ``[U, C]``."""
        return self.split.score(self.by_row(values), np.arange(len(self.split.targets)))


def words_by_row(values: NDArray[Any], words: LabelledTokens, shape: tuple[int, ...]) -> NDArray[Any]:
    """Values ``[U, C]`` of words, as predictions of rows of this shape ``(n, W)``: ``[n, W, C]``, NaN elsewhere."""
    found = np.full((*shape, values.shape[1]), np.nan, values.dtype)
    found[words.example, words.word] = values
    return found


def words_of_rows(tokens: Tokens, rows: Rows) -> LabelledTokens | None:
    """The first tokens of the words of these rows; None for texts."""
    return tokens.labelled(rows) if tokens.of_words else None


def cached_vectors(states: HiddenStates, rows: Rows, words: LabelledTokens | None) -> Vectors:
    """The vectors of these rows, or of their words, by layer. The most recently read layers stay in memory."""

    def read(layer: int) -> Any:
        if words is None:
            return states.pooled(layer, rows).numpy()
        return states.tokens(layer, rows)[0].numpy()[words.position][:, None]

    cached, lock = lru_cache(LAST_LAYERS)(read), Lock()

    def of(layer: int) -> Any:
        with lock:  # without it, several threads could read the same layer at the same time
            return cached(layer)

    return of


def computed_vectors(
    forward_pass: ForwardPass, tokens: Tokens, rows: Rows
) -> Iterator[tuple[NDArray[np.int64], Vectors]]:
    """The vectors of these rows, or of their words, from a forward pass over the rows.

    Yields:
        For each batch, the places of its texts or words among all, ``[u]``, and from a layer their vectors ``[u, P, D]``.
    """
    words = words_of_rows(tokens, rows)
    counts = np.ones(len(rows), np.int64) if words is None else np.bincount(words.example, minlength=len(rows))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    place = np.zeros(len(tokens), np.int64)
    place[rows] = np.arange(len(rows))
    batches = forward_pass.batches(tokens.lengths, rows)
    for batch, of_batch in zip(batches, _vectors_of_batches(forward_pass, tokens, batches), strict=True):
        yield flat_positions(offsets, place[batch.rows]), of_batch


def _vectors_of_batches(
    forward_pass: ForwardPass, tokens: Tokens, batches: Sequence[ForwardBatch]
) -> Iterator[Vectors]:
    """The vectors of each batch. If the layers are streamed, those of many batches are computed first, and wait on disk."""
    if stream_of(forward_pass.model) is None:
        for batch, states in zip(batches, forward_pass.hidden_states(tokens, batches), strict=True):
            yield partial(_batch_vectors, states, words_of_rows(tokens, batch.rows))
        return
    for some in _groups(batches):
        rows = np.concatenate([batch.rows for batch in some])
        with temporary_states(forward_pass, tokens, rows) as on_disk:
            for batch in some:
                yield cached_vectors(on_disk, batch.rows, words_of_rows(tokens, batch.rows))


def _groups(batches: Sequence[ForwardBatch]) -> Iterator[list[ForwardBatch]]:
    """Batches whose examples fit into one shard of hidden states."""
    group: list[ForwardBatch] = []
    for batch in batches:
        if group and sum(len(one.rows) for one in (*group, batch)) > SHARD_ROWS:
            yield group
            group = []
        group.append(batch)
    yield group


def _batch_vectors(states: Mapping[str, Tensor], words: LabelledTokens | None, layer: int) -> Any:
    """The vectors of a batch after a layer, from the result of a forward pass."""
    if words is None:
        vectors = states[f"pooled-{layer}"]
        return vectors.view(len(vectors), len(POOLED), -1).float().cpu().numpy()
    return states[f"tokens-{layer}"][words.position][:, None].float().cpu().numpy()
