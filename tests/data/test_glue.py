"""GLUE's tasks: the hub's layout and the original files, with their quirks, give the same examples."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import scipy.stats
import sklearn.metrics as sk

from frostline import FrostlineError
from frostline.data import REGRESSION, Data, glue_task, load_data
from frostline.data.glue import GLUE, HUB_SET
from frostline.statistics.metrics import check_metric, score

NAMES = tuple(task.name for task in GLUE.values())
PAIRED = tuple(name for name in NAMES if name not in ("CoLA", "SST-2"))
SIZES = {"train": 8, "validation": 4, "validation_mismatched": 2}
HARD = ('"half a quote', 'she said "no", twice', "", "NA", "line\u2028separator", "가나다", "a, b", "plain")
RAW = {"CoLA": "01", "SST-2": "01", "MRPC": "01", "QQP": "01", "WNLI": "01"}  # the others write words


def text(name: str, split: str, i: int, part: int) -> str:
    return f"{HARD[(i + part) % len(HARD)]} {name} {split} {i}.{part}".strip()


def target(name: str, i: int) -> Any:
    """Every class in every split, and not one after the other."""
    return (0.0, 3.8, 5.0, 2.2, 1.333)[i % 5] if name == "STS-B" else (i + i // 3) % len(glue_task(name).labels)


def raw(name: str, i: int) -> str:
    if name == "STS-B":
        return f"{target(name, i):.3f}"
    return str(target(name, i)) if name in RAW else glue_task(name).labels[target(name, i)]


def hub_set(name: str, sizes: dict[str, int] = SIZES) -> datasets.DatasetDict:
    """As on the hub: class names, 32-bit scores, an index, and a test split whose labels are hidden."""
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
LABELS = ("label", "Quality", "score", "is_duplicate", "gold_label")


def line(name: str, header: str, split: str, i: int) -> str:
    """One row under a header; what nobody reads is filled with numbers, or with the wrong texts' quotation marks."""
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
    """The files of GLUE's distribution; a test file has no labels, and a header in CoLA too."""
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
    """Same texts, targets and labels, split by split."""
    assert one.task.name == two.task.name and one.task.labels == two.task.labels
    assert one.task.problem_type == two.task.problem_type and set(one.others) == set(two.others)
    splits = [(one.train, two.train), (one.validation, two.validation)]
    for mine, theirs in [*splits, *((one.others[key], two.others[key]) for key in one.others)]:
        assert mine.texts == theirs.texts and mine.pairs == theirs.pairs
        assert mine.targets.dtype == theirs.targets.dtype and mine.targets.tolist() == theirs.targets.tolist()
        assert mine.digest() == theirs.digest()


