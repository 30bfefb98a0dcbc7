"""The errors of a recommended model that predicts tags: which types of entity it confuses, and the worst sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.data.examples import Examples
from frostline.data.kinds import TOKENS
from frostline.data.tags import OUTSIDE, are_entities, entity_type, entity_types, words_of
from frostline.report.error_analysis import Confusion, confusion
from frostline.statistics.metrics import predict
from frostline.statistics.tags import is_scored

MAX_SENTENCES = 10


@dataclass(frozen=True)
class WrongWord:
    """A word with another tag than predicted."""

    word: str
    tag: str
    predicted: str


@dataclass(frozen=True)
class WrongSentence:
    """A sentence with its wrong words, in order."""

    row: int
    text: str
    words: int
    wrong: Sequence[WrongWord]


def tag_confusion(examples: Examples, logits: NDArray[np.float32], labels: Sequence[str]) -> Confusion:
    """The confusion matrix of words by type of entity, ``O`` first; of plain tags by tag.

    Args:
        examples: Sentences.
        logits: ``[n, W, C]``.
        labels: The C tags.
    """
    predicted = predict(logits, TOKENS)
    scored = is_scored(examples.targets, predicted)
    kinds = [OUTSIDE, *entity_types(labels)] if are_entities(labels) else list(labels)
    place = np.array([kinds.index((entity_type(tag) or OUTSIDE) if are_entities(labels) else tag) for tag in labels])
    return confusion(place[examples.targets[scored]], place[predicted[scored]], kinds)


def wrong_words(examples: Examples, logits: NDArray[np.float32]) -> tuple[int, int]:
    """The number of words with a wrong tag, and of all scored words."""
    predicted = predict(logits, TOKENS)
    scored = is_scored(examples.targets, predicted)
    return int((scored & (examples.targets != predicted)).sum()), int(scored.sum())


def worst_sentences(examples: Examples, logits: NDArray[np.float32], labels: Sequence[str]) -> list[WrongSentence]:
    """The sentences with the most wrong words."""
    predicted = predict(logits, TOKENS)
    wrong = is_scored(examples.targets, predicted) & (examples.targets != predicted)
    order: Any = np.argsort(-wrong.sum(1), kind="stable")
    return [
        _sentence(examples, n, np.flatnonzero(wrong[n]).tolist(), predicted[n], labels)
        for n in order[:MAX_SENTENCES].tolist()
        if wrong[n].any()
    ]


def _sentence(
    examples: Examples, n: int, wrong: Sequence[int], predicted: NDArray[np.int64], labels: Sequence[str]
) -> WrongSentence:
    words = words_of(examples.texts[n])
    found = [WrongWord(words[w], labels[examples.targets[n, w]], labels[predicted[w]]) for w in wrong]
    return WrongSentence(int(examples.rows[n]), " ".join(words), len(words), found)
