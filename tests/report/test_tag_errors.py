"""The errors of a model that predicts tags: confusion by type, and sentences with wrong words."""

import numpy as np

from frostline.data.examples import Examples
from frostline.data.tags import NO_WORD
from frostline.report.tag_errors import tag_confusion, worst_sentences, wrong_words

LABELS = ("O", "B-person", "I-person", "B-place")
EXAMPLES = Examples(
    texts=("Anna\nLee\nsings", "in\nRome", "Ben"),
    pairs=None,
    rows=np.array([4, 9, 12]),
    name="t",
    targets=np.array([[1, 2, 0], [0, 3, NO_WORD], [1, NO_WORD, NO_WORD]]),
)


def logits_of(predictions: list[list[int]]) -> np.ndarray:
    """Logits of these tags; NaN for -1."""
    tags = np.array(predictions)
    return np.where((tags >= 0)[..., None], np.eye(4, dtype=np.float32)[tags], np.nan)


def test_words_are_confused_by_type_and_worst_sentences_come_first() -> None:
    logits = logits_of([[1, 1, 0], [1, 0, -1], [-1, -1, -1]])
    matrix = tag_confusion(EXAMPLES, logits, LABELS)
    assert matrix.labels == ("O", "person", "place") and matrix.counts.tolist() == [[1, 1, 0], [0, 2, 0], [1, 0, 0]]
    assert wrong_words(EXAMPLES, logits) == (3, 5)
    first, second = worst_sentences(EXAMPLES, logits, LABELS)
    assert (first.row, first.text, first.words) == (9, "in Rome", 2) and second.row == 4
    assert [(one.word, one.tag, one.predicted) for one in first.wrong] == [
        ("in", "O", "B-person"),
        ("Rome", "B-place", "O"),
    ]
    assert [one.predicted for one in second.wrong] == ["B-person"]


def test_plain_tags_are_their_own_types() -> None:
    matrix = tag_confusion(EXAMPLES, logits_of([[1, 2, 0], [0, 3, -1], [1, -1, -1]]), ("a", "b", "c", "d"))
    assert matrix.labels == ("a", "b", "c", "d") and np.diag(matrix.counts).sum() == matrix.counts.sum() == 6
