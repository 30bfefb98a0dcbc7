"""The tasks of GLUE in every layout in which they are distributed, with synthetic data and its quirks."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

from frostline.data.glue import GLUE, HUB_SET, glue_task
from frostline.data.kinds import REGRESSION
from frostline.data.load import Data
from loaded import loaded, refused

NAMES = tuple(task.name for task in GLUE.values())
DIFFERENT = ("CoLA", "MRPC", "STS-B", "MNLI")  # no header, another first line, scores, two validation sets
SIZES = {"train": 8, "validation": 4, "validation_mismatched": 2}
HARD = ('"half a quote', 'she said "no", twice', "", "NA", "line\u2028separator", "가나다", "a, b", "plain")


DIGITS = ("CoLA", "SST-2", "MRPC", "QQP", "WNLI")  # class labels are digits; the other tasks have names
LABELS = ("label", "Quality", "score", "is_duplicate", "gold_label")


def text(name: str, split: str, i: int, part: int) -> str:
    return f"{HARD[(i + part) % len(HARD)]} {name} {split} {i}.{part}".strip()


def target(name: str, i: int) -> Any:
    """The target of row ``i``: every class occurs in every split, in a mixed order."""
    return (0.0, 3.8, 5.0, 2.2, 1.333)[i % 5] if name == "STS-B" else (i + i // 3) % len(glue_task(name).labels)


def raw(name: str, i: int) -> str:
    """The target of row ``i`` as the original files write it."""
    if name == "STS-B":
        return f"{target(name, i):.3f}"
    return str(target(name, i)) if name in DIGITS else glue_task(name).labels[target(name, i)]


def hub_set(name: str, sizes: dict[str, int] = SIZES) -> datasets.DatasetDict:
    """A data set as on the hub: class names, 32-bit scores, an index, and a test split with hidden labels."""
    task = glue_task(name)
    first, second, label = task.layouts[0].text, task.layouts[0].text_pair, task.layouts[0].label
    kind = datasets.ClassLabel(names=list(task.labels)) if task.labels else datasets.Value("float32")
    features = {first: datasets.Value("string"), label: kind, "idx": datasets.Value("int32")}
    if second:
        features[second] = datasets.Value("string")

    def split(word: str, rows: int) -> datasets.Dataset:
        columns = {first: [text(name, word, i, 0) for i in range(rows)], "idx": list(range(rows))}
        if second:
            columns[second] = [text(name, word, i, 1) for i in range(rows)]
        columns[label] = [-1 if word == "test" else target(name, i) for i in range(rows)]
        return datasets.Dataset.from_dict(columns, features=datasets.Features(features))

    splits = {word: split(word, rows) for word, rows in {**sizes, "test": 3}.items()}
    mismatched = splits.pop("validation_mismatched")
    if name != "MNLI":
        return datasets.DatasetDict(splits)
    matched = {"validation_matched": splits["validation"], "test_matched": splits["test"]}
    others = {"validation_mismatched": mismatched, "test_mismatched": split("test", 2)}
    return datasets.DatasetDict(train=splits["train"], **matched, **others)


HEADERS = {
    "SST-2": "sentence\tlabel",
    "MRPC": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "STS-B": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "QQP": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "MNLI": "index\tpromptID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label",
    "QNLI": "index\tquestion\tsentence\tlabel",
    "RTE": "index\tsentence1\tsentence2\tlabel",
    "WNLI": "index\tsentence1\tsentence2\tlabel",
}


def line(name: str, header: str, split: str, i: int) -> str:
    """One row for a header. Columns that frostline does not read contain numbers, or an unmatched quotation mark."""
    own = [column for column in task_columns(name) if column not in LABELS]
    cells = {column: text(name, split, i, part) for part, column in enumerate(own)}
    cells |= dict.fromkeys(LABELS, raw(name, i)) | {"genre": '"odd'}
    return "\t".join(cells.get(column.removeprefix("\ufeff"), str(i)) for column in header.split("\t")) + "\n"


def task_columns(name: str) -> list[str]:
    columns = glue_task(name).layouts[-1]
    return [one for one in (columns.text, columns.text_pair, columns.label) if one]


def write(path: Path, lines: list[str], end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(lines).replace("\n", end).encode())


def original(folder: Path, name: str) -> Path:
    """The files as GLUE distributes them. Test files have no labels; CoLA has a header only in its test file."""
    for split, rows in {**SIZES, "test": 3}.items():
        mismatched = split == "validation_mismatched"
        if mismatched and name != "MNLI":
            continue
        stem = {"validation": "dev", "validation_mismatched": "dev_mismatched"}.get(split, split)
        stem += "_matched" if name == "MNLI" and stem in ("dev", "test") else ""
        if split == "test":
            own = [one.removeprefix("\ufeff") for one in task_columns(name)]
            header = "\t".join(["index", *(one for one in own if one not in LABELS)])
            lines = [header + "\n", *(line(name, header, split, i) for i in range(rows))]
        elif name == "CoLA":
            lines = [f"gj04\t{raw(name, i)}\t{'*' * (i % 2)}\t{text(name, split, i, 0)}\n" for i in range(rows)]
        else:
            lines = [HEADERS[name] + "\n", *(line(name, HEADERS[name], split, i) for i in range(rows))]
        write(folder / f"{stem}.tsv", lines, "\r\n" if name == "MRPC" else "\n")
    return folder


def assert_same(one: Data, two: Data) -> None:
    """Assert that two data sets have the same texts, targets and labels in every split but test."""
    assert one.task.name == two.task.name and one.task.labels == two.task.labels
    names = {*one.splits} - {"test"}
    assert one.task.task_type == two.task.task_type and names == {*two.splits} - {"test"}
    for first, second in ((one.splits[name], two.splits[name]) for name in names):
        assert first.texts == second.texts and first.pairs == second.pairs
        assert first.targets.dtype == second.targets.dtype and first.targets.tolist() == second.targets.tolist()
        assert first.digest() == second.digest()


@pytest.mark.parametrize("name", NAMES)
def test_original_files_and_the_hub_give_the_same_examples(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As GLUE's own files, saved by ``datasets``, as Parquet shards of a copy of the hub's folder, and from the hub."""
    splits, config, requested = hub_set(name), glue_task(name).config, list[tuple[str, str | None]]()
    splits.save_to_disk(tmp_path / "saved")
    files = loaded(glue=name.lower(), data=original(tmp_path / "files", name), test="none")
    for below in ("data", config, f"{config}/data", "."):
        folder = tmp_path / f"hub of {below.replace('/', ' and ')}" / below
        folder.mkdir(parents=True)
        for split, table in splits.items():
            parts = 2 if split == "train" else 1
            for part in range(parts):
                shard = table.shard(parts, part, contiguous=True)
                shard.to_parquet(str(folder / f"{split}-{part:05}-of-{parts:05}.parquet"))
    monkeypatch.setattr(datasets, "load_dataset", lambda *what: requested.append(what) or splits)
    for data in (tmp_path / "saved", *sorted(tmp_path.glob("hub of *")), None, HUB_SET, "somebody/else"):
        assert_same(loaded(glue=name, data=data, test="none"), files)
    assert requested == [(HUB_SET, config), (HUB_SET, config), ("somebody/else", None)]
    assert files.task.name == name and (files.task.task_type == REGRESSION) == (name == "STS-B")
    assert (files.train.pairs is not None) == (name not in ("CoLA", "SST-2"))
    for part, split, rows in ((files.train, "train", 8), (files.validation, "validation", 4)):
        assert part.texts == tuple(text(name, split, i, 0) for i in range(rows))
        assert part.pairs is None or part.pairs == tuple(text(name, split, i, 1) for i in range(rows))
        assert part.targets.tolist() == [target(name, i) for i in range(rows)]
    assert files.train.rows[0] == (1 if name == "CoLA" else 2)


