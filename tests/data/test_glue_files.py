"""GLUE tasks in all layouts of folders and files in which they are distributed."""

from pathlib import Path

import datasets
import numpy as np
import pytest

from frostline.data.glue import HUB_SET, glue_task
from frostline.data.kinds import REGRESSION
from glue_layouts import (
    NAMES,
    SIZES,
    assert_same,
    hub_set,
    original,
    raw,
    target,
    text,
    write,
)
from loaded import loaded, refused


@pytest.mark.parametrize("name", NAMES)
def test_original_files_and_the_hub_give_the_same_examples(tmp_path: Path, name: str) -> None:
    hub_set(name).save_to_disk(tmp_path / "saved")
    saved, files = (
        loaded(glue=name, data=tmp_path / "saved", test="none"),
        loaded(glue=name.lower(), data=original(tmp_path / "files", name), test="none"),
    )
    assert_same(saved, files)
    for data in (saved, files):
        assert data.task.name == name and len(data.train) == 8 and len(data.validation) == 4
        assert data.train.texts == tuple(text(name, "train", i, 0) for i in range(8))
        assert data.train.targets.tolist() == [target(name, i) for i in range(8)]
        assert data.validation.texts == tuple(text(name, "validation", i, 0) for i in range(4))
        assert (data.train.pairs is not None) == (name not in ("CoLA", "SST-2"))
        if data.train.pairs is not None:
            assert data.train.pairs == tuple(text(name, "train", i, 1) for i in range(8))
        assert (data.task.task_type == REGRESSION) == (name == "STS-B")
    assert files.train.rows[0] == (1 if name == "CoLA" else 2)


@pytest.mark.parametrize("name", NAMES)
def test_an_unlabelled_test_split_is_left_out_with_a_note(tmp_path: Path, name: str) -> None:
    many = {"train": 40, "validation": 4, "validation_mismatched": 2}
    hub_set(name, many).save_to_disk(tmp_path / "saved")
    data = loaded(glue=name, data=tmp_path / "saved")
    assert data.test is not None and data.test.name == data.train.name and len(data.train) + len(data.test) == 40
    split = "test_matched" if name == "MNLI" else "test"
    assert f"{tmp_path / 'saved'} ({split}) has no labels and is left out." in data.notes
    files = original(tmp_path / "files", name)
    folder = loaded(glue=name, data=files, validation=files / next(one.name for one in files.glob("dev*")))
    test = files / ("test_matched.tsv" if name == "MNLI" else "test.tsv")
    assert f"{test} has no labels and is left out." in folder.notes
    assert f"{test}: there is no column" in refused(glue=name, data=files, test=test)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("below", ["data", "{config}", "{config}/data", "."])
def test_parquet_shards_as_on_the_hub(tmp_path: Path, name: str, below: str) -> None:
    folder = tmp_path / "hub" / below.format(config=glue_task(name).config)
    folder.mkdir(parents=True)
    splits = hub_set(name)
    for split, table in splits.items():
        for part in range(2 if split == "train" else 1):
            shard = table.shard(2, part, contiguous=True) if split == "train" else table
            shard.to_parquet(str(folder / f"{split}-{part:05}-of-{2 if split == 'train' else 1:05}.parquet"))
    splits.save_to_disk(tmp_path / "saved")
    assert_same(
        loaded(glue=name, data=tmp_path / "hub", test="none"),
        loaded(glue=name, data=tmp_path / "saved", test="none"),
    )


@pytest.mark.parametrize("name", NAMES)
def test_hub_data_sets(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[tuple[str, str | None]] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *what: requested.append(what) or hub_set(name))
    files = loaded(glue=name, data=original(tmp_path, name), test="none")
    for data in (None, HUB_SET, "somebody/else"):
        assert_same(loaded(glue=name, data=data, test="none"), files)
    config = glue_task(name).config
    assert requested == [(HUB_SET, config), (HUB_SET, config), ("somebody/else", None)]
    many = {"train": 40, "validation": 4, "validation_mismatched": 2}
    monkeypatch.setattr(datasets, "load_dataset", lambda *what: hub_set(name, many))
    data = loaded(glue=name)
    assert data.test is not None and len(data.train) + len(data.test) == 40
    split = "test_matched" if name == "MNLI" else "test"
    assert f"{HUB_SET}, {config} ({split}) has no labels and is left out." in data.notes


def test_an_unreachable_hub_is_reported_with_a_remedy() -> None:
    sentence = refused(glue="cola")
    assert sentence.startswith("CoLA: 'nyu-mll/glue' could not be loaded from the hub (")
    assert "give the files of CoLA with --data, or check the network" in sentence
    assert "--data 'no/such-set': there is no such folder, and no hub data set with CoLA" in refused(
        glue="cola", data="no/such-set"
    )


