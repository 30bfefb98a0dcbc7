"""From files, folders, hub data sets and frames to the examples of a task."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from frostline import FrostlineError
from frostline.data.load import Data, load_data, read_unlabelled
from frostline.data.specification import REGRESSION, TOKENS, DataSpec

SHARED = Path(__file__).parents[3] / "shared" / "data"  # ../shared/data of the repository


def frame(rows: int, first: int = 0) -> pd.DataFrame:
    return pd.DataFrame(
        {"text": [f"text {i}" for i in range(first, first + rows)], "label": ["no", "yes"] * (rows // 2)}
    )


def load(**options: Any) -> Data:
    return load_data(DataSpec(**options))


def refusal(**options: Any) -> str:
    with pytest.raises(FrostlineError) as caught:
        load(**options)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    return str(caught.value)


def test_a_tenth_is_held_out_for_each_of_validation_and_test(tmp_path: Path) -> None:
    frame(200).to_csv(tmp_path / "films.csv", index=False)
    data = load(train=tmp_path / "films.csv")
    assert data.task.name == "films" and data.task.labels == ("no", "yes")
    assert data.test is not None
    assert [len(part) for part in (data.train, data.validation, data.test)] == [160, 20, 20]
    assert len({*data.train.texts, *data.validation.texts, *data.test.texts}) == 200
    assert data.train.texts[0] == f"text {data.train.rows[0] - 2}"
    assert np.bincount(data.validation.targets).tolist() == [10, 10]
    notes = " ".join(data.notes)
    assert "text is column 'text', label is column 'label'" in notes and "'no', 'yes'" in notes
    assert "20 of 200 training rows are held out for test (data seed 0)" in notes
    assert (
        notes.count("These are few: with folds = 5, all rows are validation rows.") == 1
    )  # of validation, not of test
    other = load(train=tmp_path / "films.csv", data_seed=1)
    assert other.validation.digest() != data.validation.digest()
    assert load(train=tmp_path / "films.csv").train.digest() == data.train.digest()


def test_an_unknown_task_type_is_refused() -> None:
    sentence = refusal(train=frame(20), task_type="regresion")
    assert "'regresion' is not known (did you mean 'regression'?); pass one of text-classification" in sentence


def test_given_validation_examples_and_no_test_set() -> None:
    data = load(train=frame(20), validation=frame(10, 100), test="none")
    assert data.test is None and len(data.train) == 20 and len(data.validation) == 10
    assert "There is no test set, as requested." in data.notes
    assert len(load(train=frame(20), validation="hold out", test=frame(2)).validation) == 2


def test_first_rows_and_held_out_share(tmp_path: Path) -> None:
    frame(50).to_csv(tmp_path / "train.csv", index=False)
    frame(50).to_parquet(tmp_path / "train.parquet")
    for file in ("train.csv", "train.parquet"):
        data = load(train=tmp_path / file, first_rows=20, held_out_share=0.2, test="none")
        assert (len(data.train), len(data.validation)) == (16, 4)
        assert set(data.train.texts + data.validation.texts) == set(frame(20)["text"])
        assert "Of 50 training rows the first 20 are used." in data.notes
    assert len(load(train=tmp_path / "train.csv", first_rows=60, test="none").train) == 45


def test_refused_splits() -> None:
    unknown = pd.DataFrame({"text": ["a", "b"], "label": ["no", "Yes"]})
    sentence = refusal(train=frame(20), validation=unknown, test="none")
    assert "the validation data, row 2, column 'label': the label 'Yes'" in sentence and "'yes'" in sentence
    renamed = frame(2).rename(columns={"label": "lable"})
    assert "there is no column 'label' (did you mean 'lable'?)" in refusal(train=frame(20), validation=renamed)
    hidden = frame(2).assign(label=-1)
    sentence = refusal(train=frame(20), test=hidden)
    assert "the test data, column 'label': no row has a label" in sentence and "--test none" in sentence
    assert "the label is missing" in refusal(train=frame(20), validation=frame(2).assign(label=["no", None]))


def test_the_column_that_the_model_was_trained_on_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,coment\n1,good\n")
    with pytest.raises(
        FrostlineError, match=r"no column 'comment' \(did you mean 'coment'\?\), which the model was trained on"
    ):
        read_unlabelled(tmp_path / "a.csv", trained={"text": "comment"})
    assert read_unlabelled(tmp_path / "a.csv", text_column="coment", trained={"text": "comment"})[0].texts == ("good",)
    texts, _ = read_unlabelled(frame(2), trained={"text": "comment"})  # another column has a common name
    assert texts.texts == tuple(frame(2)["text"])


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
    assert load(train=tmp_path / "folder" / file, test="none").task.name == name


def test_unlabelled_texts(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    texts, _ = read_unlabelled(tmp_path / "a.tsv")
    assert texts.texts == ("a",) and texts.pairs == ("b",) and texts.rows.tolist() == [2]
    assert read_unlabelled(frame(2), text_column="label")[0].texts == ("no", "yes")


STSB = ["genre", "file", "year", "id", "score", "sentence1", "sentence2"]
COLA = ["source", "label", "mark", "sentence"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data does not exist")
@pytest.mark.parametrize(
    ("name", "column_names", "sizes"),
    [
        ("amazon_reviews", None, (6800, 1200, None)),
        ("cola", COLA, (8551, 1043, None)),
        ("mrpc", None, (3668, 408, None)),
        pytest.param("nsmc", None, (150_000, None, 50_000), marks=pytest.mark.slow),
        ("rte", None, (2490, 277, None)),
        ("sst2", None, (67_349, 872, None)),
        ("stsb", STSB, (5749, 1500, 1379)),
        ("wnli", None, (635, 71, None)),
    ],
)
def test_the_real_files(name: str, column_names: list[str] | None, sizes: tuple[int | None, ...]) -> None:
    data = load(data=SHARED / name, column_names=column_names)
    assert data.test is not None
    held = min(round(0.1 * (sizes[0] or 0)), 2000)
    validation, test = sizes[1] or held, sizes[2] or held
    train = (sizes[0] or 0) - held * sizes[1:].count(None)
    assert (len(data.train), len(data.validation), len(data.test)) == (train, validation, test)
    if name == "stsb":
        assert data.task.task_type == REGRESSION and data.report.splits["train"].target_range == (0.0, 5.0)
    else:
        assert data.task.labels == (("entailment", "not_entailment") if name == "rte" else ("0", "1"))
    if name == "nsmc":
        assert [data.report.splits[split].empty_texts for split in ("train", "test")] == [5, 3]
    if name == "cola":
        assert data.train.rows.min() == 1 or data.test.rows.min() == 1


WORDS = [["Anna", "sings"]]
OF_WORDS = "the table has sentences of words, but the model reads whole texts; give a table of texts, or a model that tags words."
OF_TEXTS = "the table has texts, but the model tags words; give a CoNLL file or lists of words, or a model of texts."


@pytest.mark.parametrize("trained", [None, {"text": "review"}])
@pytest.mark.parametrize("name", ["t.conll", "t.txt", "t.jsonl"])
def test_sentences_for_a_model_of_texts_are_refused(
    tmp_path: Path, name: str, trained: dict[str, str | None] | None
) -> None:
    (tmp_path / name).write_text("Anna\tO\nsings\tO\n")
    if name == "t.jsonl":
        pd.DataFrame({"tokens": WORDS}).to_json(tmp_path / name, orient="records", lines=True)
    with pytest.raises(FrostlineError) as caught:
        read_unlabelled(tmp_path / name, trained=trained)
    assert str(caught.value) == f"{tmp_path / name}: {OF_WORDS}"


@pytest.mark.parametrize("trained", [None, {"text": "tokens"}])
def test_texts_for_a_model_of_words_are_refused(tmp_path: Path, trained: dict[str, str | None] | None) -> None:
    frame(4).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(FrostlineError) as caught:
        read_unlabelled(tmp_path / "t.csv", trained=trained, task_type=TOKENS)
    assert str(caught.value) == f"{tmp_path / 't.csv'}: {OF_TEXTS}"
    with pytest.raises(FrostlineError, match="name one with --text-column"):
        read_unlabelled(pd.DataFrame({"mine": WORDS}), task_type=TOKENS)