def refusal(**options: Any) -> str:
    with pytest.raises(FrostlineError) as caught:
        load_data(**options)
    sentence = str(caught.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


def test_the_nine_tasks() -> None:
    assert NAMES == ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI")
    facts = {task.name: (task.labels, task.metric) for task in GLUE.values()}
    assert facts == {
        "CoLA": (("unacceptable", "acceptable"), "matthews_correlation"),
        "SST-2": (("negative", "positive"), "accuracy"),
        "MRPC": (("not_equivalent", "equivalent"), "f1"),
        "STS-B": ((), "spearmanr"),
        "QQP": (("not_duplicate", "duplicate"), "f1"),
        "MNLI": (("entailment", "neutral", "contradiction"), "accuracy"),
        "QNLI": (("entailment", "not_entailment"), "accuracy"),
        "RTE": (("entailment", "not_entailment"), "accuracy"),
        "WNLI": (("not_entailment", "entailment"), "accuracy"),
    }


@pytest.mark.parametrize("written", ["SST-2", "sst2", "sst-2", "SST2", "Sst_2", " sst 2"])
def test_names_in_any_case(written: str) -> None:
    assert glue_task(written).name == "SST-2"


def test_an_unknown_name_gets_the_nearest() -> None:
    sentence = refusal(glue="colla")
    assert sentence.startswith(
        "--glue 'colla' is no task of GLUE, the nearest is 'CoLA'; pass one of CoLA, SST-2, MRPC"
    )
    with pytest.raises(FrostlineError, match="'imdb' is no task of GLUE"):
        glue_task("imdb")


@pytest.mark.parametrize("name", NAMES)
def test_original_files_give_what_the_hub_gives(tmp_path: Path, name: str) -> None:
    hub_set(name).save_to_disk(tmp_path / "saved")
    saved, files = (
        load_data(glue=name, data=tmp_path / "saved", test="none"),
        load_data(glue=name.lower(), data=original(tmp_path / "files", name), test="none"),
    )
    assert_same(saved, files)
    for data in (saved, files):
        assert data.task.name == name and len(data.train) == 8 and len(data.validation) == 4
        assert data.train.texts == tuple(text(name, "train", i, 0) for i in range(8))
        assert data.train.targets.tolist() == [target(name, i) for i in range(8)]
        assert data.validation.texts == tuple(text(name, "validation", i, 0) for i in range(4))
        assert (data.train.pairs is not None) == (name in PAIRED)
        if data.train.pairs is not None:
            assert data.train.pairs == tuple(text(name, "train", i, 1) for i in range(8))
        assert (data.task.problem_type == REGRESSION) == (name == "STS-B")
    assert files.train.rows[0] == (1 if name == "CoLA" else 2)


@pytest.mark.parametrize("name", NAMES)
def test_a_hidden_test_split_is_left_out_and_said(tmp_path: Path, name: str) -> None:
    many = {"train": 40, "validation": 4, "validation_mismatched": 2}
    hub_set(name, many).save_to_disk(tmp_path / "saved")
    data = load_data(glue=name, data=tmp_path / "saved")
    assert data.test is not None and data.test.name == data.train.name and len(data.train) + len(data.test) == 40
    split = "test_matched" if name == "MNLI" else "test"
    assert f"{tmp_path / 'saved'} ({split}) has no labels and is left out." in data.notes
    files = original(tmp_path / "files", name)
    folder = load_data(glue=name, data=files, validation=files / next(one.name for one in files.glob("dev*")))
    test = files / ("test_matched.tsv" if name == "MNLI" else "test.tsv")
    assert f"{test} has no labels and is left out." in folder.notes
    assert f"{test}: there is no column" in refusal(glue=name, data=files, test=test)


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
        load_data(glue=name, data=tmp_path / "hub", test="none"),
        load_data(glue=name, data=tmp_path / "saved", test="none"),
    )


@pytest.mark.parametrize("name", NAMES)
def test_from_the_hub(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *what: asked.append(what) or hub_set(name))
    files = load_data(glue=name, data=original(tmp_path, name), test="none")
    for data in (None, HUB_SET, "somebody/else"):
        assert_same(load_data(glue=name, data=data, test="none"), files)
    config = glue_task(name).config
    assert asked == [(HUB_SET, config), (HUB_SET, config), ("somebody/else", None)]
    many = {"train": 40, "validation": 4, "validation_mismatched": 2}
    monkeypatch.setattr(datasets, "load_dataset", lambda *what: hub_set(name, many))
    data = load_data(glue=name)
    assert data.test is not None and len(data.train) + len(data.test) == 40
    split = "test_matched" if name == "MNLI" else "test"
    assert f"{HUB_SET}, {config} ({split}) has no labels and is left out." in data.notes


def test_no_hub_is_said_with_what_to_do() -> None:
    sentence = refusal(glue="cola")
    assert sentence.startswith("--glue CoLA: 'nyu-mll/glue' could not be loaded from the hub (")
    assert "give the files of CoLA with --data FOLDER or --train FILE" in sentence
    assert "--data 'no/such-set': there is no such folder, and no hub set with CoLA" in refusal(
        glue="cola", data="no/such-set"
    )