def test_a_folder_of_all_tasks(tmp_path: Path) -> None:
    """In the layout of the common download script."""
    for name in ("CoLA", "RTE"):
        original(tmp_path / "glue_data" / name, name)
    data = loaded(glue="rte", data=tmp_path / "glue_data", test="none")
    assert_same(data, loaded(glue="rte", data=tmp_path / "glue_data" / "RTE", test="none"))


def test_only_mnli_has_another_validation_split(tmp_path: Path) -> None:
    write(original(tmp_path, "RTE") / "dev_mismatched.tsv", ["sentence1\tsentence2\tlabel\n", "a\tb\tentailment\n"])
    assert loaded(glue="rte", data=tmp_path, test="none").other_splits == {}
    saved = hub_set("RTE")
    saved["validation_mismatched"] = saved["validation"]
    saved.save_to_disk(tmp_path / "saved")
    assert loaded(glue="rte", data=tmp_path / "saved", test="none").other_splits == {}
    plain = loaded(train=tmp_path / "train.tsv", validation=tmp_path / "dev.tsv", test="none")
    assert plain.other_splits == {}


def test_mrpc_in_the_layout_of_its_authors(tmp_path: Path) -> None:
    files = original(tmp_path / "glue", "MRPC")
    for split, old in (("train", "train"), ("test", "dev")):
        path = tmp_path / "msr" / f"msr_paraphrase_{split}.txt"
        write(path, [(files / f"{old}.tsv").read_bytes().decode("utf-8")])
    data = loaded(glue="mrpc", data=tmp_path / "msr", validation=files / "dev.tsv")
    assert_same(data, loaded(glue="mrpc", data=files, test="none"))
    assert data.test is not None and data.test.digest() == data.validation.digest()
    # The common download script leaves all files in one folder, with a list of row ids.
    write(files / "dev_ids.tsv", ["1\t2\n"])
    for split in ("train", "test"):
        write(files / f"msr_paraphrase_{split}.txt", ["never read\n"])
    assert_same(loaded(glue="mrpc", data=files, test="none"), loaded(glue="mrpc", data=tmp_path / "glue", test="none"))


def test_stsb_in_the_layout_of_its_authors(tmp_path: Path) -> None:
    for split, stem in (("train", "sts-train"), ("validation", "sts-dev"), ("test", "sts-test")):
        rows = [
            f"main\tMSR\t2012\t{i}\t{raw('STS-B', i)}\t{text('STS-B', split, i, 0)}\t{text('STS-B', split, i, 1)}"
            + "\textra\tcells\n" * (i % 2)
            + "\n" * (1 - i % 2)
            for i in range(SIZES.get(split, 3))
        ]
        write(tmp_path / "sts" / f"{stem}.csv", rows)
    data = loaded(glue="stsb", data=tmp_path / "sts")
    assert data.test is not None and data.test.targets.tolist() == [0.0, 3.8, 5.0]
    assert_same(data, loaded(glue="sts-b", data=original(tmp_path / "glue", "STS-B"), test="none"))
    train = tmp_path / "sts" / "sts-train.csv"
    assert f"{train}: 4 rows have more cells than the 7 named columns; these cells are dropped." in data.notes


def test_refused_glue_sources(tmp_path: Path) -> None:
    files = original(tmp_path / "cola", "CoLA")
    assert "either --train FILE or --data NAME" in refused(glue="cola", train=files / "train.tsv", data=files)
    assert "this is a file, not a folder" in refused(glue="cola", data=files / "train.tsv")
    (tmp_path / "empty").mkdir()
    assert "has train in its name" in refused(glue="cola", data=tmp_path / "empty")
    assert "there is no such file (did you mean 'train.tsv'?)" in refused(glue="cola", train=files / "trian.tsv")
    (files / "train.tsv").write_bytes(b"gj04\t1\t\tcaf\xe9\n")
    assert "is not UTF-8" in refused(glue="cola", data=files)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("sst2", (67_349, 872, None)),
        ("cola", (8551, 1043, None)),
        ("mrpc", (3668, 408, None)),
        ("rte", (2490, 277, None)),
        ("wnli", (635, 71, None)),
        ("stsb", (5749, 1500, 1379)),
    ],
)
def test_the_real_files(real_data: Path, name: str, sizes: tuple[int, int, int | None]) -> None:
    data = loaded(glue=name, data=real_data / name, test=None if name == "stsb" else "none")
    assert (len(data.train), len(data.validation), None if data.test is None else len(data.test)) == sizes
    assert data.task.labels == glue_task(name).labels
    if name == "stsb":
        assert data.report.splits["train"].target_range == (0.0, 5.0)
    else:
        majority = {"sst2": 0.509, "cola": 0.689, "mrpc": 0.684, "rte": 0.527}
        counts = np.bincount(data.validation.targets) / len(data.validation)
        assert counts.max() == pytest.approx(majority.get(name, counts.max()), abs=5e-4)
    label = {"sst2": "positive", "cola": "acceptable", "mrpc": "equivalent", "rte": "entailment"}.get(name)
    if label:
        assert data.task.labels[int(counts.argmax())] == label
