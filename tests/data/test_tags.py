"""Tags of sentences: read from every source, and refused where they do not fit the words."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

from frostline import FrostlineError
from frostline.data.kinds import CLASSIFICATION, TOKENS
from frostline.data.load import Data
from frostline.data.splits import strata, subset_indices
from frostline.data.tags import NO_WORD, are_entities, entity_types
from loaded import frame, loaded, refused

WORDS = [words for n in range(15) for words in (["Anna", "Lee", f"sings {n}"], ["It", f"rains {n}"])]
TAGS = [["B-person", "I-person", "O"], ["O", "O"]] * 15
LABELS = ("O", "B-person", "I-person")


def load(words: Any = WORDS, tags: Any = TAGS, **options: Any) -> Data:
    return loaded(train=pd.DataFrame({"tokens": words, "ner_tags": tags}), test="none", **options)


def refusal(words: Any = WORDS, tags: Any = TAGS, **options: Any) -> str:
    return refused(train=pd.DataFrame({"tokens": words, "ner_tags": tags}), test="none", **options)


def test_lists_of_labels_are_token_classification() -> None:
    data = load()
    assert data.task.task_type == TOKENS and data.task.labels == LABELS
    both = {text: target.tolist() for text, target in zip(data.train.texts, data.train.targets, strict=True)}
    assert len(both) == 27 and both["Anna\nLee\nsings 0"] == [1, 2, 0] and both["It\nrains 0"] == [0, 0, NO_WORD]
    assert "Entities of 1 type with BIO tags: 'person'." in data.notes
    notes = load([*WORDS[:2], *WORDS[:2], *WORDS[4:]], [["O", "O", "O"], *TAGS[1:]]).notes
    assert any("1 training sentence has several lists of tags (rows 1, " in note for note in notes)
    shared = load(validation=pd.DataFrame({"tokens": WORDS[:1], "ner_tags": TAGS[:1]})).notes
    assert any("1 of 1 validation row has a sentence that is also in train:" in note for note in shared)
    assert data.report.splits["train"].label_counts == {"O": 14 + 2 * 13, "B-person": 14, "I-person": 14}
    assert loaded(train=frame(18)).task.task_type == CLASSIFICATION


def test_splits_are_filled_to_the_same_width() -> None:
    """A place without a word must not look like a word outside of entities, whose index is 0."""
    parts = {"train": [WORDS, TAGS], "validation": [WORDS[1::2], TAGS[1::2]], "test": [[["Hi"]] * 9, [["O"]] * 9]}
    tables = {name: pd.DataFrame({"tokens": words, "ner_tags": tags}) for name, (words, tags) in parts.items()}
    data = loaded(**tables)
    assert data.test is not None
    assert np.unique(data.validation.targets, axis=0).tolist() == [[0, 0, NO_WORD]]
    assert np.unique(data.test.targets, axis=0).tolist() == [[0, NO_WORD, NO_WORD]]


def test_plain_tags_and_their_order() -> None:
    data = load(tags=[["NOUN", "NOUN", "VERB"], ["PRON", "VERB"]] * 15)
    assert data.task.labels == ("NOUN", "PRON", "VERB") and "A tag for each word, one of 3" in data.notes[1]
    assert not are_entities(data.task.labels) and entity_types(LABELS) == ["person"]
    assert load(labels=["I-person", "B-person", "O"]).task.labels == ("I-person", "B-person", "O")
    assert load(tags=[[1, 2, 0], [0, 0]] * 15, labels=LABELS).task.labels == LABELS
    several = pd.DataFrame({"tokens": WORDS, "ner": TAGS, "pos_tags": TAGS})
    assert "choose with --label-column" in refused(train=several)
    assert loaded(train=several, label_column="ner").task.columns.label == "ner"


@pytest.mark.parametrize(
    ("tags", "odd"),
    [
        (["B-person", "I_person", "O"], "I_person"),
        (["b-person", "i-person", "O"], "b-person"),
        (["B-person", "I-person", "o"], "o"),
        (["B-person", "E-person", "O"], "E-person"),
        (["B-person", "I-person", "X"], "X"),
        (["B-person", "I-person", "B-"], "B-"),
        (["I-person", "I-person", "O"], "I-person"),
        (["person-B", "person-I", "O"], "person-B"),
        (["person-B", "person-I", "place-B"], "person-B"),
        (["B:person", "I:person", "O"], "B:person"),
        (["B-person", "I-person", "group", "place", "O"], "group"),
    ],
)
def test_tags_that_only_look_like_entities_are_refused(tags: list[str], odd: str) -> None:
    message = refusal(tags=[tags, ["O", "O"]] * 15)
    assert f"column 'ner_tags': tags look like the BIO scheme of entities, but '{odd}' is not in it" in message
    assert f"'{odd}' is not in it" in refusal(labels=sorted({*tags, "O"}, key=["O", *tags].index))


@pytest.mark.parametrize(
    "tags",
    [
        ["NN", "IN", "O"],
        ["I-pro", "I-adv", "V"],  # parts of speech, none of which begins an entity
        ["B-x", "NOUN", "VERB"],
        ["i_x", "e_x", "m_x"],
        ["NOUN-S", "VERB-S", "O"],
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
    data = loaded(train=path, test="none", **options)
    expected = load()
    assert data.task.labels == LABELS and data.train.texts == expected.train.texts
    assert np.array_equal(data.train.targets, expected.train.targets)


@pytest.mark.parametrize(("names", "labels"), [("XY", "YX"), ("21", "12")])
def test_numbers_of_a_class_label_are_its_own_whatever_the_order_of_labels(names: str, labels: str) -> None:
    kind = datasets.List(datasets.ClassLabel(names=[*names]))
    features = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "ner_tags": kind})
    rows = {"tokens": [["a", f"b{n}"] for n in range(30)], "ner_tags": [[0, 1]] * 30}
    data = loaded(train=datasets.Dataset.from_dict(rows, features=features), test="none", labels=tuple(labels))
    assert data.task.labels == tuple(labels) and data.train.targets[0].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"labels": ["O", "X"]}, "the tag 'B-person' is none of the 2 training tags"),
        ({"text_column": "tokens", "text_pair_column": "ner_tags"}, "--text-pair-column"),
        (
            {"tags": [[1, 2, 0], [0, 0]] * 15},
            "the tags are numbers without names; name them in the order of the numbers",
        ),
        (
            {"validation": pd.DataFrame({"tokens": WORDS, "ner_tags": [[1, 2, 0], [0, 0]] * 15})},
            "the tag '1' is none of the 3 training tags ('O', 'B-person', 'I-person'); correct it, or name all tags",
        ),
    ],
)
def test_options_that_do_not_suit_tags_are_refused(options: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(**options)


@pytest.mark.parametrize(
    ("words", "tags", "sentence"),
    [
        (WORDS, [["O"], *TAGS[1:]], "row 1, column 'ner_tags': the numbers of tags (1) and words (3) differ"),
        (WORDS, [["O", "I-person", "O"], *TAGS[1:]], "the word 'Lee' has the tag 'I-person', and no B-person is before"),
        (WORDS, [["B-place", "I-person", "O"], *TAGS[1:]], "no B-person is before it; write B-person"),
        (WORDS, [None, *TAGS[1:]], "row 1, column 'ner_tags': the label is missing"),
        (WORDS, [["B-person", None, "O"], *TAGS[1:]], "is no tag; write a text, such as O, for each word"),
        (WORDS, [["B-person", ["O"], "O"], *TAGS[1:]], "['O'] is no tag"),
        (WORDS, [["B-person", {"tag": "O"}, "O"], *TAGS[1:]], "is no tag"),
        ([[], *WORDS[1:]], TAGS, "row 1, column 'tokens': the sentence has no words"),
        ([["a", 1, "b"], *WORDS[1:]], TAGS, "the word 1 is not a text"),
        ([["a", None, "b"], *WORDS[1:]], TAGS, "the word None is not a text"),
        ([["a", "b\nc", "d"], *WORDS[1:]], TAGS, "contains a line break"),
        ([["a", "\ud800", "d"], *WORDS[1:]], TAGS, "half a character"),
        ([None, *WORDS[1:]], TAGS, "row 1, column 'tokens': the list of words is missing; write a list such as"),
        (["Anna", *WORDS[1:]], TAGS, "'Anna' is not a list of words"),
        (WORDS, [["O", "O", "O"], ["O", "O"]] * 15, "the only label is 'O'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(words: Any, tags: Any, sentence: str) -> None:
    assert sentence in refusal(words, tags)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sings\tB-persn", "the tag 'B-persn' (did you mean"),
        ("sings\tI-person", "the word 'sings' has the tag 'I-person', and no B-person is before it"),
        ("sings\t", "'' is no tag; write a text, such as O, for each word"),
    ],
)
def test_errors_in_a_conll_file_name_the_line_of_the_word(tmp_path: Path, line: str, sentence: str) -> None:
    labels = ["O", "B-person", "I-person"]
    good = "Anna\tB-person\nLee\tI-person\nsings\tO\n\n" * 9
    (tmp_path / "a.conll").write_text(f"{good}It\tO\n# a comment\nrains\tO\n{line}\n")
    with pytest.raises(FrostlineError) as caught:
        loaded(train=tmp_path / "a.conll", test="none", labels=labels)
    assert f"a.conll, line 40, column 'tags': {sentence}" in str(caught.value)


def test_tags_that_only_other_files_have_are_named_with_all_others() -> None:
    test = pd.DataFrame({"tokens": [["Mars", "One"]], "ner_tags": [["B-persn", "I-event"]]})
    every = "O,I-event,B-persn,B-person,I-person"
    assert refusal(validation=test) == (
        "the validation data, row 1, column 'ner_tags': the tag 'B-persn' (did you mean 'B-person'?) is none of the 3 training "
        f"tags ('O', 'B-person', 'I-person'); correct it, or pass --labels {every} to include it."
    )
    many = [[f"B-{n}", f"I-{n}", "O"] if n % 2 else ["O", "O"] for n in range(1, 31)]
    assert "name all tags with --labels." in refusal(
        words=[WORDS[n % 2 == 0] for n in range(1, 31)], tags=many, validation=test
    )


def test_subsets_have_the_share_of_sentences_with_entities() -> None:
    targets = load().train.targets
    assert strata(targets).tolist() == (targets[:, 0] == 1).tolist()
    chosen = subset_indices(targets, 10, 0)
    assert strata(targets)[chosen].sum() == 5 and set(chosen) <= set(subset_indices(targets, 20, 0))


MANY = "".join(f"Anna\tB-person\nsings{n}\tO\n\n" for n in range(30))


def test_a_file_without_blank_lines_is_refused(tmp_path: Path) -> None:
    one, remedy = MANY.replace("\n\n", "\n"), "because it has no blank line; write a blank line after each sentence."
    paths = {name: tmp_path / f"{name}.conll" for name in ("many", "one", "long")}
    for name, content in {"many": MANY, "one": one, "long": one * 4}.items():
        paths[name].write_text(content)
    assert refused(train=paths["one"]) == f"{paths['one']}: the file has one sentence of 60 words, {remedy}"
    found = refused(train=paths["many"], test=paths["long"])
    assert found == f"{paths['long']}: the file has one sentence of 240 words, {remedy}"
    assert loaded(train=paths["many"], test=paths["one"]).test is not None  # maybe a long sentence