def test_a_folder_of_all_tasks(tmp_path: Path) -> None:
    """As the usual script writes it."""
    for name in ("CoLA", "RTE"):
        original(tmp_path / "glue_data" / name, name)
    data = load_data(glue="rte", data=tmp_path / "glue_data", test="none")
    assert_same(data, load_data(glue="rte", data=tmp_path / "glue_data" / "RTE", test="none"))


@pytest.mark.parametrize("name", NAMES)
def test_files_by_their_own_flags(tmp_path: Path, name: str) -> None:
    """One split of either layout beside the other: the columns of training decide what they are called."""
    files, saved = original(tmp_path / "files", name), hub_set(name)
    dev = "dev_matched.tsv" if name == "MNLI" else "dev.tsv"
    both = load_data(glue=name, train=files / "train.tsv", validation=files / dev, test="none")
    mixed = load_data(
        glue=name,
        train=saved["train"],
        validation=files / dev,
        test=saved["validation_matched" if name == "MNLI" else "validation"],
    )
    assert_same(both, mixed)
    assert mixed.test is not None and mixed.test.digest() == mixed.validation.digest()
    assert mixed.task.columns == glue_task(name).layouts[0] and both.others == {}
    frame = pd.DataFrame(saved["train"].to_pandas())
    assert_same(both, load_data(glue=name, train=frame, validation=files / dev, test="none"))


def test_mnli_has_two_validation_sets_and_rows_without_gold_label(tmp_path: Path) -> None:
    files = original(tmp_path, "MNLI")
    lines = (files / "train.tsv").read_text().splitlines(keepends=True)
    odd = "\t".join(("8", "8", "x", "nobody", "agreed", "neutral", "-")) + "\n"
    write(files / "train.tsv", [*lines[:3], odd, *lines[3:], odd])
    data = load_data(glue="mnli", data=files, test="none")
    assert len(data.train) == 8 and "nobody" not in data.train.texts
    assert data.train.rows.tolist() == [2, 3, 5, 6, 7, 8, 9, 10]
    note = f"{files / 'train.tsv'}: 2 of 10 rows have no gold label (column 'gold_label' is '-') and are left out."
    assert note in data.notes
    assert list(data.others) == ["validation_mismatched"] and len(data.others["validation_mismatched"]) == 2
    assert data.others["validation_mismatched"].texts[0] == text("MNLI", "validation_mismatched", 0, 0)
    assert data.validation.name.endswith("dev_matched.tsv") and set(data.report.splits) == {"train", "validation"}
    write(files / "train.tsv", [lines[0], odd])
    assert "no row has a gold label; give a file of MNLI" in refusal(glue="mnli", data=files)


def test_mnli_as_its_authors_hand_it_on(tmp_path: Path) -> None:
    for split in ("train", "dev_matched", "dev_mismatched"):
        header = "gold_label\tsentence1_parse\tsentence1\tsentence2\tpromptID"
        word = {"dev_matched": "validation", "dev_mismatched": "validation_mismatched"}.get(split, split)
        lines = [header + "\n", *(line("MNLI", header, word, i) for i in range(SIZES[word]))]
        write(tmp_path / "a" / f"multinli_1.0_{split}.txt", lines)
        (tmp_path / "a" / f"multinli_1.0_{split}.jsonl").write_text("{}")
    assert_same(
        load_data(glue="mnli", data=tmp_path / "a", test="none"),
        load_data(glue="mnli", data=original(tmp_path / "b", "MNLI"), test="none"),
    )


def test_only_mnli_has_others(tmp_path: Path) -> None:
    write(original(tmp_path, "RTE") / "dev_mismatched.tsv", ["sentence1\tsentence2\tlabel\n", "a\tb\tentailment\n"])
    assert load_data(glue="rte", data=tmp_path, test="none").others == {}
    saved = hub_set("RTE")
    saved["validation_mismatched"] = saved["validation"]
    saved.save_to_disk(tmp_path / "saved")
    assert load_data(glue="rte", data=tmp_path / "saved", test="none").others == {}
    plain = load_data(train=tmp_path / "train.tsv", validation=tmp_path / "dev.tsv", test="none")
    assert plain.others == {}


