"""Linear probes on hidden states of frozen layers: their features, the fit after every layer, the choice of the best one.

Probes of pairs read both texts together, as the model is trained, or each text alone, as sentence encoders are (``apart``): the
product and the distance of their means (Conneau et al. 2017). Only the last layers are read like this.

Shapes: U texts or words, P vectors of each (first, mean and last token; of a word, its first token), D width, C outputs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from frostline.data.examples import Targets, Texts
from frostline.frozen.exactness import packed_pass_is_exact
from frostline.frozen.forward_pass import POOLED, ForwardBatch, ForwardPass, Rows, StateSelection
from frostline.frozen.hidden_states import SHARD_ROWS, HiddenStates, computed_states, scratch_folder
from frostline.model.device import Machine
from frostline.model.pretrained import Pretrained
from frostline.model.streaming import stream_of
from frostline.model.tokens import LabelledTokens, Tokens, encode, flat_positions, suited
from frostline.statistics.predictions import Labelled
from frostline.training.linear_models import FITS, Features, LinearModel
from frostline.training.result import ProbeInput

LAST_LAYERS = 4  # one probe reads this many of the last layers together
WORD = "word"  # the vector of a word: its first token
APART = "apart"  # the vector of a pair of texts that are read one by one
MAX_THREADS = 4  # probes fitted at the same time, because each needs memory for all rows

Vectors = Callable[[int], Any]  # from a layer to the vectors after it, [U, P, D]


def features_of(inputs: ProbeInput, vectors: Vectors) -> Features:
    """The features ``[U, D * layers]`` that a probe reads."""
    position = POOLED.index(inputs.vector) if inputs.vector in POOLED else 0
    return np.concatenate([vectors(layer)[:, position] for layer in inputs.layers], 1)


def last_layers(layers: int) -> tuple[int, ...]:
    """The last layers of a model with this many."""
    return tuple(range(max(1, layers - LAST_LAYERS + 1), layers + 1))


def features_after(layers: Sequence[int], *, of_words: bool) -> StateSelection:
    """The hidden states that probes read after these layers: pooled vectors of texts, or all tokens of sentences."""
    return StateSelection(tuple(layers) if of_words else (), head=False, pooled=() if of_words else tuple(layers))


def has_features(selection: StateSelection, layers: int, *, of_words: bool) -> bool:
    """Whether these hidden states are enough for probes after each of a model's ``layers`` and after the embeddings."""
    return set(range(layers + 1)) <= set(selection.cuts if of_words else selection.pooled)


def probe_forward_pass(pretrained: Pretrained, machine: Machine, selection: StateSelection) -> ForwardPass:
    """The forward pass that computes vectors for probes outside of a sweep."""
    model, anatomy = pretrained.model, pretrained.anatomy
    return ForwardPass(model, anatomy, selection, "", packed_pass_is_exact(model, anatomy), machine.autocast)


