"""What steps, scoring and the pass take in operations: the model of cost behind every forecast.

An operation is one multiplication or one addition. A layer's forward is two operations for each weight of its matrices
and token, and four for each channel and pair of tokens that attention compares: T(24 d^2 + 4 d S) in the shape of BERT.
What is trained takes three forwards (its own, the gradient of its input, that of its weights), what is frozen above
something trained two, what is frozen below it one. Lookups, norms and the like are not counted.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import nn

from frostline.fast.embedding import large_tables
from frostline.fast.last_layer import Narrow
from frostline.model.anatomy import HEAD, LAYER, POOLER, Anatomy

Lengths = NDArray[np.int64]


@dataclass(frozen=True)
class Batches:
    """Some batches, added up; means are numbers of batches as well, so nothing need be whole."""

    count: float = 0.0
    texts: float = 0.0
    tokens: float = 0.0  # real ones
    places: float = 0.0  # of the padded grids, B S each
    pairs: float = 0.0  # of tokens that attention compares, B S^2 each

    def __add__(self, other: "Batches") -> "Batches":
        return Batches(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: float) -> "Batches":
        return Batches(*(getattr(self, f.name) * times for f in fields(self)))

    @property
    def mean(self) -> "Batches":
        """One of them."""
        return self * (1 / self.count) if self.count else self

    @property
    def padded(self) -> "Batches":
        """The same where padding is computed like any token."""
        return Batches(self.count, self.texts, self.places, self.places, self.pairs)


def batched(lengths: Lengths, size: int) -> Batches:
    """Texts of these lengths, in this order, ``size`` at a time."""
    if not len(lengths):
        return Batches()
    starts = np.arange(0, len(lengths), size)
    longest = np.maximum.reduceat(lengths, starts).astype(float)
    texts = np.diff([*starts, len(lengths)])
    return Batches(
        len(starts), len(lengths), float(lengths.sum()), float(texts @ longest), float(texts @ (longest * longest))
    )


def by_length(lengths: Lengths, size: int) -> Batches:
    """Batches of texts of like length, as in evaluation."""
    return batched(np.sort(lengths), size)


def drawn(lengths: Lengths, size: int) -> Batches:
    """Batches drawn at random, as in training; always the same draw."""
    return batched(np.random.default_rng(0).permutation(lengths), size)


@dataclass(frozen=True)
class Matrices:
    """How many weights stand in the matrices of each layer, and of pooler and head; tables of embeddings are looked up,
    not multiplied."""

    anatomy: Anatomy
    sizes: Mapping[str, int]  # by parameter
    parameters: Mapping[str, int]  # of every kind, by parameter
    narrow: Narrow | None = None  # what of the last layer runs for one token a text
    large: frozenset[str] = frozenset()  # tables of which a step moves the rows that were read, which are few

    @classmethod
    def of(cls, model: nn.Module, anatomy: Anatomy, narrow: Narrow | None = None) -> "Matrices":
        tables = {f"{path}.weight" for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
        known = dict(model.named_parameters())
        sizes = {name: p.numel() for name, p in known.items() if p.dim() > 1 and name not in tables}
        large = frozenset(f"{path}.weight" for path in large_tables(model))
        return cls(anatomy, sizes, {name: p.numel() for name, p in known.items()}, narrow, large)

    @cached_property
    def layers(self) -> tuple[int, ...]:
        return tuple(self._weights(f"{LAYER}{n}") for n in range(self.anatomy.count))

    @cached_property
    def head(self) -> int:
        return self._weights(POOLER) + self._weights(HEAD)

    def _weights(self, place: str, names: Set[str] | None = None) -> int:
        return sum(
            size
            for name, size in self.sizes.items()
            if self.anatomy.places[name] == place and (names is None or name in names)
        )

    def forward(self, batches: Batches, start: int = 0, stop: int | None = None) -> float:
        """Operations of a forward through the layers from ``start`` to before ``stop`` (None: to the logits)."""
        head = 2.0 * self.head * batches.texts if stop is None else 0.0
        return head + sum(
            sum(self._layer(n, batches)) for n in range(start, self.anatomy.count if stop is None else stop)
        )

    def training(self, names: Set[str], batches: Batches, cut: int | None) -> float:
        """Operations of training steps of ``names``; layers below ``cut`` do not run."""
        depth = self.anatomy.depth(names)
        lowest = 0 if depth is None else self.anatomy.count - depth
        total = 6.0 * self.head * batches.texts
        for n in range(cut or 0, self.anatomy.count):
            linear, attention = self._layer(n, batches)
            if n < lowest:
                total += linear + attention
            else:
                share = self._weights(f"{LAYER}{n}", names) / max(1, self.layers[n])
                total += linear * (2 + share) + 3 * attention
        return total

    def trained(self, names: Set[str]) -> int:
        """Parameters, matrices or not."""
        return sum(self.parameters[name] for name in names)

    def moved(self, names: Set[str]) -> int:
        """Those that a step goes through: all but large tables."""
        return self.trained(names - self.large)

    @cached_property
    def _narrow(self) -> int:
        """Weights of the last layer that meet one token of each text only."""
        last = f"{self.anatomy.path}.{self.anatomy.count - 1}"
        paths = [f"{last}.{path}." for path in self.narrow.modules] if self.narrow else []
        return sum(size for name, size in self.sizes.items() if any(name.startswith(path) for path in paths))

    def _layer(self, number: int, batches: Batches) -> tuple[float, float]:
        weights, width = self.layers[number], self.anatomy.width
        if self.narrow is None or number < self.anatomy.count - 1:
            return 2.0 * weights * batches.tokens, 4.0 * width * batches.pairs
        linear = 2.0 * ((weights - self._narrow) * batches.tokens + self._narrow * batches.texts)
        return linear, 4.0 * width * batches.tokens  # of one token to all of its text