def test_broken_rows_of_qqp_are_counted(tmp_path: Path) -> None:
    files = original(tmp_path, "QQP")
    lines = (files / "train.tsv").read_text().splitlines(keepends=True)
    broken = ["9\t1\t2\tHow is\n", " it?\tWhy?\t0\n", "10\t1\t2\ta\ttab\tin it\t1\n", "11\t1\t2\tno\tlabel\t\n"]
    write(files / "train.tsv", [*lines[:3], *broken[:2], *lines[3:], *broken[2:]])
    data = load_data(glue="qqp", data=files, test="none")
    assert data.train.texts == tuple(text("QQP", "train", i, 0) for i in range(8))
    assert data.train.rows.tolist() == [2, 3, 6, 7, 8, 9, 10, 11]
    train = files / "train.tsv"
    assert data.notes[0] == (
        f"{train}: 3 of 12 rows do not have the 6 cells of the header (row 4, 5, 12) and are left out."
    )
    assert f"{train}: 1 of 9 rows have no gold label (column 'is_duplicate' is '') and are left out." in data.notes
    write(train, [lines[0], *broken[:2] * 6])
    assert "none of its 12 rows has 6 cells" in refusal(glue="qqp", data=files)
    write(train, [*lines, *broken[:2] * 6])
    assert "12 of 20 rows" in (note := load_data(glue="qqp", data=files, test="none").notes[0])
    assert "(row 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, ...)" in note


def test_a_broken_row_elsewhere_is_refused(tmp_path: Path) -> None:
    files = original(tmp_path, "RTE")
    with (files / "train.tsv").open("a") as file:
        file.write("9\tcut short\n")
    assert "train.tsv, row 10: 2 cells where the header has 4" in refusal(glue="rte", data=files)


def test_cola_by_its_public_names(tmp_path: Path) -> None:
    rows = [f"gj04\t{i % 2}\t\ttext {i}\n" for i in range(8)]
    write(tmp_path / "in_domain_train.tsv", rows)
    write(tmp_path / "in_domain_dev.tsv", [row.replace("text", "dev") for row in rows[:4]])
    data = load_data(glue="cola", data=tmp_path, test="none")
    assert len(data.train) == 8 and data.validation.texts == tuple(f"dev {i}" for i in range(4))
    write(tmp_path / "out_of_domain_dev.tsv", [row.replace("text", "far") for row in rows[:2]])
    data = load_data(glue="cola", data=tmp_path, test="none")
    assert data.validation.texts == (*(f"dev {i}" for i in range(4)), "far 0", "far 1")  # as GLUE's own dev.tsv
    assert data.validation.targets.tolist() == [0, 1, 0, 1, 0, 1]
    assert "in_domain_dev.tsv and 1 more" in data.validation.name
    note = f"{tmp_path}: 'in_domain_dev.tsv', 'out_of_domain_dev.tsv' are read as one validation split, as in GLUE."
    assert note in data.notes


def test_mrpc_by_its_public_names(tmp_path: Path) -> None:
    files = original(tmp_path / "glue", "MRPC")
    for split, old in (("train", "train"), ("test", "dev")):
        path = tmp_path / "msr" / f"msr_paraphrase_{split}.txt"
        write(path, [(files / f"{old}.tsv").read_bytes().decode("utf-8")])
    data = load_data(glue="mrpc", data=tmp_path / "msr", validation=files / "dev.tsv")
    assert_same(data, load_data(glue="mrpc", data=files, test="none"))
    assert data.test is not None and data.test.digest() == data.validation.digest()
    # The usual script leaves all of them in one folder, with a list of numbers beside them.
    write(files / "dev_ids.tsv", ["1\t2\n"])
    for split in ("train", "test"):
        write(files / f"msr_paraphrase_{split}.txt", ["never read\n"])
    assert_same(
        load_data(glue="mrpc", data=files, test="none"), load_data(glue="mrpc", data=tmp_path / "glue", test="none")
    )