@dataclass(frozen=True)
class ProbeExamples:
    """The rows of a split with their vectors.

    Attributes:
        split: The targets of the n rows, and the metric.
        vectors: From a layer to the vectors of the U texts or words after it, ``[U, P, D]``.
        words: The words of the rows; None for texts.
        apart: From one of the last layers to the vectors of pairs whose texts are read alone, ``[U, 1, 2 D]``; None for others.
    """

    split: Labelled
    vectors: Vectors
    words: LabelledTokens | None
    apart: Vectors | None = None

    def features(self, inputs: ProbeInput) -> Features:
        """The features ``[U, D * layers]`` that a probe reads, or ``[U, 2 D * layers]`` of texts that are read alone."""
        vectors = self.apart if inputs.vector == APART else self.vectors
        assert vectors is not None, "no pairs"
        return features_of(inputs, vectors)

    @property
    def targets(self) -> Targets:
        """The target of each text or word, ``[U]``; for label sets ``[U, C]``."""
        if self.words is None:
            return self.split.targets
        return self.split.targets[self.words.example, self.words.word]

    @property
    def together(self) -> NDArray[np.int64]:
        """A number for each text or word, ``[U]``: the same for texts that belong together, and for all of their words."""
        texts = self.split.clusters
        return texts if self.words is None else texts[self.words.example]

    def by_row(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values ``[U, C]`` as the predictions of rows: ``[n, C]``, or ``[n, W, C]`` with NaN where there is no word."""
        if self.words is None:
            return values
        found = np.full((*self.split.targets.shape, values.shape[1]), np.nan, values.dtype)
        found[self.words.example, self.words.word] = values
        return found

    def score(self, values: NDArray[Any]) -> float:
        """The metric of values ``[U, C]``."""
        return self.split.score(self.by_row(values), np.arange(len(self.split.targets)))


def words_of_rows(tokens: Tokens, rows: Rows) -> LabelledTokens | None:
    """The first tokens of the words of these rows; None for texts."""
    return tokens.labelled(rows) if tokens.of_words else None


def cached_vectors(states: HiddenStates, rows: Rows, words: LabelledTokens | None) -> Vectors:
    """The vectors of these rows, or of their words, by layer. The most recently read layers stay in memory."""

    def read(layer: int) -> Any:
        if words is None:
            return states.pooled(layer, rows).numpy()
        return states.tokens(layer, rows)[0].numpy()[words.position][:, None]

    return read_once(read, LAST_LAYERS)


def read_once(read: Callable[..., Any], latest: int) -> Callable[..., Any]:
    """``read``, whose latest results stay in memory. Several threads, which fit probes, never read the same at the same time."""
    cached, lock = lru_cache(latest)(read), Lock()

    def of(*arguments: Any) -> Any:
        with lock:
            return cached(*arguments)

    return of


def read_computed(
    pretrained: Pretrained,
    machine: Machine,
    tokens: Tokens,
    rows: Rows,
    layers: Sequence[int],
    read: Callable[[Vectors], NDArray[Any]],
) -> NDArray[Any]:
    """What ``read`` makes of the vectors of these rows, or of their words, after these layers, ``[U, ...]`` in their order.

    A forward pass over the rows computes the vectors, and ``read`` is called for each batch.
    """
    words = words_of_rows(tokens, rows)
    counts = np.ones(len(rows), np.int64) if words is None else np.bincount(words.example, minlength=len(rows))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    place = np.zeros(len(tokens), np.int64)
    place[rows] = np.arange(len(rows))
    forward_pass = probe_forward_pass(pretrained, machine, features_after(layers, of_words=tokens.of_words))
    batches = forward_pass.batches(tokens.lengths, rows)
    found = [read(vectors) for vectors in _vectors_of_batches(forward_pass, tokens, batches)]
    places = np.concatenate([flat_positions(offsets, place[batch.rows]) for batch in batches])
    return np.concatenate(found)[np.argsort(places)]


def means_apart(
    pretrained: Pretrained, machine: Machine, texts: Texts, layers: Sequence[int], max_length: int
) -> NDArray[np.float32]:
    """The mean of each text of these pairs after these layers, with length 1, ``[U, layers, 2, D]``."""

    def means(vectors: Vectors) -> NDArray[Any]:
        return np.stack([vectors(layer)[:, POOLED.index("mean")] for layer in layers], 1)

    sides = []
    for column in (texts.texts, texts.pairs or ()):
        tokens = suited(encode(pretrained.tokenizer, column, None, max_length), pretrained.model, pretrained.tokenizer)
        found = read_computed(pretrained, machine, tokens, np.arange(len(tokens)), layers, means)
        sides.append(found / np.maximum(np.linalg.norm(found, axis=-1, keepdims=True), 1e-12))
    return np.stack(sides, 2).astype(np.float32)


def vectors_apart(means: NDArray[np.float32], layers: Sequence[int]) -> Vectors:
    """From a layer to the products and distances of the two means, ``[U, 1, 2 D]``; the means are ``[U, layers, 2, D]``."""

    def of(layer: int) -> NDArray[np.float32]:
        first, second = np.moveaxis(means[:, layers.index(layer)], 1, 0)
        return np.concatenate([first * second, np.abs(first - second)], 1)[:, None]

    return of


def _vectors_of_batches(
    forward_pass: ForwardPass, tokens: Tokens, batches: Sequence[ForwardBatch]
) -> Iterator[Vectors]:
    """The vectors of each batch. If the layers are streamed, those of many batches are computed first, and wait on disk."""
    if stream_of(forward_pass.model) is None:
        for batch, (states, _) in zip(batches, forward_pass.hidden_states(tokens, batches), strict=True):
            yield partial(_batch_vectors, states, words_of_rows(tokens, batch.rows))
        return
    shard = np.cumsum([len(batch.rows) for batch in batches]) // SHARD_ROWS
    for number in range(shard[-1] + 1):
        some = [batch.rows for batch, own in zip(batches, shard, strict=True) if own == number]
        with scratch_folder() as folder:
            on_disk = computed_states(folder, forward_pass, tokens, np.concatenate(some))
            for rows in some:
                yield cached_vectors(on_disk, rows, words_of_rows(tokens, rows))


def _batch_vectors(states: Mapping[str, Tensor], words: LabelledTokens | None, layer: int) -> Any:
    """The vectors of a batch after a layer, from the result of a forward pass."""
    if words is None:
        vectors = states[f"pooled-{layer}"]
        return vectors.view(len(vectors), len(POOLED), -1).float().cpu().numpy()
    return states[f"tokens-{layer}"][words.position][:, None].float().cpu().numpy()


@dataclass(frozen=True)
class FittedProbe:
    """A fitted probe and its score on training rows.

    Attributes:
        input: The features of the probe.
        model: The fitted model.
        penalty: The chosen penalty, per training row.
        held_out: The cross-validated score on the training rows; NaN if it is undefined.
    """

    input: ProbeInput
    model: LinearModel
    penalty: float
    held_out: float

    def logits(self, examples: ProbeExamples) -> NDArray[np.float64]:
        """Calibrated logits ``[U, C]``, or numbers, of these texts or words."""
        return self.model.logits(examples.features(self.input))


def fit_probe(inputs: ProbeInput, train: ProbeExamples, kind: str = "ridge") -> FittedProbe:
    """Fit one probe on training rows. ``kind`` is ``ridge`` or ``logistic``."""
    features = train.features(inputs)
    model, penalty, held_out = FITS[kind](features, train.targets, len(train.split.labels), train.together)
    # If all examples have the same features, holding out a row only makes its class rarer: the score is undefined.
    return FittedProbe(inputs, model, penalty, train.score(held_out) if np.ptp(features, 0).any() else np.nan)


def fit_probes(train: ProbeExamples, layers: int, kind: str = "ridge") -> list[FittedProbe]:
    """Probes after every one of the model's ``layers``, and one on the last ones together, with the best vector of a layer."""
    fit = partial(fit_probe, train=train, kind=kind)
    cores = torch.get_num_threads()
    threads = min(MAX_THREADS, cores)
    vectors = POOLED if train.words is None else (WORD,)
    last = last_layers(layers)
    single = [ProbeInput(layers=(n,), vector=vector) for n in range(layers + 1) for vector in vectors]
    single += [ProbeInput(layers=(n,), vector=APART) for n in last if train.apart is not None]
    with threadpool_limits(cores // threads, "blas"), ThreadPoolExecutor(threads) as pool:
        probes = list(pool.map(fit, single))
    if len(last) > 1:  # it has the most features and takes longest
        probes.append(fit(ProbeInput(layers=last, vector=best_probe(probes).input.vector)))
    return probes


def best_probe(probes: Sequence[FittedProbe]) -> FittedProbe:
    """The probe with the best score on held-out training rows; of equal scores, that with fewer layers below or in it."""

    def rank(probe: FittedProbe) -> tuple[float, int, int]:
        score = -np.inf if np.isnan(probe.held_out) else probe.held_out
        return score, -probe.input.layers[-1], -len(probe.input.layers)

    return max(probes, key=rank)
