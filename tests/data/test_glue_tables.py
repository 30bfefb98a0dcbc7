"""GLUE tables: labels, scores, rows without a gold label, and rows with a wrong number of cells."""

from pathlib import Path

import pandas as pd
import pytest

from frostline.data.glue import glue_task
from glue_layouts import (
    NAMES,
    assert_same,
    hub_set,
    original,
    task_columns,
    text,
    write,
)
from loaded import loaded, refused


@pytest.mark.parametrize("name", NAMES)
def test_splits_given_one_by_one_may_have_different_layouts(tmp_path: Path, name: str) -> None:
    """The columns get the names of the training table."""
    files, saved = original(tmp_path / "files", name), hub_set(name)
    dev = "dev_matched.tsv" if name == "MNLI" else "dev.tsv"
    both = loaded(glue=name, train=files / "train.tsv", validation=files / dev, test="none")
    mixed = loaded(
        glue=name,
        train=saved["train"],
        validation=files / dev,
        test=saved["validation_matched" if name == "MNLI" else "validation"],
    )
    assert_same(both, mixed)
    assert mixed.test is not None and mixed.test.digest() == mixed.validation.digest()
    assert mixed.task.columns == glue_task(name).layouts[0] and both.other_splits == {}
    frame = pd.DataFrame(saved["train"].to_pandas())
    assert_same(both, loaded(glue=name, train=frame, validation=files / dev, test="none"))


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
    assert list(data.other_splits) == ["validation_mismatched"] and len(data.other_splits["validation_mismatched"]) == 2
    assert data.other_splits["validation_mismatched"].texts[0] == text("MNLI", "validation_mismatched", 0, 0)
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


def test_a_broken_row_of_another_task_is_refused(tmp_path: Path) -> None:
    files = original(tmp_path, "RTE")
    with (files / "train.tsv").open("a") as file:
        file.write("9\tcut short\n")
    assert "train.tsv, row 10: the row has 2 cells and the header has 4" in refused(glue="rte", data=files)


@pytest.mark.parametrize("name", [one for one in NAMES if one != "STS-B"])
def test_labels_as_numbers_or_names(name: str) -> None:
    """The labels have the order of the hub in both cases."""
    columns = glue_task(name).layouts[-1]
    labels = glue_task(name).labels
    order = [i % len(labels) for i in range(6)]
    expected = None
    for cells in ([labels[i] for i in order], order, [str(i) for i in order]):
        frame = pd.DataFrame({one: [f"{one} {i}" for i in range(6)] for one in task_columns(name)})
        frame[columns.label] = cells
        data = loaded(glue=name, train=frame, validation=frame, test="none")
        assert data.task.labels == labels and data.train.targets.tolist() == order
        expected = expected or data
        assert_same(data, expected)


def test_wrong_labels_and_scores(tmp_path: Path) -> None:
    files = original(tmp_path / "rte", "RTE")
    with (files / "train.tsv").open("a") as file:
        file.write("9\ta\tb\tentailed\n")
    sentence = refused(glue="rte", data=files)
    assert (
        "train.tsv, row 10, column 'label': 'entailed' is not a label of RTE (did you mean 'entailment'?)" in sentence
    )
    assert "'entailment', 'not_entailment', or their numbers from 0: correct it, or give" in sentence
    stsb = original(tmp_path / "stsb", "STS-B")
    content = (stsb / "train.tsv").read_text()
    for wrong in ("5.2", "-0.5", "much"):
        (stsb / "train.tsv").write_text(content.replace("3.800", wrong, 1))
        sentence = refused(glue="stsb", data=stsb)
        assert f"row 3, column 'score': '{wrong}' is not a score of STS-B, whose scores are from 0 to 5" in sentence
    for gone in ("", " "):
        (stsb / "train.tsv").write_text(content.replace("3.800", gone, 1))
        assert "row 3, column 'score': the label is missing" in refused(glue="stsb", data=stsb)


def test_the_data_of_another_task(tmp_path: Path) -> None:
    hub_set("CoLA").save_to_disk(tmp_path / "cola")
    sentence = refused(glue="sst2", data=tmp_path / "cola")
    assert (
        "its classes are 'unacceptable', 'acceptable', but the labels of SST-2 are 'negative', 'positive'; give"
        in sentence
    )
    hub_set("RTE").save_to_disk(tmp_path / "rte")
    assert "but the labels of STS-B are scores" in refused(glue="stsb", data=tmp_path / "rte")
    sentence = refused(glue="mrpc", data=tmp_path / "cola")
    assert "are not the columns of MRPC ('sentence1', 'sentence2', 'label' or " in sentence
    assert "'#1 String', '#2 String', 'Quality'); give a file of MRPC, or leave out `glue`" in sentence
    other = tmp_path / "cola.tsv"
    other.write_text("text\tlabel\na\t1\nb\t0\n")
    assert "its columns ('text', 'label') are not the columns of CoLA" in refused(glue="cola", train=other)
    unlabelled = tmp_path / "unlabelled.tsv"
    unlabelled.write_text("index\tsentence\n0\ta\n")
    assert "it has no labels of CoLA (column 'label'); give a training file" in refused(glue="cola", train=unlabelled)