def test_the_original_files_of_stsb(tmp_path: Path) -> None:
    for split, stem in (("train", "sts-train"), ("validation", "sts-dev"), ("test", "sts-test")):
        rows = [
            f"main\tMSR\t2012\t{i}\t{raw('STS-B', i)}\t{text('STS-B', split, i, 0)}\t{text('STS-B', split, i, 1)}"
            + "\textra\tcells\n" * (i % 2)
            + "\n" * (1 - i % 2)
            for i in range(SIZES.get(split, 3))
        ]
        write(tmp_path / "sts" / f"{stem}.csv", rows)
    data = load_data(glue="stsb", data=tmp_path / "sts")
    assert data.test is not None and data.test.targets.tolist() == [0.0, 3.8, 5.0]
    assert_same(data, load_data(glue="sts-b", data=original(tmp_path / "glue", "STS-B"), test="none"))
    train = tmp_path / "sts" / "sts-train.csv"
    assert f"{train}: 4 rows have more cells than the 7 columns named; the rest was left out." in data.notes


@pytest.mark.parametrize("name", [one for one in NAMES if one != "STS-B"])
def test_labels_as_numbers_or_words(name: str) -> None:
    """In the hub's order, whichever way they are written."""
    columns = glue_task(name).layouts[-1]
    labels = glue_task(name).labels
    order = [i % len(labels) for i in range(6)]
    expected = None
    for cells in ([labels[i] for i in order], order, [str(i) for i in order]):
        frame = pd.DataFrame({one: [f"{one} {i}" for i in range(6)] for one in task_columns(name)})
        frame[columns.label] = cells
        data = load_data(glue=name, train=frame, validation=frame, test="none")
        assert data.task.labels == labels and data.train.targets.tolist() == order
        expected = expected or data
        assert_same(data, expected)


def test_wrong_labels_and_scores(tmp_path: Path) -> None:
    files = original(tmp_path / "rte", "RTE")
    with (files / "train.tsv").open("a") as file:
        file.write("9\ta\tb\tentailed\n")
    sentence = refusal(glue="rte", data=files)
    assert "train.tsv, row 10, column 'label': 'entailed' is no label of RTE, the nearest is 'entailment'" in sentence
    assert "'entailment', 'not_entailment', or their numbers from 0 on: correct it, or give" in sentence
    stsb = original(tmp_path / "stsb", "STS-B")
    content = (stsb / "train.tsv").read_text()
    for wrong in ("5.2", "-0.5", "much"):
        (stsb / "train.tsv").write_text(content.replace("3.800", wrong, 1))
        sentence = refusal(glue="stsb", data=stsb)
        assert f"row 3, column 'score': '{wrong}' is no score of STS-B, which go from 0 to 5" in sentence
    for gone in ("", " "):
        (stsb / "train.tsv").write_text(content.replace("3.800", gone, 1))
        assert "row 3, column 'score': the label is missing" in refusal(glue="stsb", data=stsb)


