"""Scores of tags are those of seqeval. Intervals resample sentences."""

import numpy as np
import pytest
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.scheme import IOB2

from frostline.data.examples import Examples
from frostline.data.kinds import TOKENS
from frostline.data.tags import NO_WORD, joined
from frostline.statistics.class_outputs import intervals_by_class
from frostline.statistics.metrics import chance, entity_counts, is_constant, predict, score, scored_rows
from frostline.statistics.predictions import Labelled, RunPredictions

LABELS = ("O", "B-place", "I-place", "B-person", "I-person")
REFERENCE = {"entity_f1": f1_score, "entity_precision": precision_score, "entity_recall": recall_score}


def drawn(sentences: int = 60, words: int = 9, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Targets and logits of sentences of different length, half of the predictions correct."""
    draw = np.random.default_rng(seed)
    targets = draw.integers(0, len(LABELS), (sentences, words))
    logits = draw.normal(size=(sentences, words, len(LABELS)))
    right = draw.random((sentences, words)) < 0.5
    logits[right] += 9 * np.eye(len(LABELS))[targets[right]]
    outside = np.arange(words) >= draw.integers(1, words + 1, sentences)[:, None]
    targets[outside], logits[outside] = NO_WORD, np.nan
    return targets, logits


def tags(indices: np.ndarray) -> list[list[str]]:
    return [[LABELS[tag] for tag in row if tag >= 0] for row in indices]


def test_scores_are_those_of_seqeval() -> None:
    targets, logits = drawn()
    scores, predictions = score(targets, logits, TOKENS, LABELS), predict(logits, TOKENS)
    for name, function in REFERENCE.items():
        expected = function(tags(targets), tags(predictions), mode="strict", scheme=IOB2)
        assert scores[name] == pytest.approx(expected, abs=1e-12) and 0.1 < expected < 0.9
    words = targets >= 0
    assert scores["token_accuracy"] == (targets == predictions)[words].mean()
    by_type = classification_report(tags(targets), tags(predictions), mode="strict", scheme=IOB2, output_dict=True)
    correct, predicted, expected = entity_counts(targets, predictions, LABELS).sum(0).T
    assert correct / expected == pytest.approx([by_type[kind]["recall"] for kind in ("place", "person")])
    assert correct / predicted == pytest.approx([by_type[kind]["precision"] for kind in ("place", "person")])
    assert set(score(targets, logits, TOKENS, "ABCDE")) == {"token_accuracy"}  # of tags that are no entities


def test_words_without_logits_are_not_scored() -> None:
    targets, logits = drawn()
    logits[:, 4:] = np.nan
    assert score(targets, logits, TOKENS, LABELS) == score(targets[:, :4], logits[:, :4], TOKENS, LABELS)
    logits[7] = np.nan
    assert np.flatnonzero(~scored_rows(logits)).tolist() == [7]


@pytest.mark.parametrize("kinds", [("per-", "-org-"), ("-", "--"), ("x", "-x"), ("0", "-")])
def test_dashes_in_the_names_of_types_change_no_score(kinds: tuple[str, str]) -> None:
    targets, logits = drawn()
    named = ("O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI"))
    assert score(targets, logits, TOKENS, named) == score(targets, logits, TOKENS, LABELS)
    predictions = predict(logits, TOKENS)
    assert np.array_equal(entity_counts(targets, predictions, named), entity_counts(targets, predictions, LABELS))


def test_an_entity_whose_first_word_has_no_token_is_missed() -> None:
    """The same as an entity that begins at another word than predicted. A later word without a token changes nothing."""
    place, inside, person = 1, 2, 3
    targets = np.array([[place, inside, 0, person, NO_WORD]] * 4)
    predictions = targets.copy()
    predictions[0, 0] = -1  # no token: the first word of an entity of two, whose second word is right
    predictions[1, 1] = -1  # its second word
    predictions[2, 3] = -1  # cut off: no word after it has a prediction
    predictions[3] = -1  # the whole sentence is not scored
    correct, predicted, expected = entity_counts(targets, predictions, LABELS).transpose(2, 0, 1).tolist()
    assert correct == predicted == [[0, 1], [1, 1], [1, 0], [0, 0]]
    assert expected == [[1, 1], [1, 1], [1, 0], [0, 0]]
    alone = np.array([[place, 0]]), np.array([[-1, 0]])
    assert entity_counts(*alone, LABELS).tolist() == [[[0, 0, 1], [0, 0, 0]]]


def test_the_baseline_is_the_best_constant_tag() -> None:
    targets, _ = drawn()
    words = targets[targets >= 0]
    assert chance(targets, "token_accuracy", 5, LABELS) == np.bincount(words).max() / len(words)
    assert chance(np.array([[0, 0, 1], [0, 0, NO_WORD]]), "entity_f1", 5, LABELS) == pytest.approx(2 / 6)
    logits = np.where(targets[..., None] >= 0, np.eye(5)[2], np.nan)
    assert is_constant(logits, TOKENS) and not is_constant(drawn()[1], TOKENS)


def test_a_sentence_in_two_rows_counts_once() -> None:
    """With every row twice, one of them in capitals, the intervals are those of the table itself."""
    targets, logits = drawn()
    texts = [joined(f"{row} {word}" for word in range(9)) for row in range(60)]
    found = []
    for spelled in (texts, [*texts, *(text.upper() for text in texts)]):
        rows = np.arange(len(spelled)) % 60
        examples = Examples(texts=tuple(spelled), pairs=None, rows=rows, name="t", targets=targets[rows])
        split, own = Labelled.of(examples, TOKENS, LABELS, "entity_f1"), logits[rows]
        evidence = RunPredictions(split, lambda run, own=own: own)
        classes = [(one.precision, one.recall, one.f1) for one in intervals_by_class(split, own)]
        found.append((evidence.alone("run"), evidence.texts_of(["run"]), classes))
    assert found[0] == found[1]


def test_the_jackknife_leaves_out_sentences() -> None:
    targets, logits = drawn()
    evidence = RunPredictions(Labelled(targets, TOKENS, LABELS, "entity_f1"), lambda run: logits)
    for rows, found in zip(evidence.groups, evidence["run"][1:], strict=True):
        assert found == score(targets[rows], logits[rows], TOKENS, LABELS)["entity_f1"]
    assert evidence.rows == 60 and evidence["run"][0] == score(targets, logits, TOKENS, LABELS)["entity_f1"]
