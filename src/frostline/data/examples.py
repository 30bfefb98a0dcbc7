"""Texts, labelled examples and the weights of their classes, as all other folders use them."""

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from frostline import FrostlineError
from frostline.data.labels import whole
from frostline.data.wording import did_you_mean, listed, quoted, visible

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
        groups: What each example has in common with others, such as an author; empty for nothing. None: nothing is known.
    """

    texts: tuple[str, ...]
    pairs: tuple[str, ...] | None
    rows: Indices
    name: str
    groups: tuple[str, ...] | None = None

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
            groups=None if self.groups is None else tuple(self.groups[i] for i in positions),
        )

    def keys(self) -> list[Hashable]:
        """What decides whether two examples are equal: the text, or the pair of texts."""
        return list(self.texts if self.pairs is None else zip(self.texts, self.pairs, strict=True))

    def read_alike(self) -> list[Hashable]:
        """What decides whether two examples read alike: the text without case and runs of white space, or both of a pair.

        Many models see no difference between such texts, so that one of them in train gives the other away. So does a pair in
        the other order, for most tasks. ``7`` is ``7.0``: pandas stores a column of numbers so in one table, and not in another.
        """
        parts = [part for part in (self.texts, self.pairs) if part is not None]
        plain = ([whole(" ".join(text.casefold().split())) for text in part] for part in parts)
        return [tuple(sorted(one)) for one in zip(*plain, strict=True)]

    @property
    def repeats(self) -> int:
        """The number of examples whose text (or pair of texts) reads like an earlier one."""
        return len(self) - len(set(self.read_alike()))

    def first_alike(self) -> Indices:
        """The position of the first example whose text (or pair of texts) reads alike, ``[N]``."""
        first: dict[Hashable, int] = {}
        return np.array([first.setdefault(key, n) for n, key in enumerate(self.read_alike())], dtype=np.int64)

    def seen_groups(self) -> list[str] | None:
        """The group of each example as readers see it: ``Anna`` and ``anna `` are one, and so are ``7`` and ``7.0``.

        Empty for none; None: nothing is known.
        """
        return None if self.groups is None else [whole(visible(group)) for group in self.groups]

    def together(self) -> Indices:
        """The position of the first example that is in the same split or fold, ``[N]``.

        Examples that read alike are together, and those of a group, and all that are linked by others.
        """
        alike, first, groups = self.first_alike(), dict[str, int](), self.seen_groups()
        if groups is None:
            return alike
        grouped = np.array([first.setdefault(group, n) if group else n for n, group in enumerate(groups)], np.int64)
        every = np.arange(len(self))
        links = coo_array(
            (np.ones(2 * len(self)), (np.tile(every, 2), np.append(alike, grouped))), shape=(len(self),) * 2
        )
        _, part = connected_components(links, directed=False)
        _, firsts, place = np.unique(part, return_index=True, return_inverse=True)
        return firsts[place]

    def row_digests(self) -> list[bytes]:
        """A SHA-256 of each example, 32 bytes. Equal digests mean equal texts and pairs."""
        if self.pairs is None:
            return [hashlib.sha256(_framed(text)).digest() for text in self.texts]
        both = zip(self.texts, self.pairs, strict=True)
        return [hashlib.sha256(_framed(text) + _framed(pair)).digest() for text, pair in both]

    def digest(self) -> str:
        """A SHA-256 in hexadecimal of all texts, pairs and groups in their order, without row numbers and names."""
        return _digest(self._parts())

    def _parts(self) -> Iterable[bytes]:
        yield b"texts" if self.pairs is None else b"pairs"
        yield from self.row_digests()
        if self.groups is not None:
            yield b"groups"
            yield from map(str.encode, self.groups)


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples(Texts):
    """Texts with their targets: int64 class indices ``[N]``, or float64 numbers ``[N]`` for regression.

    For token classification, the texts are sentences (:mod:`frostline.data.tags`) and the targets are the indices of
    the words' tags ``[N, W]`` (:mod:`frostline.data.tags`). For texts with any number of labels, the targets are bool ``[N, C]``
    (:mod:`frostline.data.labels`).
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

    def with_more(self, other: Self) -> Self:
        """These examples, then those of another split."""
        return replace(
            self,
            texts=self.texts + other.texts,
            pairs=None if self.pairs is None else self.pairs + (other.pairs or ()),
            rows=np.concatenate([self.rows, other.rows]),
            groups=None if self.groups is None else self.groups + (other.groups or ()),
            targets=np.concatenate([self.targets, other.targets]),
        )

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


def class_weights(targets: Targets, spec: str | Mapping[str, float], labels: Sequence[str]) -> npt.NDArray[np.float64]:
    """The weight of each label, ``[len(labels)]``.

    Args:
        targets: Class indices of the training rows, ``[N]``, or whether each has each label, bool ``[N, C]``.
        spec: "none": every weight is 1. "balanced": rows / (classes x rows of the class), as in scikit-learn, counting only the
            classes in ``targets``; a label without rows gets 1. For label sets, it is rows without the label / rows with it.
            Both then have the same weight in the loss. Or a weight for every label.
        labels: The names of the classes in the order of their indices.
    """
    weights = np.ones(len(labels))
    if not isinstance(spec, str):
        weights[:] = [spec[label] for label in labels]
    elif spec == "balanced" and targets.dtype == np.bool_:
        rows = targets.sum(0)
        np.divide(len(targets) - rows, rows, out=weights, where=(rows > 0) & (rows < len(targets)))
    elif spec == "balanced":
        from sklearn.utils.class_weight import compute_class_weight

        present = np.unique(targets)
        weights[present] = compute_class_weight("balanced", classes=present, y=targets)
    return weights


def check_class_weights(spec: Mapping[str, float], labels: Sequence[str]) -> None:
    """Raise a FrostlineError unless every label has a weight of at least 0."""
    unknown, missing = [one for one in spec if one not in labels], [one for one in labels if one not in spec]
    if unknown:
        hint = did_you_mean(str(unknown[0]), labels)
        raise FrostlineError(
            f"Class weights are given for {listed(unknown)}{hint}; the labels are {listed(labels)}: name these."
        )
    if missing:
        raise FrostlineError(f"Class weights do not include {listed(missing)}; give a weight for each label.")
    wrong = [one for one, weight in spec.items() if not (np.isfinite(weight) and weight >= 0)]
    if wrong or not any(spec.values()):
        one = wrong[0] if wrong else next(iter(spec))
        raise FrostlineError(
            f"The class weight of {quoted(one)} is {spec[one]}; give numbers of at least 0, not all of them 0."
        )
