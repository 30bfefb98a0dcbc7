"""Synthetic GLUE data in the layouts of the hub and of the original files, with the quirks of both."""

from pathlib import Path
from typing import Any

import datasets

from frostline.data.glue import GLUE, glue_task
from frostline.data.load import Data

NAMES = tuple(task.name for task in GLUE.values())


SIZES = {"train": 8, "validation": 4, "validation_mismatched": 2}


HARD = ('"half a quote', 'she said "no", twice', "", "NA", "line\u2028separator", "가나다", "a, b", "plain")


RAW = {
    "CoLA": "01",
    "SST-2": "01",
    "MRPC": "01",
    "QQP": "01",
    "WNLI": "01",
}  # class labels as digits; the other tasks have names


def text(name: str, split: str, i: int, part: int) -> str:
    return f"{HARD[(i + part) % len(HARD)]} {name} {split} {i}.{part}".strip()


def target(name: str, i: int) -> Any:
    """The target of row ``i``: every class occurs in every split, in a mixed order."""
    return (0.0, 3.8, 5.0, 2.2, 1.333)[i % 5] if name == "STS-B" else (i + i // 3) % len(glue_task(name).labels)


def raw(name: str, i: int) -> str:
    """The target of row ``i`` as the original files write it."""
    if name == "STS-B":
        return f"{target(name, i):.3f}"
    return str(target(name, i)) if name in RAW else glue_task(name).labels[target(name, i)]


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


LABELS = ("label", "Quality", "score", "is_duplicate", "gold_label")


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
    """Assert that two data sets have the same texts, targets and labels in every split."""
    assert one.task.name == two.task.name and one.task.labels == two.task.labels
    assert one.task.task_type == two.task.task_type and set(one.other_splits) == set(two.other_splits)
    splits = [(one.train, two.train), (one.validation, two.validation)]
    for first, second in [*splits, *((one.other_splits[key], two.other_splits[key]) for key in one.other_splits)]:
        assert first.texts == second.texts and first.pairs == second.pairs
        assert first.targets.dtype == second.targets.dtype and first.targets.tolist() == second.targets.tolist()
        assert first.digest() == second.digest()
