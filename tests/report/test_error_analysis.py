"""The confusion matrix and the largest errors, for each type of task."""

from typing import Any

import numpy as np

from frostline.data.examples import Examples
from frostline.data.tags import NO_WORD
from frostline.report.error_analysis import Errors, WrongExample, confusion_table, errors_of
from frostline.report.tables.table import ReportTable

TAGS = ("O", "B-person", "I-person", "B-place")
WORDS = np.array([[1, 2, 0], [0, 3, NO_WORD], [1, NO_WORD, NO_WORD]])


def errors(targets: Any, logits: Any, labels: tuple[str, ...], texts: str = "w x y z", **more: Any) -> Errors:
    words = tuple(texts.split()[: len(targets)]) if more.get("words") is None else more["words"]
    rows = np.arange(2, len(targets) + 2)
    examples = Examples(texts=words, pairs=more.get("pairs"), rows=rows, name="v", targets=np.array(targets))
    return errors_of(examples, np.array(logits, np.float32), labels, "the run")


def said(error: WrongExample) -> str:
    text = ", ".join(f"{before} {label}{after}" for before, label, after in error.parts)
    return f"{error.row} {error.text}: {text}, {error.size}".replace("\xa0", " ")


def counts(table: ReportTable) -> list[list[Any]]:
    return [list(row.values())[1:] for row in table.records()]


def logits_of(predictions: list[list[int]]) -> np.ndarray:
    """Logits of these tags; NaN for -1."""
    tags = np.array(predictions)
    return np.where((tags >= 0)[..., None], np.eye(4, dtype=np.float32)[tags], np.nan)


def test_a_merged_confusion_matrix_counts_every_example() -> None:
    draw = np.random.default_rng(1)
    targets, predictions = draw.integers(0, 30, 500), draw.integers(0, 30, 500)
    table = confusion_table(targets, predictions, [str(n) for n in range(30)])
    matrix, label = np.array(counts(table)), int(str(table.records()[0]["true"]))
    assert matrix.sum() == 500
    assert table.records()[-1]["true"] == "20 others" and "20 others are summed" in table.caption
    assert [row[n].shade[0] for n, (_, row) in enumerate(table.entries(), 1)] == [*["right"] * 10, ""]  # not all others
    assert matrix[0].sum() == (targets == label).sum()
    assert matrix[0, 0] == ((targets == label) & (predictions == label)).sum()


def test_the_most_confused_classes_are_shown() -> None:
    rare = np.repeat(np.arange(30), 10)
    confused = np.where(rare >= 20, 49 - rare, rare)  # only the last ten are confused with one another
    table = confusion_table(rare, confused, [str(n) for n in range(30)])
    assert [row["true"] for row in table.records()][:10] == [str(n) for n in range(20, 30)]
    small = confusion_table(np.array([0, 1, 1]), np.array([1, 1, 1]), ["a", "b"])
    assert counts(small) == [[0, 1], [0, 2]]
    assert [entry.shade for entry in small.entries()[1][1]] == [None, ("", 0.0), ("right", 1.0)]


def test_misclassified_examples_by_loss() -> None:
    logits = [[0.0, 1.0], [0.0, 5.0], [0.0, 3.0]]
    found = errors([0, 1, 0], logits, ("no", "yes"), pairs=("d", "e", "f"))
    assert found.summary == "2 of 3 validation examples are misclassified (the run)."
    assert list(map(said, found.worst)) == [
        "4 y: label no (4.7 %), predicted yes (95.3 %), loss 3.05",
        "2 w: label no (26.9 %), predicted yes (73.1 %), loss 1.31",
    ]
    assert [error.pair for error in found.worst] == ["f", "d"]


def test_largest_residuals_of_numbers() -> None:
    found = errors([1.0, 2.0, 3.0], [[1.5], [2.0], [0.0]], ())
    assert list(map(said, found.worst[:2])) == [
        "4 y: label 3, predicted 0, loss 9.00",
        "2 w: label 1, predicted 1.5, loss 0.25",
    ]
    assert found.scatter is not None and found.confusion is None and found.summary == ""


def test_texts_with_wrong_labels_say_what_is_missed_and_what_is_extra() -> None:
    targets = [[True, False], [False, False], [True, True], [False, True]]
    logits = np.array([[3.0, -2.0], [2.0, -1.0], [-4.0, 1.0], [-1.0, 1.0]])
    found = errors(targets, logits, ("price", "story"))
    assert "2 of 4 validation examples" in found.summary
    assert "1 label is missed and 1 predicted wrongly" in found.summary
    loss = np.log1p(np.exp(np.where(targets, -logits, logits))).mean(1)
    assert list(map(said, found.worst)) == [
        f"4 y: label price, label story, missed price (1.8 %), loss {loss[2]:.2f}",
        f"3 x: no label, wrongly predicted price (88.1 %), loss {loss[1]:.2f}",
    ]


def test_words_are_confused_by_type_and_worst_sentences_come_first() -> None:
    sentences = ("Anna\nLee\nsings", "in\nRome", "Ben")
    found = errors(WORDS, logits_of([[1, 1, 0], [1, 0, -1], [-1, -1, -1]]), TAGS, words=sentences)
    assert found.confusion is not None
    assert [row["true"] for row in found.confusion.records()] == ["O", "person", "place"]
    assert counts(found.confusion) == [[1, 1, 0], [0, 2, 0], [1, 0, 0]] and "3 of 5 words of 3" in found.summary
    assert list(map(said, found.worst)) == [
        "3 in Rome: in: O, predicted B-person, Rome: B-place, predicted O, 2 of 2 words are wrong",
        "2 Anna Lee sings: Lee: I-person, predicted B-person, 1 of 3 words are wrong",
    ]
    plain = errors(WORDS, logits_of([[1, 2, 0], [0, 3, -1], [1, -1, -1]]), ("a", "b", "c", "d"), words=sentences)
    assert plain.confusion is not None and np.trace(counts(plain.confusion)) == np.sum(counts(plain.confusion)) == 6
    assert plain.worst == []