def test_the_data_of_another_task(tmp_path: Path) -> None:
    hub_set("CoLA").save_to_disk(tmp_path / "cola")
    sentence = refusal(glue="sst2", data=tmp_path / "cola")
    assert (
        "its classes are 'unacceptable', 'acceptable', and those of SST-2 are 'negative', 'positive'; give" in sentence
    )
    hub_set("RTE").save_to_disk(tmp_path / "rte")
    assert "those of STS-B are none, but scores" in refusal(glue="stsb", data=tmp_path / "rte")
    sentence = refusal(glue="mrpc", data=tmp_path / "cola")
    assert "are not those of MRPC ('sentence1', 'sentence2', 'label' or " in sentence
    assert "'#1 String', '#2 String', 'Quality'); give a file of MRPC, or leave out --glue" in sentence
    unlike = tmp_path / "cola.tsv"
    unlike.write_text("text\tlabel\na\t1\nb\t0\n")
    assert "its columns ('text', 'label') are not those of CoLA" in refusal(glue="cola", train=unlike)
    unlabelled = tmp_path / "unlabelled.tsv"
    unlabelled.write_text("index\tsentence\n0\ta\n")
    assert "it has no labels of CoLA (column 'label'); give a training file" in refusal(glue="cola", train=unlabelled)


@pytest.mark.parametrize(
    "beside",
    [
        {"text_column": "sentence"},
        {"text_pair_column": "sentence2"},
        {"label_column": "label"},
        {"column_names": ["a", "b"]},
        {"problem_type": "regression"},
        {"labels": ["a", "b"]},
        {"config": "cola"},
    ],
)
def test_what_the_task_says_cannot_be_said_again(tmp_path: Path, beside: dict[str, Any]) -> None:
    flag = "--" + next(iter(beside)).replace("_", "-")
    sentence = refusal(glue="cola", data=original(tmp_path, "CoLA"), **beside)
    assert sentence.startswith(f"{flag} beside --glue CoLA, which says") and "leave it out" in sentence
    assert "leave them out" in refusal(glue="cola", text_column="a", label_column="b")


def test_both_sources_and_missing_folders(tmp_path: Path) -> None:
    files = original(tmp_path / "cola", "CoLA")
    assert "one of the two" in refusal(glue="cola", train=files / "train.tsv", data=files)
    assert "this is a file, not a folder" in refusal(glue="cola", data=files / "train.tsv")
    (tmp_path / "empty").mkdir()
    assert "has train in its name" in refusal(glue="cola", data=tmp_path / "empty")
    assert "there is no such file, the nearest is 'train.tsv'" in refusal(glue="cola", train=files / "trian.tsv")
    (files / "train.tsv").write_bytes(b"gj04\t1\t\tcaf\xe9\n")
    assert "is not UTF-8" in refusal(glue="cola", data=files)


def test_the_name_of_the_task_can_be_given(tmp_path: Path) -> None:
    data = load_data(glue="wnli", data=original(tmp_path, "WNLI"), test="none", task_name="Winograd")
    assert data.task.name == "Winograd" and data.task.labels == ("not_entailment", "entailment")


@pytest.mark.parametrize("name", NAMES)
def test_the_metric_by_hand(name: str) -> None:
    task = glue_task(name)
    if name == "STS-B":
        targets, logits = np.array([0.0, 2.5, 5.0, 3.0]), np.array([[0.4], [0.1], [4.0], [3.9]])
        expected = scipy.stats.spearmanr(targets, logits[:, 0]).statistic
        assert expected == pytest.approx(0.8)
    else:
        targets, said = np.array([0, 0, 0, 1, 1, 1, 1, 0]), np.array([0, 1, 0, 1, 0, 1, 1, 0])
        logits = np.eye(len(task.labels))[said]
        expected = {
            "accuracy": sk.accuracy_score(targets, said),
            "f1": sk.f1_score(targets, said),  # of the class with index 1
            "matthews_correlation": sk.matthews_corrcoef(targets, said),
        }[task.metric]
        by_hand = {"accuracy": 6 / 8, "f1": 2 * 3 / (2 * 3 + 1 + 1), "matthews_correlation": (3 * 3 - 1) / 16}
        assert expected == pytest.approx(by_hand[task.metric])
    assert check_metric(task.metric, task.problem_type, len(task.labels)) == task.metric
    assert score(targets, logits, task.problem_type)[task.metric] == pytest.approx(expected)


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
    data = load_data(glue=name, data=real_data / name, test=None if name == "stsb" else "none")
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
