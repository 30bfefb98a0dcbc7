"""Tags of sentences: read from every source, and refused where they do not fit the words."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

from frostline import FrostlineError
from frostline.data.kinds import CLASSIFICATION, TOKENS, DataSpec
from frostline.data.load import Data, load_data, read_unlabelled
from frostline.data.splits import strata, subset_indices
from frostline.data.tags import NO_WORD, are_entities, entity_types, words_of

WORDS = [words for n in range(15) for words in (["Anna", "Lee", f"sings {n}"], ["It", f"rains {n}"])]
TAGS = [["B-person", "I-person", "O"], ["O", "O"]] * 15
LABELS = ("O", "B-person", "I-person")


def load(words: Any = WORDS, tags: Any = TAGS, **options: Any) -> Data:
    return load_data(DataSpec(train=pd.DataFrame({"tokens": words, "ner_tags": tags}), test="none", **options))


def refusal(words: Any = WORDS, tags: Any = TAGS, **options: Any) -> str:
    with pytest.raises(FrostlineError) as caught:
        load(words, tags, **options)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    return str(caught.value)


def test_lists_of_labels_are_token_classification() -> None:
    data = load()
    assert data.task.task_type == TOKENS and data.task.labels == LABELS
    both = {text: target.tolist() for text, target in zip(data.train.texts, data.train.targets, strict=True)}
    assert len(both) == 27 and both["Anna\nLee\nsings 0"] == [1, 2, 0] and both["It\nrains 0"] == [0, 0, NO_WORD]
    assert "Entities of 1 type with BIO tags: 'person'." in data.notes
    notes = load([*WORDS[:2], *WORDS[:2], *WORDS[4:]], [["O", "O", "O"], *TAGS[1:]]).notes
    assert any("1 training sentence has several lists of tags (rows 1, " in note for note in notes)
    shared = load(validation=pd.DataFrame({"tokens": WORDS[:1], "ner_tags": TAGS[:1]})).notes
    assert "Warning: 1 of 1 validation row has a sentence that is also in train." in shared
    assert data.report.splits["train"].label_counts == {"O": 14 + 2 * 13, "B-person": 14, "I-person": 14}
    assert (
        load_data(DataSpec(train=pd.DataFrame({"text": [*"abcdefghijklmnopqr"], "label": [0, 1] * 9}))).task.task_type
        == CLASSIFICATION
    )


def test_splits_are_filled_to_the_same_width() -> None:
    """A place without a word must not look like a word outside of entities, whose index is 0."""
    parts = {"train": [WORDS, TAGS], "validation": [WORDS[1::2], TAGS[1::2]], "test": [[["Hi"]] * 9, [["O"]] * 9]}
    tables = {name: pd.DataFrame({"tokens": words, "ner_tags": tags}) for name, (words, tags) in parts.items()}
    data = load_data(DataSpec(**tables))
    assert data.test is not None
    assert np.unique(data.validation.targets, axis=0).tolist() == [[0, 0, NO_WORD]]
    assert np.unique(data.test.targets, axis=0).tolist() == [[0, NO_WORD, NO_WORD]]


def test_plain_tags_and_their_order() -> None:
    data = load(tags=[["NOUN", "NOUN", "VERB"], ["PRON", "VERB"]] * 15)
    assert data.task.labels == ("NOUN", "PRON", "VERB") and "A tag for each word, one of 3" in data.notes[1]
    assert not are_entities(data.task.labels) and entity_types(LABELS) == ["person"]
    assert load(labels=["I-person", "B-person", "O"]).task.labels == ("I-person", "B-person", "O")


@pytest.mark.parametrize(
    ("tags", "sentence"),
    [
        (["B-person", "I_person", "O"], "but 'I_person' is not in it; write it as I-person, or remove the prefixes"),
        (["b-person", "i-person", "O"], "but 'b-person' is not in it; write it as B-person,"),
        (["B-person", "I-person", "o"], "but 'o' is not in it; write it as O,"),
        (["B-person", "E-person", "O"], "but 'E-person' is not in it; write it as I-person,"),
        (["S-person", "I-person", "O"], "but 'S-person' is not in it; write it as B-person,"),
        (["B-person", "I-person", "X"], "but 'X' is not in it; write it as O, B-TYPE or I-TYPE,"),
        (["B-person", "I-person", "B-"], "but 'B-' is not in it; write it as O, B-TYPE or I-TYPE,"),
        (
            ["I-person", "I-person", "O"],
            "'I-person' is of an entity, and no tag begins one; write B-person at its first word,",
        ),
    ],
)
def test_tags_that_only_look_like_entities_are_refused(tags: list[str], sentence: str) -> None:
    message = refusal(tags=[tags, ["O", "O"]] * 15)
    assert "column 'ner_tags': " in message and sentence in message
    assert sentence in refusal(labels=sorted({*tags, "O"}, key=["O", *tags].index))


@pytest.mark.parametrize(
    "tags",
    [
        ["NN", "IN", "O"],
        ["I-pro", "I-adv", "V"],  # parts of speech, none of which begins an entity
        ["B-x", "NOUN", "VERB"],
        ["i_x", "e_x", "m_x"],
        ["B", "I", "O"],
        ["B-", "I-", "O"],
    ],
)
def test_plain_tags_may_contain_letters_of_the_bio_scheme(tags: list[str]) -> None:
    data = load(tags=[tags, tags[:2]] * 15)
    assert set(data.task.labels) == set(tags) and not are_entities(data.task.labels)


@pytest.mark.parametrize("source", ["dataset", "jsonl", "parquet", "conll", "txt"])
def test_every_source_gives_the_same_examples(tmp_path: Path, source: str) -> None:
    path, options = tmp_path / f"train.{source}", {}
    frame = pd.DataFrame({"tokens": WORDS, "ner_tags": TAGS})
    if source == "dataset":
        kind = datasets.List(datasets.ClassLabel(names=list(LABELS)))
        features = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "ner_tags": kind})
        numbers = [[LABELS.index(tag) for tag in tags] for tags in TAGS]
        path = datasets.Dataset.from_dict({"tokens": WORDS, "ner_tags": numbers}, features=features)  # type: ignore[assignment]
    elif source == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif source == "parquet":
        frame.to_parquet(path)
    else:
        lines = ["".join(f"{w}\t{t}\n" for w, t in zip(*both, strict=True)) for both in zip(WORDS, TAGS, strict=True)]
        path.write_text("\n".join(lines))
        options = {"task_type": TOKENS} if source == "txt" else {}
    data = load_data(DataSpec(train=path, test="none", **options))
    expected = load()
    assert data.task.labels == LABELS and data.train.texts == expected.train.texts
    assert np.array_equal(data.train.targets, expected.train.targets)


def test_numbers_of_a_class_label_are_its_own_whatever_the_order_of_labels() -> None:
    kind = datasets.List(datasets.ClassLabel(names=["X", "Y"]))
    features = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "ner_tags": kind})
    rows = {"tokens": [["a", f"b{n}"] for n in range(30)], "ner_tags": [[0, 1]] * 30}
    data = load_data(
        DataSpec(train=datasets.Dataset.from_dict(rows, features=features), test="none", labels=("Y", "X"))
    )
    assert data.task.labels == ("Y", "X") and data.train.targets[0].tolist() == [1, 0]


def test_numbers_with_names() -> None:
    numbers = [[1, 2, 0], [0, 0]] * 15
    assert load(tags=numbers, labels=LABELS).task.labels == LABELS
    assert "the tags are numbers without names; name them in the order of the numbers" in refusal(tags=numbers)


@pytest.mark.parametrize(
    ("words", "tags", "sentence"),
    [
        (WORDS, [["O"], *TAGS[1:]], "row 1, column 'ner_tags': the numbers of tags (1) and words (3) differ"),
        (
            WORDS,
            [["O", "I-person", "O"], *TAGS[1:]],
            "the word 'Lee' has the tag 'I-person', and no B-person is before it",
        ),
        (WORDS, [["B-place", "I-person", "O"], *TAGS[1:]], "no B-person is before it; write B-person"),
        (
            WORDS,
            [*TAGS[:2], ["B-person", "I-persn", "O"], *TAGS[3:]],
            "row 3, column 'ner_tags': the word 'Lee' has the tag 'I-persn', and no B-persn is before it "
            "(did you mean 'I-person'?); correct it, or write B-persn at the first word of every entity (IOB2).",
        ),
        (
            WORDS,
            [["B-persn", "I-person", "O"], *TAGS[1:]],
            "the word 'Lee' has the tag 'I-person' after the tag 'B-persn' (did you mean 'B-person'?); correct that one",
        ),
        (
            WORDS,
            [["B-person", "I-persons", "O"], *TAGS[1:3], ["B-persons", "O"], *TAGS[4:]],
            "no B-persons is before it; write B-persons",
        ),
        (WORDS, [None, *TAGS[1:]], "row 1, column 'ner_tags': the list of tags is missing"),
        (WORDS, [["B-person", None, "O"], *TAGS[1:]], "a word has no tag"),
        (WORDS, [["B-person", ["O"], "O"], *TAGS[1:]], "is neither a text nor a number; write one tag for each word"),
        (WORDS, [["B-person", {"tag": "O"}, "O"], *TAGS[1:]], "is neither a text nor a number"),
        ([[], *WORDS[1:]], [[], *TAGS[1:]], "row 1, column 'tokens': the sentence has no words"),
        ([["a", 1, "b"], *WORDS[1:]], TAGS, "the word 1 is not a text"),
        ([["a", None, "b"], *WORDS[1:]], TAGS, "the word None is not a text"),
        ([["a", "b\nc", "d"], *WORDS[1:]], TAGS, "contains a line break"),
        ([["a", "\ud800", "d"], *WORDS[1:]], TAGS, "half a character"),
        ([None, *WORDS[1:]], TAGS, "row 1, column 'tokens': the list of words is missing; write a list such as"),
        (["Anna", *WORDS[1:]], TAGS, "'Anna' is not a list of words"),
        (WORDS, [["O", "O", "O"], ["O", "O"]] * 15, "every word has the tag 'O'"),
    ],
)
def test_bad_input_is_one_sentence(words: Any, tags: Any, sentence: str) -> None:
    assert sentence in refusal(words, tags)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sings\tB-persn", "the tag 'B-persn' of the word 'sings'"),
        ("sings\tI-person", "the word 'sings' has the tag 'I-person', and no B-person is before it"),
        ("sings\t", "a word has no tag"),
    ],
)
def test_errors_in_a_conll_file_name_the_line_of_the_word(tmp_path: Path, line: str, sentence: str) -> None:
    labels = ["O", "B-person", "I-person"]
    good = "Anna\tB-person\nLee\tI-person\nsings\tO\n\n" * 9
    (tmp_path / "a.conll").write_text(f"{good}It\tO\n# a comment\nrains\tO\n{line}\n")
    with pytest.raises(FrostlineError) as caught:
        load_data(DataSpec(train=tmp_path / "a.conll", test="none", labels=labels))
    assert f"a.conll, line 40, column 'tags': {sentence}" in str(caught.value)


def test_unknown_tags() -> None:
    assert "the tag 'B-person' of the word 'Anna' is none of the 2 tags" in refusal(labels=["O", "X"])
    other = pd.DataFrame({"tokens": WORDS, "ner_tags": [["B-persn", "O", "O"], ["O", "O"]] * 15})
    assert (
        "row 1, column 'ner_tags': the training data have no tag 'B-persn' (did you mean 'B-person'?); correct it, or pass "
        "--labels O,B-persn,B-person,I-person to include it."
    ) in refusal(validation=other)
    assert "names 'O' more than once" in refusal(labels=["O", "O"])
    assert "--text-pair-column" in refusal(text_column="tokens", text_pair_column="ner_tags")


def test_tags_that_only_other_files_have_are_named_with_all_others() -> None:
    words, tags = [["Rome"], ["It", "is"]], [["B-place"], ["O", "B-place"]]
    train = {"words": [*WORDS, *words] * 2, "tags": [*TAGS, *tags] * 2}
    validation = pd.DataFrame({"tokens": [["New", "York"]], "ner_tags": [["B-place", "I-place"]]})
    test = pd.DataFrame({"tokens": [["Mars", "One"]], "ner_tags": [["B-event", "I-event"]]})
    every = "O,B-event,I-event,B-person,I-person,B-place,I-place"

    def loaded(**options: Any) -> Data:
        frame = pd.DataFrame({"tokens": train["words"], "ner_tags": train["tags"]})
        return load_data(DataSpec(train=frame, validation=validation, test=test, **options))

    with pytest.raises(FrostlineError) as caught:
        loaded()
    assert str(caught.value) == (
        "the validation data, row 1, column 'ner_tags': the training data have no tag 'I-place'; pass --labels "
        f"{every} to include it."
    )
    assert loaded(labels=every.split(",")).task.labels == tuple(every.split(","))
    assert "; name all tags with --labels." in refusal(
        tags=[[f"B-{n}", f"I-{n}", "O"] if n % 2 else ["O", "O"] for n in range(1, 31)],
        words=[WORDS[0] if n % 2 else WORDS[1] for n in range(1, 31)],
        validation=test,
    )


def test_several_columns_of_tags_need_a_choice() -> None:
    frame = pd.DataFrame({"tokens": WORDS, "ner": TAGS, "pos_tags": TAGS})
    with pytest.raises(FrostlineError, match="choose with --label-column"):
        load_data(DataSpec(train=frame))
    assert load_data(DataSpec(train=frame, label_column="ner")).task.columns.label == "ner"


def test_subsets_have_the_share_of_sentences_with_entities() -> None:
    targets = load().train.targets
    assert strata(targets).tolist() == (targets[:, 0] == 1).tolist()
    chosen = subset_indices(targets, 10, 0)
    assert strata(targets)[chosen].sum() == 5 and set(chosen) <= set(subset_indices(targets, 20, 0))


def test_new_sentences_need_no_tags(tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("Anna\nsings\n\nIt\nrains\n")
    texts, columns = read_unlabelled(tmp_path / "new.txt", task_type=TOKENS)
    assert [words_of(text) for text in texts.texts] == [["Anna", "sings"], ["It", "rains"]] and columns.label is None
