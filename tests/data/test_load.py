"""From files, folders, hub sets and frames to the examples of a task."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

from frostline import FrostlineError
from frostline.data import REGRESSION, Examples, class_weights, load_data, overlap, read_unlabelled

SHARED = Path(__file__).parents[3] / "shared" / "data"  # ../shared/data, seen from the repository


def frame(rows: int, first: int = 0) -> pd.DataFrame:
    return pd.DataFrame(
        {"text": [f"text {i}" for i in range(first, first + rows)], "label": ["no", "yes"] * (rows // 2)}
    )


def refusal(**options: Any) -> str:
    with pytest.raises(FrostlineError) as caught:
        load_data(**options)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    return str(caught.value)


def test_a_tenth_each_is_set_aside(tmp_path: Path) -> None:
    frame(200).to_csv(tmp_path / "films.csv", index=False)
    data = load_data(train=tmp_path / "films.csv")
    assert data.task.name == "films" and data.task.labels == ("no", "yes")
    assert data.test is not None
    assert [len(part) for part in (data.train, data.validation, data.test)] == [160, 20, 20]
    assert len({*data.train.texts, *data.validation.texts, *data.test.texts}) == 200
    assert data.train.texts[0] == f"text {data.train.rows[0] - 2}"
    assert np.bincount(data.validation.targets).tolist() == [10, 10]
    notes = " ".join(data.notes)
    assert "text is column 'text', label is column 'label'" in notes and "'no', 'yes'" in notes
    assert "20 of 200 training rows are set aside for test (data seed 0)" in notes
    other = load_data(train=tmp_path / "films.csv", data_seed=1)
    assert other.validation.digest() != data.validation.digest()
    assert load_data(train=tmp_path / "films.csv").train.digest() == data.train.digest()


def test_folds_set_nothing_aside() -> None:
    data = load_data(train=frame(50), folds=5)
    assert data.folds is not None and np.bincount(data.folds).tolist() == [10] * 5 and data.train_rows == 40
    assert data.validation is data.train and data.test is None and len(data.train) == 50
    notes = " ".join(data.notes)
    assert "All 50 rows are validation, in 5 folds" in notes and "as asked" not in notes and "set aside" in notes
    assert data.report.shared == {}
    tested = load_data(train=frame(50), folds=5, test=frame(10, 100))
    assert tested.test is not None and len(tested.train) == 50
    assert "leave validation out" in refusal(train=frame(50), validation=frame(10, 100), folds=5)
    assert "set nothing aside" in refusal(train=frame(50), held_out_share=0.2, folds=5)
    assert "10 folds of 40 rows leave 4 in one" in refusal(train=frame(40), folds=10)


def test_folds_are_for_few_rows_where_it_is_left_to_us() -> None:
    assert load_data(train=frame(100), folds="auto").folds is not None
    others = {"validation": frame(10, 200)}, {"held_out_share": 0.2}
    for more in ({"train": frame(2000)}, {"train": frame(20)}, *({"train": frame(100), **one} for one in others)):
        data = load_data(**more, folds="auto")
        assert data.folds is None and data.train_rows == len(data.train)


def test_given_splits_and_no_test() -> None:
    data = load_data(train=frame(20), validation=frame(10, 100), test="none")
    assert data.test is None and len(data.train) == 20 and len(data.validation) == 10
    assert "There is no test set, as asked." in data.notes
    assert len(load_data(train=frame(20), validation="hold out", test=frame(2)).validation) == 2


@pytest.mark.parametrize(
    ("train", "validation", "test"),
    [
        ("train.csv", "dev.csv", "test.csv"),
        ("ratings_train.csv", "ratings_valid.csv", "ratings_test.csv"),
        ("data/train-00000-of-00001.csv", "data/validation-00000-of-00001.csv", "data/test-00000-of-00001.csv"),
        ("train.csv", "dev_matched.csv", "test_matched.csv"),
    ],
)
def test_a_folder_with_splits(tmp_path: Path, train: str, validation: str, test: str) -> None:
    (tmp_path / "data").mkdir()
    for rows, name in zip((8, 6, 4), (train, validation, test), strict=True):
        frame(rows).to_csv(tmp_path / name, index=False)
    (tmp_path / "LICENSE.txt").write_text("none of it")
    if "_matched" in validation:
        frame(2).to_csv(tmp_path / "dev_mismatched.csv", index=False)
    data = load_data(data=tmp_path)
    assert data.test is not None and data.task.name == tmp_path.name
    assert [len(part) for part in (data.train, data.validation, data.test)] == [8, 6, 4]
    assert load_data(data=tmp_path, test="none").test is None
    assert len(load_data(data=tmp_path, validation=frame(2)).validation) == 2


def test_the_first_rows_only_and_another_share_held_out(tmp_path: Path) -> None:
    frame(50).to_csv(tmp_path / "train.csv", index=False)
    frame(50).to_parquet(tmp_path / "train.parquet")
    for file in ("train.csv", "train.parquet"):
        data = load_data(train=tmp_path / file, first_rows=20, held_out_share=0.2, test="none")
        assert (len(data.train), len(data.validation)) == (16, 4)
        assert set(data.train.texts + data.validation.texts) == set(frame(20)["text"])
        assert "Of 50 training rows the first 20 are read." in data.notes
    assert len(load_data(train=tmp_path / "train.csv", first_rows=60, test="none").train) == 45


def test_a_tenth_is_held_out_but_no_more_than_runs_can_score_in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(load_data(train=frame(50), test="none").validation) == 5
    monkeypatch.setattr("frostline.data.load.MOST_HELD_OUT", 3)
    assert len(load_data(train=frame(50), test="none").validation) == 3
    assert len(load_data(train=frame(50), test="none", held_out_share=0.1).validation) == 5  # as asked


def test_a_share_held_out_leaves_rows_to_train_on() -> None:
    assert "for each of test and validation leaves no training rows: give less than 0.5." in refusal(
        train=frame(50), held_out_share=0.5
    )
    assert "for each of validation leaves" in refusal(train=frame(50), test=frame(10, 100), held_out_share=1.0)
    assert load_data(train=frame(50), test="hold out", held_out_share=0.6, folds=3).train_rows < 20


def test_shards_are_one_table(tmp_path: Path) -> None:
    for i in range(2):
        frame(10, 10 * i).to_parquet(tmp_path / f"train-{i:05}-of-00002.parquet")
    data = load_data(data=tmp_path, validation=frame(2), test="none")
    assert data.train.texts == tuple(frame(20)["text"]) and data.train.rows.tolist() == list(range(1, 21))


def test_saved_and_hub_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = datasets.ClassLabel(names=["neg", "pos"])
    features = datasets.Features({"premise": datasets.Value("string"), "hypothesis": datasets.Value("string")})
    features["label"] = names

    def split(labels: list[int]) -> datasets.Dataset:
        texts = [f"text {i}" for i in range(len(labels))]
        return datasets.Dataset.from_dict({"premise": texts, "hypothesis": texts, "label": labels}, features=features)

    mnli = datasets.DatasetDict(
        train=split([0, 1] * 10), validation_matched=split([1, 0]), validation_mismatched=split([1, 0, 0]),
        test_matched=split([-1] * 5), test_mismatched=split([-1] * 5),
    )  # fmt: skip
    mnli.save_to_disk(tmp_path / "mnli")
    asked: list[tuple[str, str | None]] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config: asked.append((name, config)) or mnli)
    for data in (load_data(data=tmp_path / "mnli"), load_data(data="nyu-mll/glue", config="mnli")):
        assert data.task.labels == ("neg", "pos") and data.task.columns.text_pair == "hypothesis"
        assert data.test is not None and data.validation.targets.tolist() == [1, 0]
        assert len(data.train) == 18 and len(data.test) == 2  # the hidden test labels are no test set
        assert any("test_matched) has no labels and is left out" in note for note in data.notes)
    assert asked == [("nyu-mll/glue", "mnli")] and data.task.name == "glue-mnli"


def test_several_splits_of_one_word_are_refused(tmp_path: Path) -> None:
    part = datasets.Dataset.from_pandas(frame(20))
    datasets.DatasetDict(train_r1=part, train_r2=part, dev_r1=part).save_to_disk(tmp_path / "rounds")
    assert "'train_r1', 'train_r2' could all be the train split; pass the one" in refusal(data=tmp_path / "rounds")


def test_refused_sources(tmp_path: Path) -> None:
    frame(20).to_csv(tmp_path / "a.csv", index=False)
    assert "one of the two" in refusal() and "one of the two" in refusal(train=frame(20), data=tmp_path)
    assert (
        "no file (.csv, .tsv, .txt, .jsonl, .ndjson, .json, .parquet) has train in its name, of 'a.csv'; name"
        in refusal(data=tmp_path)
    )
    assert "pass it with --train" in refusal(data=tmp_path / "a.csv")
    assert "'cola' is for" in refusal(train=frame(20), config="cola")
    assert "is for hub sets" in refusal(data=tmp_path, config="cola")
    assert "k is chosen on validation" in refusal(train=frame(20), validation="none")
    for name in ("train.csv", "train.tsv"):
        frame(20).to_csv(tmp_path / name, index=False)
    assert "'train.csv', 'train.tsv' could all be the train split" in refusal(data=tmp_path)
    sentence = refusal(data="no-such/hub-set-anywhere")
    assert "no hub set could be loaded by that name" in sentence and "--config" in sentence


def test_refused_splits() -> None:
    unknown = pd.DataFrame({"text": ["a", "b"], "label": ["no", "Yes"]})
    sentence = refusal(train=frame(20), validation=unknown, test="none")
    assert "the validation data, row 2, column 'label': the label 'Yes'" in sentence and "'yes'" in sentence
    renamed = frame(2).rename(columns={"label": "lable"})
    assert "there is no column 'label', the nearest is 'lable'" in refusal(train=frame(20), validation=renamed)
    hidden = frame(2).assign(label=-1)
    sentence = refusal(train=frame(20), test=hidden)
    assert "the test data, column 'label': no row has a label" in sentence and "--test none" in sentence
    assert "the label is missing" in refusal(train=frame(20), validation=frame(2).assign(label=["no", None]))


def test_too_few_rows_to_set_aside() -> None:
    rare = pd.concat([frame(40), pd.DataFrame({"text": ["rare", "rarer"], "label": ["maybe", "maybe"]})])
    sentence = refusal(train=rare)
    assert "the label 'maybe' has too few rows" in sentence and "--validation FILE" in sentence


def test_what_is_odd_is_said() -> None:
    train = pd.DataFrame({"text": ["a", "b", "b", " ", "NA", "c"], "label": ["x", "x", "y", "y", "x", "y"]})
    data = load_data(train=train, validation=pd.DataFrame({"text": ["a", "d"], "label": ["x", "x"]}), test="none")
    said = data.notes[-4:]
    assert said == (
        "Warning: 1 of 2 validation rows have a text that train has too.",
        "Warning: 1 training text stands there with more than one label.",
        "1 train row has an empty text (row 4); it is kept.",
        "No validation row has the label 'y'.",
    )
    assert data.report.repeated == {"train": 1, "validation": 0} and data.report.conflicting == 1
    assert data.report.splits["train"].label_counts == {"x": 3, "y": 3}
    assert data.report.splits["train"].characters["max"] == 2
    assert json.loads(json.dumps(data.report.as_dict()))["shared"] == {"train/validation": 1}
    assert overlap(data.train, data.validation).tolist() == [0]


def test_unlabelled_texts(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    texts, _ = read_unlabelled(tmp_path / "a.tsv")
    assert texts.texts == ("a",) and texts.pairs == ("b",) and texts.rows.tolist() == [2]
    assert read_unlabelled(frame(2), text_column="label")[0].texts == ("no", "yes")


def pairs(texts: list[str], others: list[str] | None, targets: list[int]) -> Examples:
    return Examples(
        texts=tuple(texts),
        pairs=None if others is None else tuple(others),
        rows=np.arange(len(texts)),
        name="t",
        targets=np.array(targets),
    )


def test_digests_tell_everything_apart() -> None:
    variants = [
        pairs(["ab", "c"], None, [0, 1]),
        pairs(["a", "bc"], None, [0, 1]),
        pairs(["c", "ab"], None, [1, 0]),
        pairs(["ab", "c"], None, [0, 0]),
        pairs(["ab", "c"], ["", ""], [0, 1]),
        pairs(["a", "c"], ["b", ""], [0, 1]),
        pairs(["ab"], None, [0]),
    ]
    assert len({one.digest() for one in variants}) == len(variants)
    assert variants[0].row_digests()[0] != variants[4].row_digests()[0] != variants[5].row_digests()[0]
    assert variants[0].take(np.array([1, 0])).digest() == variants[2].digest()
    assert variants[2].take(np.array([1])).digest() == variants[6].digest()


def test_class_weights() -> None:
    targets, labels = np.array([0, 0, 0, 2]), ("a", "b", "c")
    assert class_weights(targets, "none", labels).tolist() == [1, 1, 1]
    assert class_weights(targets, "balanced", labels).tolist() == pytest.approx([4 / 6, 1, 2])
    assert class_weights(targets, {"c": 3, "a": 1, "b": 0}, labels).tolist() == [1, 0, 3]


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("balance", "'balance' are not known, the nearest is 'balanced'"),
        ({"a": 1, "B": 2}, "'B', the nearest is 'b'; the labels are 'a', 'b'"),
        ({"a": 1}, "leave out 'b'; give a weight"),
        ({"a": 1, "b": -1}, "of 'b' is -1; give numbers from 0 up"),
        ({"a": 0, "b": 0}, "not all of them 0"),
    ],
)
def test_refused_class_weights(spec: Any, what: str) -> None:
    with pytest.raises(FrostlineError) as caught:
        class_weights(np.array([0, 1]), spec, ("a", "b"))
    assert what in str(caught.value)


def test_importing_is_cheap() -> None:
    code = (
        "import sys, frostline.data; print({'torch', 'transformers', 'pandas', 'datasets', 'sklearn'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_all_is_sorted_and_there() -> None:
    import frostline.data

    constants_first = sorted(frostline.data.__all__, key=lambda name: (not name.isupper(), name.islower(), name))
    assert frostline.data.__all__ == constants_first
    assert all(hasattr(frostline.data, name) for name in frostline.data.__all__)


STSB = ["genre", "file", "year", "id", "score", "sentence1", "sentence2"]
COLA = ["source", "label", "mark", "sentence"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not there")
@pytest.mark.parametrize(
    ("name", "column_names", "sizes"),
    [
        ("amazon_reviews", None, (6800, 1200, None)),
        ("cola", COLA, (8551, 1043, None)),
        ("mrpc", None, (3668, 408, None)),
        ("nsmc", None, (150_000, None, 50_000)),
        ("rte", None, (2490, 277, None)),
        ("sst2", None, (67_349, 872, None)),
        ("stsb", STSB, (5749, 1500, 1379)),
        ("wnli", None, (635, 71, None)),
    ],
)
def test_the_real_files(name: str, column_names: list[str] | None, sizes: tuple[int | None, ...]) -> None:
    data = load_data(data=SHARED / name, column_names=column_names)
    assert data.test is not None
    held = min(round(0.1 * (sizes[0] or 0)), 2000)
    validation, test = sizes[1] or held, sizes[2] or held
    train = (sizes[0] or 0) - held * sizes[1:].count(None)
    assert (len(data.train), len(data.validation), len(data.test)) == (train, validation, test)
    if name == "stsb":
        assert data.task.problem_type == REGRESSION and data.report.splits["train"].target_range == (0.0, 5.0)
    else:
        assert data.task.labels == (("entailment", "not_entailment") if name == "rte" else ("0", "1"))
    if name == "nsmc":
        assert [data.report.splits[split].empty_texts for split in ("train", "test")] == [5, 3]
    if name == "cola":
        assert data.train.rows.min() == 1 or data.test.rows.min() == 1