@pytest.mark.parametrize("name", DIFFERENT)
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


@pytest.mark.parametrize(
    "options", [{"glue": "cola"}, {"glue": "cola", "data": "no/such-set"}, {"data": "no/such-set"}]
)
def test_an_unreachable_hub_is_reported_with_a_remedy(options: dict[str, str]) -> None:
    sentence = refused(**options)
    assert sentence.startswith(f"{options.get('data', HUB_SET)!r} is no folder and cannot be loaded from the hub (")
    assert "check the name and the network, or give a folder with --data." in sentence


def test_other_files_beside_those_of_glue_are_not_read(tmp_path: Path) -> None:
    """The common download script leaves all files in one folder, with a list of row ids."""
    files, plain = original(tmp_path / "both", "MRPC"), original(tmp_path / "plain", "MRPC")
    for name in ("dev_ids.tsv", "msr_paraphrase_train.txt", "msr_paraphrase_test.txt"):
        write(files / name, ["never read\n"])
    assert_same(loaded(glue="mrpc", data=files, test="none"), loaded(glue="mrpc", data=plain, test="none"))


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


REFUSED: list[tuple[dict[str, Any], str]] = [  # of the files of CoLA, and of its data set
    ({"train": "cola/train.tsv", "data": "cola"}, "either --train FILE or --data NAME"),
    ({"data": "cola/train.tsv"}, "this is a file, not a folder"),
    ({"data": "empty"}, "has train in its name"),
    ({"train": "cola/trian.tsv"}, "there is no such file (did you mean 'train.tsv'?)"),
    ({"train": "latin.tsv"}, "is not UTF-8"),
    ({"train": "text.tsv"}, "its columns ('text', 'label') are not the columns of CoLA"),
    ({"train": "cola/test.tsv"}, "it has no labels of CoLA (column 'label'); give a training file"),
    (
        {"glue": "sst2", "data": "saved"},
        "its classes are 'unacceptable', 'acceptable', but the labels of SST-2 are 'negative', 'positive'; give",
    ),
    ({"glue": "mrpc", "data": "saved"}, "are not the columns of MRPC ('sentence1', 'sentence2', 'label' or '#1 String', "),
    ({"glue": "colla"}, "--glue 'colla' is not a task of GLUE (did you mean 'CoLA'?); pass one of CoLA, SST-2, MRPC"),
    ({"glue": "imdb"}, "--glue 'imdb' is not a task of GLUE; pass one of CoLA"),
    ({"data": "cola", "text_column": "sentence"}, "--text-column cannot be given with CoLA of GLUE, which decides"),
    ({"data": "cola", "column_names": ["a", "b"]}, "--column-names cannot be given with CoLA of GLUE, which decides"),
    ({"data": "cola", "config": "cola"}, "leave it out, or leave out `glue`"),
    ({"text_column": "a", "labels": ["b", "c"]}, "--text-column, --labels cannot be given with CoLA of GLUE"),
    ({"glue": "rte", "train": "rte.tsv"}, "row 2, column 'label': 'entailed' is not a label of RTE (did you mean 'entailment'?)"),
    ({"glue": "stsb", "data": "rte"}, "but the labels of STS-B are scores"),
    *(
        ({"glue": "stsb", "train": f"score{score}.tsv"}, f"row 3, column 'score': '{score}' is not a score of STS-B, whose")
        for score in ("5.2", "-0.5", "much")
    ),
    *(({"glue": "stsb", "train": f"score{score}.tsv"}, "row 3, column 'score': the label is missing") for score in ("", " ")),
]  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of CoLA, saved data sets, and files that do not suit. Tests must not write into it."""
    tmp_path = tmp_path_factory.mktemp("sources")
    original(tmp_path / "cola", "CoLA")
    hub_set("CoLA").save_to_disk(tmp_path / "saved")
    hub_set("RTE").save_to_disk(tmp_path / "rte")
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.tsv").write_bytes(b"gj04\t1\t\tcaf\xe9\n")
    (tmp_path / "text.tsv").write_text("text\tlabel\na\t1\nb\t0\n")
    (tmp_path / "rte.tsv").write_text("index\tsentence1\tsentence2\tlabel\n9\ta\tb\tentailed\n")
    for score in ("5.2", "-0.5", "much", "", " "):
        (tmp_path / f"score{score}.tsv").write_text(f"sentence1\tsentence2\tscore\na\tb\t1.0\nc\td\t{score}\n")
    return tmp_path


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_refused_sources(sources: Path, options: dict[str, Any], message: str) -> None:
    paths = {name: sources / options[name] for name in ("train", "data") if name in options}
    assert message in refused(**{"glue": "cola", **options, **paths})


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
        assert [data.train.targets.min(), data.train.targets.max()] == [0.0, 5.0]
    else:
        majority = {"sst2": 0.509, "cola": 0.689, "mrpc": 0.684, "rte": 0.527}
        counts = np.bincount(data.validation.targets) / len(data.validation)
        assert counts.max() == pytest.approx(majority.get(name, counts.max()), abs=5e-4)
    label = {"sst2": "positive", "cola": "acceptable", "mrpc": "equivalent", "rte": "entailment"}.get(name)
    if label:
        assert data.task.labels[int(counts.argmax())] == label


@pytest.mark.parametrize("name", DIFFERENT)
def test_splits_given_one_by_one_are_the_same_in_both_layouts(tmp_path: Path, name: str) -> None:
    files, saved = original(tmp_path / "files", name), hub_set(name)
    dev, validation = ("dev_matched.tsv", "validation_matched") if name == "MNLI" else ("dev.tsv", "validation")
    of_files = loaded(glue=name, train=files / "train.tsv", validation=files / dev, test="none")
    of_hub = loaded(glue=name, train=saved["train"], validation=saved[validation], test="none")
    assert_same(of_files, of_hub)
    assert of_hub.task.columns == glue_task(name).layouts[0]
    frames = {"train": pd.DataFrame(saved["train"].to_pandas()), "validation": saved[validation]}
    assert_same(of_files, loaded(glue=name, **frames, test="none"))


def test_mnli_has_two_validation_sets_and_rows_without_gold_label(tmp_path: Path) -> None:
    files = original(tmp_path, "MNLI")
    lines = (files / "train.tsv").read_text().splitlines(keepends=True)
    odd = "\t".join(("8", "8", "x", "nobody", "agreed", "neutral", "-")) + "\n"
    write(files / "train.tsv", [*lines[:3], odd, *lines[3:], odd])
    data = loaded(glue="mnli", data=files, test="none")
    assert len(data.train) == 8 and "nobody" not in data.train.texts
    assert data.train.rows.tolist() == [2, 3, 5, 6, 7, 8, 9, 10]
    note = f"{files / 'train.tsv'}: 2 of 10 rows have no gold label (column 'gold_label' is '-') and are left out."
    assert note in data.notes
    assert list(data.splits) == ["train", "validation", "validation_mismatched"]
    assert data.splits["validation_mismatched"].texts == tuple(
        text("MNLI", "validation_mismatched", i, 0) for i in (0, 1)
    )
    assert data.validation.name.endswith("dev_matched.tsv") and set(data.report.splits) == {"train", "validation"}
    write(files / "train.tsv", [lines[0], odd])
    assert "no row has a gold label; give a file of MNLI" in refused(glue="mnli", data=files)


def test_broken_rows_of_qqp_are_skipped_and_counted(tmp_path: Path) -> None:
    files = original(tmp_path, "QQP")
    lines = (files / "train.tsv").read_text().splitlines(keepends=True)
    broken = ["9\t1\t2\tHow is\n", " it?\tWhy?\t0\n", "10\t1\t2\ta\ttab\tin it\t1\n", "11\t1\t2\tno\tlabel\t\n"]
    write(files / "train.tsv", [*lines[:3], *broken[:2], *lines[3:], *broken[2:]])
    data = loaded(glue="qqp", data=files, test="none")
    assert data.train.texts == tuple(text("QQP", "train", i, 0) for i in range(8))
    assert data.train.rows.tolist() == [2, 3, 6, 7, 8, 9, 10, 11]
    train = files / "train.tsv"
    assert data.notes[0] == (
        f"{train}: 3 of 12 rows do not have the 6 cells of the header (row 4, 5, 12) and are skipped."
    )
    assert f"{train}: 1 of 9 rows have no gold label (column 'is_duplicate' is '') and are left out." in data.notes
    write(train, [lines[0], *broken[:2] * 6])
    assert "none of its 12 rows has 6 cells" in refused(glue="qqp", data=files)
    write(train, [*lines, *broken[:2] * 6])
    assert "12 of 20 rows" in (note := loaded(glue="qqp", data=files, test="none").notes[0])
    assert "(row 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, ...)" in note


def test_names_in_any_case_and_an_own_one(tmp_path: Path) -> None:
    assert {glue_task(written).name for written in ("SST-2", "sst2", "SST2", "Sst_2", " sst 2")} == {"SST-2"}
    data = loaded(glue="wnli", data=original(tmp_path, "WNLI"), test="none", task="Winograd")
    assert data.task.name == "Winograd" and data.task.labels == ("not_entailment", "entailment")
