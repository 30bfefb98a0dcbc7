"""Count entities and words, for the scores of token classification.

Entities are found and compared by seqeval in its strict mode for the BIO scheme (IOB2): one counts as correct if its type, its
first and its last word are those of the target. An entity whose first word has no token, such as a word of invisible characters,
cannot be predicted: it counts as missed. Words after the last one with a prediction were cut off, and do not count.

Shapes: n sentences, W words of the longest sentence, K types of entities.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.tags import BEGIN, OUTSIDE, are_entities, entity_types

Array = NDArray[Any]


def is_scored(targets: Array, predictions: Array) -> NDArray[np.bool_]:
    """``[n, W]``: whether there is a word, and a prediction for it. Words that were cut off or have no token have none."""
    return np.asarray((targets >= 0) & (predictions >= 0))


def entity_counts(targets: Array, predictions: Array, labels: Sequence[str]) -> NDArray[np.int64]:
    """``[n, K, 3]``: how many entities of each type are correct, predicted, and in the targets ``[n, W]``."""
    from seqeval.scheme import IOB2, Entities

    kinds, scored = entity_types(labels), is_scored(targets, predictions)
    numbers = [None if label == OUTSIDE else kinds.index(label[len(BEGIN) :]) for label in labels]
    # Numbers in place of the types, because seqeval strips dashes from types.
    tags = [OUTSIDE if k is None else f"{label[: len(BEGIN)]}{k}" for label, k in zip(labels, numbers, strict=True)]
    names = np.array(tags, dtype=object)

    def found(indices: Array) -> list[set[Any]]:
        sequences = [names[row[some]].tolist() for row, some in zip(indices, scored, strict=True)]
        return [set(of_sentence) for of_sentence in Entities(sequences, scheme=IOB2).entities]

    counts = np.zeros((len(targets), len(kinds), 3), np.int64)
    for n, (expected, predicted) in enumerate(zip(found(targets), found(predictions), strict=True)):
        for place, entities in enumerate((expected & predicted, predicted, expected)):
            for entity in entities:
                counts[n, int(entity.tag), place] += 1
    before_last = np.logical_or.accumulate(scored[:, ::-1], axis=1)[:, ::-1]
    without_token = (targets >= 0) & ~scored & before_last
    for tag, k in enumerate(numbers):
        if labels[tag].startswith(BEGIN):
            counts[:, k, 2] += (without_token & (targets == tag)).sum(1)
    return counts


def tag_tally(targets: Array, predictions: Array, labels: Sequence[str]) -> tuple[Array, ...]:
    """What the metrics of tags count in each sentence, ``[n]`` each.

    These are the correct, the predicted and the expected entities, the words with the correct tag, and all words. Plain tags
    have no entities.
    """
    scored = is_scored(targets, predictions)
    entities = np.zeros((3, len(targets)), np.int64)
    if are_entities(labels):
        entities = entity_counts(targets, predictions, labels).sum(1).T
    return (*entities, (scored & (targets == predictions)).sum(1), scored.sum(1))


def precision(correct: Array, predicted: Array, expected: Array, right: Array, words: Array) -> float:
    """The share of the predicted entities that are correct."""
    return _share(correct.sum(), predicted.sum())


def recall(correct: Array, predicted: Array, expected: Array, right: Array, words: Array) -> float:
    """The share of the expected entities that are found."""
    return _share(correct.sum(), expected.sum())


def f1(correct: Array, predicted: Array, expected: Array, right: Array, words: Array) -> float:
    """The harmonic mean of precision and recall."""
    return _share(2 * correct.sum(), predicted.sum() + expected.sum())


def accuracy(correct: Array, predicted: Array, expected: Array, right: Array, words: Array) -> float:
    """The share of the words with the correct tag."""
    return _share(right.sum(), words.sum())


def _share(part: int, whole: int) -> float:
    """``part / whole``; 0 where the whole is 0, as in seqeval."""
    return float(part / whole) if whole else 0.0
