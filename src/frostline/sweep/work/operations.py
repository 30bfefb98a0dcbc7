"""The operations of training steps, of scoring and of the forward pass over the frozen layers: the cost model of every forecast.

An operation is one multiplication or one addition. The forward pass of a layer takes two operations for each token and each
weight of its matrices, and four for each channel and each pair of tokens that attention compares. For a BERT layer this is
T (24 D^2 + 4 D S).

A trained matrix costs three times its forward pass: the forward pass, the gradient of its input and the gradient of its
weights. A frozen matrix above the lowest trained layer costs twice its forward pass, and below it once. Table lookups, norms
and activations are not counted.

Shapes: B examples in a batch, S padded length, T tokens, D width.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from torch import nn

from frostline.fast.last_layer import HeadTokenPart
from frostline.fast.optimizer import large_tables
from frostline.frozen.forward_pass import ForwardBatch, Lengths
from frostline.model.anatomy import Anatomy
from frostline.model.terms import HEAD, POOLER, layer_place


@dataclass(frozen=True)
class BatchTotals:
    """Sums over some batches. Means have this type too, so the numbers are floats."""

    count: float = 0.0  # batches
    examples: float = 0.0
    tokens: float = 0.0  # without padding
    padded_tokens: float = 0.0  # B S of each batch
    token_pairs: float = 0.0  # that attention compares: B S^2 of each batch

    def __add__(self, other: "BatchTotals") -> "BatchTotals":
        return BatchTotals(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: float) -> "BatchTotals":
        return BatchTotals(*(getattr(self, f.name) * times for f in fields(self)))

    @property
    def mean(self) -> "BatchTotals":
        """The mean batch."""
        return self * (1 / self.count) if self.count else self

    @property
    def padded(self) -> "BatchTotals":
        """The same batches if padding is computed like any other token."""
        return BatchTotals(self.count, self.examples, self.padded_tokens, self.padded_tokens, self.token_pairs)


def batch_totals(lengths: Lengths, size: int) -> BatchTotals:
    """The totals of examples of these ``lengths``, in this order, with ``size`` examples in a batch."""
    if not len(lengths):
        return BatchTotals()
    starts = np.arange(0, len(lengths), size)
    longest = np.maximum.reduceat(lengths, starts).astype(float)
    examples = np.diff([*starts, len(lengths)])
    return BatchTotals(
        count=len(starts),
        examples=len(lengths),
        tokens=float(lengths.sum()),
        padded_tokens=float(examples @ longest),
        token_pairs=float(examples @ (longest * longest)),
    )


def sorted_batch_totals(lengths: Lengths, size: int) -> BatchTotals:
    """The totals of batches of examples that are sorted by length, as in evaluation."""
    return batch_totals(np.sort(lengths), size)


def random_batch_totals(lengths: Lengths, size: int) -> BatchTotals:
    """The totals of batches of examples in random order, as in training. The order is always the same."""
    return batch_totals(np.random.default_rng(0).permutation(lengths), size)


def forward_totals(batch: ForwardBatch) -> BatchTotals:
    """The totals of a batch of the forward pass over the frozen layers, with the copies of examples that fill it up."""
    padded = batch.padded_lengths
    if batch.capacity:
        return BatchTotals(1, batch.examples, batch.capacity, float(padded.sum()), float((padded**2).sum()))
    length = int(padded[0])
    tokens = batch.examples * length
    return BatchTotals(1, batch.examples, tokens, tokens, tokens * length)


@dataclass(frozen=True)
class OperationCounter:
    """Counts operations from the sizes of a model's matrices.

    Attributes:
        anatomy: The model's layers.
        sizes: The number of weights in each matrix, by parameter name. Embedding tables are not multiplied, so they are left out.
        parameters: The number of weights in each parameter, by name.
        head_token: The part of the last layer that runs for one token of each example.
        large: Large embedding tables. A step updates only the few rows of them that it has read.
    """

    anatomy: Anatomy
    sizes: Mapping[str, int]
    parameters: Mapping[str, int]
    head_token: HeadTokenPart | None = None
    large: frozenset[str] = frozenset()

    @classmethod
    def of(cls, model: nn.Module, anatomy: Anatomy, head_token: HeadTokenPart | None = None) -> "OperationCounter":
        """The counter for ``model``."""
        tables = {f"{path}.weight" for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
        parameters = dict(model.named_parameters())
        sizes = {name: p.numel() for name, p in parameters.items() if p.dim() > 1 and name not in tables}
        large = frozenset(f"{path}.weight" for path in large_tables(model))
        return cls(anatomy, sizes, {name: p.numel() for name, p in parameters.items()}, head_token, large)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The number of weights in the matrices of each layer."""
        return tuple(self._weights(layer_place(n)) for n in range(self.anatomy.count))

    @cached_property
    def head(self) -> int:
        """The number of weights in the matrices of pooler and head."""
        return self._weights(POOLER) + self._weights(HEAD)

    def forward(self, batches: BatchTotals, start: int = 0, stop: int | None = None) -> float:
        """Operations of a forward pass from layer ``start`` to before layer ``stop``; None: to the logits."""
        head = 2.0 * self.head * batches.examples if stop is None else 0.0
        return head + sum(
            sum(self._layer(n, batches)) for n in range(start, self.anatomy.count if stop is None else stop)
        )

    def training(self, names: Set[str], batches: BatchTotals, cut: int | None) -> float:
        """Operations of training steps that train the parameters ``names``; layers below ``cut`` do not run."""
        depth = self.anatomy.depth(names)
        lowest = 0 if depth is None else self.anatomy.count - depth
        total = 6.0 * self.head * batches.examples
        for n in range(cut or 0, self.anatomy.count):
            linear, attention = self._layer(n, batches)
            if n < lowest:
                total += linear + attention
            else:
                share = self._weights(layer_place(n), names) / max(1, self.layers[n])
                total += linear * (2 + share) + 3 * attention
        return total

    def trained_parameters(self, names: Set[str]) -> int:
        """The number of weights in the parameters ``names``."""
        return sum(self.parameters[name] for name in names)

    def updated_parameters(self, names: Set[str]) -> int:
        """The number of weights that every training step updates: all but the large embedding tables."""
        return self.trained_parameters(names - self.large)

    @cached_property
    def _head_token_weights(self) -> int:
        """The number of weights of the last layer that are multiplied with one token of each example only."""
        last = f"{self.anatomy.path}.{self.anatomy.count - 1}"
        paths = [f"{last}.{path}." for path in self.head_token.modules] if self.head_token else []
        return sum(size for name, size in self.sizes.items() if any(name.startswith(path) for path in paths))

    def _weights(self, place: str, names: Set[str] | None = None) -> int:
        return sum(
            size
            for name, size in self.sizes.items()
            if self.anatomy.places[name] == place and (names is None or name in names)
        )

    def _layer(self, number: int, batches: BatchTotals) -> tuple[float, float]:
        """Operations of the matrices of one layer, and of its attention."""
        weights, width = self.layers[number], self.anatomy.width
        if self.head_token is None or number < self.anatomy.count - 1:
            return 2.0 * weights * batches.tokens, 4.0 * width * batches.token_pairs
        head_token = self._head_token_weights
        linear = 2.0 * ((weights - head_token) * batches.tokens + head_token * batches.examples)
        return linear, 4.0 * width * batches.tokens  # one token attends to all of its example
