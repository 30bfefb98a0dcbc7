"""From files, folders, hub data sets and frames to the examples of a task."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from frostline import FrostlineError
from frostline.data.columns import Columns
from frostline.data.kinds import CLASSIFICATION, MULTI_LABEL, REGRESSION, TOKENS
from frostline.data.load import read_unlabelled
from loaded import frame, loaded, refused, sentence_of


def test_a_tenth_is_held_out_for_each_of_validation_and_test(tmp_path: Path) -> None:
    frame(200).to_csv(tmp_path / "films.csv", index=False)
    data = loaded(train=tmp_path / "films.csv")
    assert data.task.name == "films" and data.task.labels == ("no", "yes")
    assert data.test is not None
    assert [len(part) for part in (data.train, data.validation, data.test)] == [160, 20, 20]
    assert len({*data.train.texts, *data.validation.texts, *data.test.texts}) == 200
    assert data.train.texts[0] == f"text {data.train.rows[0] - 2}"
    assert np.bincount(data.validation.targets).tolist() == [10, 10]
    notes = " ".join(data.notes)
    assert "text is column 'text', label is column 'label'" in notes and "'no', 'yes'" in notes
    assert "20 of 200 training rows are held out for test (data seed 0)" in notes
    few = "These are few: with --folds 5, all rows are validation rows."
    assert notes.count(few) == 1  # of validation, not of test
    other = loaded(train=tmp_path / "films.csv", data_seed=1)
    assert other.validation.digest() != data.validation.digest()
    assert loaded(train=tmp_path / "films.csv").train.digest() == data.train.digest()


def test_given_validation_examples_and_no_test_set() -> None:
    data = loaded(train=frame(20), validation=frame(10, 100), test="none")
    assert data.test is None and len(data.train) == 20 and len(data.validation) == 10
    assert "There is no test set, as requested." in data.notes
    assert len(loaded(train=frame(20), validation="hold out", test=frame(2)).validation) == 2


def test_first_rows_and_held_out_share(tmp_path: Path) -> None:
    frame(50).to_csv(tmp_path / "train.csv", index=False)
    frame(50).to_parquet(tmp_path / "train.parquet")
    for file in ("train.csv", "train.parquet"):
        data = loaded(train=tmp_path / file, first_rows=20, held_out_share=0.2, test="none")
        assert (len(data.train), len(data.validation)) == (16, 4)
        assert set(data.train.texts + data.validation.texts) == set(frame(20)["text"])
        assert "Of 50 training rows the first 20 are used." in data.notes
    assert len(loaded(train=tmp_path / "train.csv", first_rows=60, test="none").train) == 45


REFUSED: list[tuple[dict[str, Any], str]] = [  # beside 20 training rows
    (
        {"validation": pd.DataFrame({"text": ["a", "b"], "label": ["no", "Yes"]})},
        "the validation data, row 2, column 'label': the label 'Yes' (did you mean 'yes'?)",
    ),
    (
        {"validation": frame(2).rename(columns={"label": "lable"})},
        "there is no column 'label' (did you mean 'lable'?), which the training data has",
    ),
    ({"validation": frame(2).assign(label=["no", None])}, "the label is missing"),
    ({"validation": frame(20).assign(label=""), "skip_unlabelled": True}, "no row has a label"),
    ({"validation": "none"}, "k is chosen on validation"),
    ({"test": frame(2).assign(label=-1)}, "the test data, column 'label': no row has a label (all are missing or -1"),
    ({"test": frame(2).assign(label=-1)}, "give a test file with labels or leave it out, or pass --test none."),
    ({"train": frame(20).assign(label=""), "skip_unlabelled": True}, "the label is missing"),
    ({"train": frame(20).assign(label=["a"] + [""] * 19), "skip_unlabelled": True}, "the table has one labelled row"),
    ({"config": "cola"}, "--config 'cola' is for a hub data set"),
    ({"data": "somewhere"}, "either --train FILE or --data NAME"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_refused_data(options: dict[str, Any], message: str) -> None:
    assert message in refused(**{"train": frame(20), **options})


def test_the_column_that_the_model_was_trained_on_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,coment\n1,good\n")
    missing = sentence_of(read_unlabelled, tmp_path / "a.csv", trained=Columns(text="comment"))
    assert "no column 'comment' (did you mean 'coment'?), which the model was trained on" in missing
    assert read_unlabelled(tmp_path / "a.csv", text_column="coment", trained=Columns(text="comment"))[0].texts == (
        "good",
    )
    texts, _ = read_unlabelled(frame(2), trained=Columns(text="comment"))  # another column has a common name
    assert texts.texts == tuple(frame(2)["text"])


def test_another_second_text_leaves_the_first_where_it_was_in_training() -> None:
    table = pd.DataFrame({"title": ["A"], "body": ["B"], "summary": ["C"]})  # "body" is a common name
    trained = Columns(text="title", text_pair="body")
    texts, columns = read_unlabelled(table, trained=trained, text_pair_column="summary")
    assert (columns.text, texts.texts, texts.pairs) == ("title", ("A",), ("C",))
    assert "no column 'sumary' (did you mean 'summary'?)" in sentence_of(
        read_unlabelled, table, trained=trained, text_pair_column="sumary"
    )


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("films.csv", "films"),
        ("comments_train.csv", "comments"),
        ("train-films-2024.csv", "films-2024"),
        ("films-train-00000-of-00001.csv", "films"),
        ("train-00000-of-00001.csv", "folder"),
        ("Train.csv", "folder"),
    ],
)
def test_the_task_is_called_after_the_file_or_its_folder(file: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    frame(40).to_csv(tmp_path / "folder" / file, index=False)
    assert loaded(train=tmp_path / "folder" / file, test="none").task.name == name


def test_unlabelled_texts(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    texts, _ = read_unlabelled(tmp_path / "a.tsv")
    assert texts.texts == ("a",) and texts.pairs == ("b",) and texts.rows.tolist() == [2]
    assert read_unlabelled(frame(2), text_column="label")[0].texts == ("no", "yes")


OF_WORDS = "the table has sentences of words, but the model reads whole texts; give a table of texts."
OF_TEXTS = "the table has texts, but the model tags words; give a CoNLL file or lists of words."


@pytest.mark.parametrize("trained", [None, Columns(text="review")])
@pytest.mark.parametrize(
    ("name", "content", "task_type", "message"),
    [
        *((f"t.{end}", "Anna\tO\nsings\tO\n", None, OF_WORDS) for end in ("conll", "txt")),
        ("t.jsonl", '{"tokens": ["Anna", "sings"]}\n', None, OF_WORDS),
        ("t.csv", "text,label\na film,good\n", TOKENS, OF_TEXTS),
    ],
)
def test_tables_for_another_kind_of_model_are_refused(
    tmp_path: Path, name: str, content: str, task_type: str | None, message: str, trained: Columns | None
) -> None:
    (tmp_path / name).write_text(content)
    sentence = sentence_of(read_unlabelled, tmp_path / name, trained=trained, task_type=task_type)
    assert sentence == f"{tmp_path / name}: {message}"
    unnamed = pd.DataFrame({"mine": [["Anna", "sings"]]})
    assert "name one with --text-column" in sentence_of(read_unlabelled, unnamed, task_type=TOKENS)


WRITTEN = {
    "Python": ["['Anna', 'sings']", "['It', 'rains', '.']", "[]"],
    "JSON": ['["Anna", "sings"]', '["It"]', '["a", "b"]'],
    "numpy": ["['Anna' 'sings']", "['It' 'rains'\n '.']", "['a']"],
    "a set": ["{'Anna', 'sings'}", "{'It'}", "{'a'}"],
}
AS_LABELS = {
    "Python": WRITTEN["Python"],
    "numbers of numpy": ["[0 1]", "[1]", "[]"],
    "without quotes": ["[rock, pop]", "[pop, jazz]", "[jazz, rock]"],
    "PostgreSQL": ["{rock,pop}", "{pop,jazz}", "{}"],
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_lists_of_words_that_are_written_as_texts_are_refused(tmp_path: Path, kind: str) -> None:
    words = pd.DataFrame({"tokens": WRITTEN[kind] * 5, "ner_tags": ["['O', 'B-x']", "['O']", "[]"] * 5})
    words.to_csv(tmp_path / "t.csv", index=False)
    words.rename(columns={"tokens": "text", "ner_tags": "label"}).to_csv(tmp_path / "texts.csv", index=False)
    for options in (
        {"train": tmp_path / "t.csv"},
        {"train": tmp_path / "t.csv", "task_type": TOKENS},
        {"train": tmp_path / "texts.csv"},
        {"train": words},
    ):
        remedy = "and CSV files hold no lists; save the table as JSON lines or Parquet"
        assert f"is a list written as a text, {remedy}" in refused(**options)
    sentence = sentence_of(read_unlabelled, tmp_path / "t.csv", trained=Columns(text="tokens"), task_type=TOKENS)
    assert "save the table as JSON lines or Parquet" in sentence


def test_words_that_are_separated_by_spaces_are_refused(tmp_path: Path) -> None:
    words = {"tokens": ["EU rejects", "Anna sings"] * 5, "ner_tags": ["B-ORG O", "B-PER O"] * 5}
    pd.DataFrame(words).to_csv(tmp_path / "t.csv", index=False)
    remedy = "'B-ORG O' is not a list of tags; in JSON lines or Parquet, write a list with a tag for each word"
    assert remedy in refused(train=tmp_path / "t.csv", task_type=TOKENS)


@pytest.mark.parametrize(
    ("kind", "options"),
    [*((kind, {}) for kind in AS_LABELS), ("Python", {"label_separator": ","}), ("PostgreSQL", {"task_type": MULTI_LABEL})],
)  # fmt: skip
def test_lists_of_labels_that_are_written_as_texts_are_refused(
    tmp_path: Path, kind: str, options: dict[str, str]
) -> None:
    labels = pd.DataFrame({"text": [f"text {n}" for n in range(15)], "labels": AS_LABELS[kind] * 5})
    labels.to_csv(tmp_path / "t.csv", index=False)
    sentence = refused(train=tmp_path / "t.csv", **options)
    assert "is a list written as a text" in sentence and "--label-separator" not in sentence
    assert "save the table as JSON lines or Parquet, with lists in this column" in sentence
    assert len(loaded(train=tmp_path / "t.csv", task_type=CLASSIFICATION, test="none").task.labels) == 3


def test_texts_in_brackets_are_no_lists() -> None:
    texts = [
        "[Verse 1] la la [end]",
        "(Applause), thanks (laughter)",
        "[deleted]",
        "['tis the season]",
        "{x}",
        "[1] and [2]",
        "[2020-01-01 10:00:00] error [x]",
        '{"user": "a", "message": "hi"}',
        "['Hello', he said, and left]",
        "print(['a', x])",
    ]
    labels = ["[happy]", "(sad)"] * (len(texts) // 2)
    data = loaded(train=pd.DataFrame({"text": texts * 5, "label": labels * 5}), test="none")
    assert data.task.labels == ("(sad)", "[happy]")
    for text in texts:  # most texts of a table have the same form
        loaded(train=frame(20).assign(text=[f"{text[:-1]}{n}{text[-1]}" for n in range(20)]))


def test_texts_that_are_lists_are_read_from_a_column_that_is_chosen() -> None:
    table = pd.DataFrame({"text": [f"['a', 'b{n}']" for n in range(20)], "label": ["no", "yes"] * 10})
    assert "or choose it with --text-column if each is one text" in refused(train=table)
    assert loaded(train=table, text_column="text", test="none").train.texts[0].startswith("['a', 'b")


BASE = {"text": [f"text {n}" for n in range(20)], "label": ["no", "yes"] * 10}
FRAMES = {
    "no text in two rows": {"text": [np.nan, "b", *BASE["text"][2:]]},
    "pd.NA": {"text": pd.array([pd.NA, *BASE["text"][1:]], dtype="string")},
    "fractions as texts": {"text": [n + 0.5 for n in range(20)]},
    "whole numbers as labels": {"label": [0, 1] * 10},
    "truth values": {"label": [True, False] * 10},
    "days": {"label": pd.to_datetime(["2020-01-01", "2021-01-01"] * 10)},
    "a number": {"label": np.linspace(0, 1, 20), "more": 1},
    "a label is missing": {"label": [np.nan, *[1, 0] * 9, 1]},
    "of a nullable type": {"label": pd.array([pd.NA, *[1, 0] * 9, 1], dtype="Int64")},
    "a category is missing": {"label": pd.Categorical([None, *BASE["label"][1:]])},
    "spaces in a name": {" label ": BASE["label"]},
}


def shown(source: Any, **options: Any) -> Any:
    """What a table gives: its examples and labels, or the refusal without the name and number of the row."""
    try:
        data = loaded(train=source, test="none", **options)
    except FrostlineError as error:
        return str(error).partition("column ")[2].partition(" (pandas")[0].rstrip(".")
    return data.task.labels, data.train.digest(), data.validation.digest(), len(data.train)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("case", FRAMES)
def test_a_frame_and_its_files_give_the_same(tmp_path: Path, case: str, skip: bool) -> None:
    cells = BASE | FRAMES[case]
    frame = pd.DataFrame({name: column for name, column in cells.items() if name != "label" or " label " not in cells})
    options: dict[str, Any] = {"skip_unlabelled": skip, "task_type": REGRESSION if case == "a number" else None}
    found = shown(frame, **options)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    indexed = frame.set_index(next(iter(frame)))
    in_memory = indexed, pa.Table.from_pandas(frame), datasets.Dataset.from_pandas(frame)
    for source in (tmp_path / "t.csv", pd.read_csv(tmp_path / "t.csv"), tmp_path / "t.parquet", *in_memory):
        assert shown(source, **options) == found
    assert isinstance(found, tuple) or ("missing" in case or "nullable" in case) > skip


def test_a_class_that_pandas_reads_as_missing_is_explained(tmp_path: Path) -> None:
    pd.DataFrame(BASE | {"label": ["NA", "a", "b", "a"] * 5}).to_csv(tmp_path / "t.csv", index=False)
    assert loaded(train=tmp_path / "t.csv").task.labels == ("NA", "a", "b")
    lost, reason = pd.read_csv(tmp_path / "t.csv"), "pandas reads 'None' and 'NA' as missing, unless read_csv gets"
    assert reason in refused(train=lost)
    notes = loaded(train=lost, skip_unlabelled=True).notes
    assert any("5 of 20 rows have no label" in note and reason in note for note in notes)


WHOLE = {
    "0.0 and 1.0": (["0.0", "1.0"], ["0", "1"], ("0", "1")),
    "tests with decimals": (["0", "1"], ["0.0", "1.00"], ("0", "1")),
    "negative zero": (["-0.0", "1.0"], ["0", "1"], ("0", "1")),
    "a point alone": (["1.", "2."], ["1", "2"], ("1", "2")),
}


@pytest.mark.parametrize("case", WHOLE)
def test_whole_numbers_are_classes_however_they_are_written(case: str) -> None:
    train, test, labels = WHOLE[case]
    size = 10 * len(train)
    tables = {
        "train": pd.DataFrame({"text": [f"a{n}" for n in range(size)], "label": train * 10}),
        "validation": pd.DataFrame({"text": [f"b{n}" for n in range(size)], "label": test * 10}),
    }
    data = loaded(**tables, test="none")
    assert data.task.labels == labels and data.task.task_type == CLASSIFICATION
    assert [labels[n] for n in data.validation.targets[: len(test)]] == [str(int(float(one))) for one in test]
    for given in (labels[::-1], tuple(f"{label}.0" for label in labels)):
        other = loaded(**tables, test="none", labels=given)
        assert other.task.labels == given
        assert [given[n] for n in other.train.targets] == [given[labels.index(labels[n])] for n in other.train.targets]


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"label": ["bug"]}, {}),
        ({"label": [0.5]}, {}),
        ({"label": [1]}, {"task_type": REGRESSION}),
        ({"labels": [["a", "b"]]}, {}),
        ({"label": ["a;b"]}, {"label_separator": ";"}),
        ({"a": [1], "b": [1]}, {"indicator_columns": ["a", "b"]}),
    ],
)
def test_a_table_with_one_row_says_so(tmp_path: Path, columns: dict[str, Any], options: dict[str, Any]) -> None:
    table = pd.DataFrame({"text": ["a text"], **columns})
    said = "the table has one row; give more, an example in each row."
    assert refused(train=table, **options) == f"The training data: {said}"
    table.to_json(tmp_path / "t.json", orient="records", lines=True)
    assert refused(train=tmp_path / "t.json", **options) == f"{tmp_path / 't.json'}: {said}"


LABEL_SET = {"labels": [["a"], None, ["b"], ["a", "b"], []] * 8}
UNLABELLED: dict[str, tuple[dict[str, Any], dict[str, Any], int]] = {
    "classes": ({"label": ["no", "", "yes", None, "yes"] * 8}, {}, 24),
    "numbers": ({"label": [0.5, None, 1.5, np.nan, 2.5] * 8}, {"task_type": REGRESSION}, 24),
    "lists": (LABEL_SET, {}, 32),
    "separated": ({"labels": ["a;b", "", "b", None, "a"] * 8}, {"label_separator": ";"}, 24),
    "columns of 0 and 1": ({"a": [1, None, 0, 1, 1] * 8, "b": [0, None, 1, 1, 0] * 8}, {"indicator_columns": ["a", "b"]}, 32),
    "tags": ({"tags": [["O"], None, ["B-x"], [], ["O"]] * 8}, {"task_type": TOKENS}, 24),
    "from the first row on": ({"labels": [None, ["b"], ["a"], ["b"], ["a"]] * 8}, {}, 32),
}  # fmt: skip


@pytest.mark.parametrize("case", UNLABELLED)
def test_rows_without_a_label_are_skipped_on_request(case: str) -> None:
    columns, options, rows = UNLABELLED[case]
    texts = {"tokens": [[f"w{n}"] for n in range(40)]} if case == "tags" else {"text": [f"text {n}" for n in range(40)]}
    table = pd.DataFrame(texts | columns)
    tables = {"train": table, "validation": table.iloc[:20], "test": table.iloc[20:]}
    if case != "separated":  # an empty cell says that a text has no label
        assert "--skip-unlabelled" in refused(**tables, **options)
    data = loaded(**tables, **options, skip_unlabelled=True)
    assert [len(part) for part in (data.train, data.validation, data.test or ())] == [rows, rows // 2, rows // 2]
    notes = [note for note in data.notes if "no label (row " in note]
    first = f"The training data: {40 - rows} of 40 rows have no label (row {1 if 'first' in case else 2}"
    assert len(notes) == 3 and first in notes[0]
    assert notes[1].startswith(f"the validation data: {(40 - rows) // 2} of 20 rows have no label (row ")
    assert data.train.rows[:2].tolist() == ([2, 3] if "first" in case else [1, 3])
