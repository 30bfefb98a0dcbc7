"""Folders, saved data sets and hub data sets with splits."""

from pathlib import Path

import datasets
import pytest

from frostline.data.wording import listed
from loaded import frame, loaded, refused


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
    frame(2).to_csv((tmp_path / train).with_name("extra.csv"), index=False)
    if "_matched" in validation:
        frame(2).to_csv(tmp_path / "dev_mismatched.csv", index=False)
    data = loaded(data=tmp_path)
    assert data.test is not None and data.task.name == tmp_path.name
    assert [len(part) for part in (data.train, data.validation, data.test)] == [8, 6, 4]
    left_out = ["dev_mismatched.csv"] * ("_matched" in validation) + ["extra.csv"]
    assert any(
        note.startswith(f"{tmp_path}: left out") and note.endswith(f": {listed(left_out)}.") for note in data.notes
    )
    assert loaded(data=tmp_path, test="none").test is None
    assert len(loaded(data=tmp_path, validation=frame(2)).validation) == 2


def test_shards_form_one_table(tmp_path: Path) -> None:
    for i in range(2):
        frame(10, 10 * i).to_parquet(tmp_path / f"train-{i:05}-of-00002.parquet")
    data = loaded(data=tmp_path, validation=frame(2), test="none")
    assert data.train.texts == tuple(frame(20)["text"]) and data.train.rows.tolist() == list(range(1, 21))


def test_shards_that_are_missing_or_of_other_classes_are_refused(tmp_path: Path) -> None:
    """Half of the rows were trained on, or numbers of the second shard got the names of the first one."""

    def write(name: str, *classes: str) -> None:
        kinds = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=list(classes))}
        rows = {"text": [f"{name} {n}" for n in range(20)], "label": [0, 1] * 10}
        datasets.Dataset.from_dict(rows, features=datasets.Features(kinds)).to_parquet(str(tmp_path / name))

    write("train-00000-of-00002-0123456789abcdef.parquet", "neg", "pos")
    assert "1 of the 2 files of the train split are there" in refused(data=tmp_path)
    write("train-00001-of-00002-0123456789abcdef.parquet", "pos", "neg")
    assert "the classes of its labels differ" in refused(data=tmp_path)
    write("train-00001-of-00002-0123456789abcdef.parquet", "neg", "pos")
    assert len(loaded(data=tmp_path, test="none").train) == 36


def test_saved_data_sets_and_hub_data_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    requested: list[tuple[str, str | None]] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config: requested.append((name, config)) or mnli)
    for data in (loaded(data=tmp_path / "mnli"), loaded(data="nyu-mll/glue", config="mnli")):
        assert data.task.labels == ("neg", "pos") and data.task.columns.text_pair == "hypothesis"
        assert data.test is not None and data.validation.targets.tolist() == [1, 0]
        assert len(data.train) == 18 and len(data.test) == 2  # the unlabelled test split is not used
        assert any("test_matched) has no labels and is left out" in note for note in data.notes)
    assert requested == [("nyu-mll/glue", "mnli")] and data.task.name == "glue-mnli"


def test_two_splits_that_could_be_the_same_are_refused(tmp_path: Path) -> None:
    part = datasets.Dataset.from_pandas(frame(20))
    datasets.DatasetDict(train_r1=part, train_r2=part, dev_r1=part).save_to_disk(tmp_path / "rounds")
    said = refused(data=tmp_path / "rounds")
    assert "'train_r1', 'train_r2' could all be the train split; pass the intended one" in said


def test_refused_sources(tmp_path: Path) -> None:
    frame(20).to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "empty").mkdir()
    (tmp_path / "twice").mkdir()
    for name in ("train.csv", "train.tsv"):
        frame(20).to_csv(tmp_path / "twice" / name, index=False)
    endings = ".csv, .tsv, .txt, .jsonl, .ndjson, .json, .parquet, .conll, .bio, .iob2, .conllu"
    for source, options, message in (
        (tmp_path, {}, f"no file ({endings}) has train in"),
        (tmp_path, {}, "(found: 'a.csv', 'empty', 'twice'); rename one"),
        (tmp_path / "empty", {}, "has train in its name (there is no file at all); rename"),
        (tmp_path / "a.csv", {}, "or the file as train"),
        (tmp_path, {"config": "cola"}, "is for hub data sets"),
        (tmp_path / "twice", {}, "'train.csv', 'train.tsv' could all be the train split"),
    ):
        assert message in refused(data=source, **options)
    assert "either --train FILE or --data NAME" in refused()
