"""Texts and labelled examples, as all other folders use them."""

import hashlib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Targets = npt.NDArray[np.int64] | npt.NDArray[np.float64] | npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts:
    """Texts, or pairs of texts, in the order of their source.

    Attributes:
        texts: The first text of each of the N examples.
        pairs: The second text of each example, or None for single texts.
        rows: The row number of each example in its source, ``[N]``.
        name: The name of the source in errors: a file or a description.
    """

    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    rows: Indices
    name: str

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, indices: Indices) -> Self:
        """The examples at these positions, in this order."""
        positions = indices.tolist()
        return replace(
            self,
            texts=tuple(self.texts[i] for i in positions),
            pairs=None if self.pairs is None else tuple(self.pairs[i] for i in positions),
            rows=self.rows[indices],
        )

    def keys(self) -> list[Hashable]:
        """What decides whether two examples are equal: the text, or the pair of texts."""
        return list(self.texts if self.pairs is None else zip(self.texts, self.pairs, strict=True))

    @property
    def repeats(self) -> int:
        """The number of examples whose text (or pair of texts) occurs earlier."""
        return len(self) - len(set(self.keys()))

    def first_equal(self) -> Indices:
        """The position of the first example with the same text (or pair of texts), ``[N]``."""
        first: dict[Hashable, int] = {}
        return np.array([first.setdefault(key, n) for n, key in enumerate(self.keys())], dtype=np.int64)

    def row_digests(self) -> list[bytes]:
        """A SHA-256 of each example, 32 bytes. Equal digests mean equal texts and pairs."""
        if self.pairs is None:
            return [hashlib.sha256(_framed(text)).digest() for text in self.texts]
        both = zip(self.texts, self.pairs, strict=True)
        return [hashlib.sha256(_framed(text) + _framed(pair)).digest() for text, pair in both]

    def digest(self) -> str:
        """A SHA-256 in hexadecimal of all texts and pairs in their order, without row numbers and names."""
        return _digest(self._parts())

    def _parts(self) -> Iterable[bytes]:
        yield b"texts" if self.pairs is None else b"pairs"
        yield from self.row_digests()


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples(Texts):
    """Texts with their targets: int64 class indices ``[N]``, or float64 numbers ``[N]`` for regression.

    For token classification, the texts are sentences (:mod:`frostline.data.sentences`) and the targets are the indices of
    the words' tags ``[N, W]`` (:mod:`frostline.data.tags`). For texts with any number of labels, the targets are bool ``[N, C]``
    (:mod:`frostline.data.label_sets`).
    """

    targets: Targets

    @property
    def of_words(self) -> bool:
        """Whether the examples are sentences of words with tags."""
        return self.targets.ndim > 1 and not self.has_label_sets

    @property
    def has_label_sets(self) -> bool:
        """Whether a text can have any number of labels."""
        return self.targets.dtype == np.bool_

    def with_label(self, label: int) -> npt.NDArray[np.bool_]:
        """Whether each example has the label with this index, or a word with this tag, ``[N]``."""
        if self.has_label_sets:
            return self.targets[:, label].astype(np.bool_)
        return np.asarray((self.targets.reshape(len(self), -1) == label).any(1))

    def take(self, indices: Indices) -> Self:
        return replace(super().take(indices), targets=self.targets[indices])

    def _parts(self) -> Iterable[bytes]:
        yield from super()._parts()
        targets = self.targets.astype(self.targets.dtype.newbyteorder("<"))
        yield targets.dtype.str.encode()
        yield targets.tobytes()


def _framed(text: str) -> bytes:
    """The length of a text and its bytes. With the length, different pairs of texts give different bytes."""
    content = text.encode()
    return len(content).to_bytes(8, "little") + content


def _digest(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()
