"""Common column names are found, the user's columns are used, and ambiguous columns are refused."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from frostline.data.columns import Columns, choose_columns
from frostline.data.reader import read_table
from frostline.data.table import Table
from loaded import refused, sentence_of


def table(*names: str) -> Table:
    return read_table(pa.table({name: ["a", "b"] for name in names}), name="t.csv")


@pytest.mark.parametrize(
    ("names", "text", "pair", "label"),
    [
        (("text", "label"), "text", None, "label"),
        (("Label", "Text"), "Text", None, "Label"),
        (("text", "review", "label", "rating"), "text", None, "label"),
        (("label", "domain", "text"), "text", None, "label"),
        (("id", "document", "label"), "document", None, "label"),
        (("index", "sentence1", "sentence2", "label"), "sentence1", "sentence2", "label"),
        (("index", "question", "sentence", "label"), "question", "sentence", "label"),
        (("qid1", "qid2", "question1", "question2", "is_duplicate"), "question1", "question2", "is_duplicate"),
        (("premise", "hypothesis", "gold_label"), "premise", "hypothesis", "gold_label"),
        (("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), "#1 String", "#2 String", "Quality"),
        (("genre", "sentence1", "sentence2", "score"), "sentence1", "sentence2", "score"),
        (("text", "text_pair", "target"), "text", "text_pair", "target"),
        (("review", "stars"), "review", None, "stars"),
    ],
)
def test_common_names_are_found(names: tuple[str, ...], text: str, pair: str | None, label: str) -> None:
    assert choose_columns(table(*names)) == Columns(text=text, text_pair=pair, label=label)


def test_columns_given_by_the_user_take_precedence() -> None:
    many = table("text", "label", "a", "b", "c")
    chosen = choose_columns(many, text_column="a", text_pair_column="b", label_column="c")
    assert chosen == Columns(text="a", text_pair="b", label="c")
    pair = table("sentence1", "sentence2", "label")
    assert choose_columns(pair, text_column="sentence2") == Columns(text="sentence2", label="label")
    assert choose_columns(table("text", "query"), label_column="query").text == "text"
    assert choose_columns(table("text", "query"), label_column="text").text == "query"


@pytest.mark.parametrize(
    ("names", "pair", "text"),
    [
        (("text", "b", "label"), "b", "text"),
        (("label", "Sentence", "reply"), "reply", "Sentence"),
        (("sentence1", "sentence2", "b", "label"), "sentence2", "sentence1"),
        (("sentence1", "b", "label"), "b", "sentence1"),
        (("premise", "text", "hypothesis", "label"), "Hypothesis", "premise"),
    ],
)
def test_the_first_text_of_a_pair_is_found_beside_a_second_that_is_given(
    names: tuple[str, ...], pair: str, text: str
) -> None:
    names = tuple(pair if name == pair.lower() else name for name in names)
    assert choose_columns(table(*names), text_pair_column=pair) == Columns(text=text, text_pair=pair, label="label")


def test_a_label_column_can_be_optional() -> None:
    assert choose_columns(table("text", "label", "LABEL"), label_needed=False).text == "text"
    assert choose_columns(table("text", "label", "LABEL"), label_column="label").label == "label"
    assert choose_columns(table("text", "id"), label_needed=False).label is None
    assert choose_columns(table("text", "score", "rating"), label_needed=False).label is None
    assert choose_columns(table("text", "label"), label_needed=False).label == "label"


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (("text", "label"), {"text_column": "txet"}, ("no column 'txet'", "did you mean 'text'?", "--text-column")),
        (("text", "label"), {"label_column": "Labels"}, ("no column 'Labels'", "did you mean 'label'?", "--label-column")),
        (("a", "b"), {}, ("'a', 'b'", "--text-column")),
        (("text", "b"), {}, ("'text', 'b'", "labels", "--label-column")),
        (("sentence", "review", "label"), {}, ("'sentence' or 'review'", "--text-column")),
        (("text", "premise", "hypothesis", "label"), {}, ("'premise', 'hypothesis' or 'text'", "--text-column")),
        (("text", "score", "rating"), {}, ("'score', 'rating'", "--label-column")),
        (("a", "b", "label"), {"text_pair_column": "b"}, ("'a', 'b', 'label'", "texts", "--text-column")),
        (("text", "label"), {"text_pair_column": "text"}, ("'text', 'label'", "texts", "--text-column")),
        (("review", "comment", "b", "label"), {"text_pair_column": "b"}, ("'review' or 'comment'", "--text-column")),
        (("text", "label"), {"text_pair_column": "label"}, ("labels", "--label-column")),
        (("text", "Label", "label"), {}, ("the columns 'Label', 'label' differ in case only", "--label-column")),
        (("Text", "text", "label"), {}, ("the columns 'Text', 'text' differ in case only", "--text-column")),
        (("text", "label"), {"text_column": "text", "label_column": "text"}, ("'text' is chosen for two purposes",)),
    ],
)  # fmt: skip
def test_refusals(names: tuple[str, ...], options: dict[str, str], words: tuple[str, ...]) -> None:
    sentence = sentence_of(choose_columns, table(*names), **options)
    assert sentence.startswith("t.csv: ") and all(word in sentence for word in words), sentence


def test_columns_of_zero_and_one_are_named() -> None:
    cells = {
        "text": ["a", "b"],
        "joy": ["0", "1"],
        "fear": ["1", "1"],
        "never": ["0", "0"],
        "id": ["1", "2"],
        "b": [0, 1],
    }
    for names, remedy in (
        (cells, "name one with --label-column, or the columns of 0 and 1 with --indicator-columns joy,fear,b."),
        (("text", "joy", "id"), "has a common name for labels; name one with --label-column."),
    ):
        labels = read_table(pd.DataFrame({name: cells[name] for name in names}), name="t.csv")
        assert sentence_of(choose_columns, labels).endswith(remedy)


@pytest.mark.parametrize(
    ("ending", "separator", "remedy"),
    [("csv", "|", "commas, not '|'"), ("tsv", ",", "tabs, not ','"), ("txt", ";", "tabs, not ';'")],
)
def test_columns_that_are_separated_otherwise(tmp_path: Path, ending: str, separator: str, remedy: str) -> None:
    (tmp_path / f"t.{ending}").write_text(f"text{separator}label\na film{separator}good\n")
    sentence = sentence_of(choose_columns, read_table(tmp_path / f"t.{ending}"))
    assert sentence.endswith(f"its only column is 'text{separator}label'; separate the columns by {remedy}.")


@pytest.mark.parametrize(
    ("content", "is_conll"),
    [
        ("@paul\tO\nsings\tO\n\nAnna\tB-x\n", True),
        ("# id = 1\nEU NNP O\nsings VBZ O\n\nAnna NNP B-x\n", True),
        ("a good film\tgood\na fine film\tgood\n", False),
        ("film\tgood\nplot\tbad\n", False),  # no tag recurs
        ("good\nbad\ngood\n", False),
    ],
)
def test_a_text_file_of_words_and_tags_names_its_task(tmp_path: Path, content: str, *, is_conll: bool) -> None:
    (tmp_path / "t.txt").write_text(content)
    sentence = sentence_of(choose_columns, read_table(tmp_path / "t.txt"))
    remedy = "t.txt: its lines look like words with their tags; pass --task-type token-classification."
    assert sentence.endswith(remedy) == is_conll and ("--column-names" in sentence) != is_conll


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("Anna\nsings\n", "its lines have a word and no tag; write the tag after each word, separated by a tab."),
        ("Anna NNP B-x\n", "its lines have 3 columns; choose that of the tags with --tag-column, from 2 on."),
    ],
)
def test_a_conll_file_without_tags_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    """As training data, and as a test set beside training data with tags."""
    (tmp_path / "a.conll").write_text(content)
    (tmp_path / "train.conll").write_text("Anna\tB-x\n\nsings\tO\n\nIt\tO\n")
    for options in ({"train": tmp_path / "a.conll"}, {"train": tmp_path / "train.conll", "test": tmp_path / "a.conll"}):
        assert refused(**options) == f"{tmp_path / 'a.conll'}: {sentence}"
