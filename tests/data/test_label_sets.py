"""Texts with any number of labels: read from every source, split, and refused where a label is unknown or unclear."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from frostline.data.columns import Columns
from frostline.data.examples import class_weights
from frostline.data.kinds import MULTI_LABEL, TOKENS
from frostline.data.load import Data, labelled_rows
from frostline.data.reader import read_table
from frostline.data.splits import STRATUM_ROWS, strata
from frostline.data.task import Task
from loaded import loaded, refused

TEXTS = [f"text {n}" for n in range(40)]
SETS = [["price", "story"], [], ["story"], ["price"]] * 10
LABELS = ("price", "story")
FLAGS = pd.DataFrame({"text": TEXTS, **{label: [int(label in own) for own in SETS] for label in LABELS}})


def load(sets: Any = SETS, **options: Any) -> Data:
    return loaded(train=pd.DataFrame({"text": TEXTS, "labels": sets}), test="none", **options)


def refusal(table: pd.DataFrame, **options: Any) -> str:
    return refused(train=table, **{"test": "none", **options})


def by_text(data: Data) -> dict[str, list[bool]]:
    parts = [data.train, data.validation]
    return {text: own.tolist() for part in parts for text, own in zip(part.texts, part.targets, strict=True)}


EXPECTED = {text: [label in own for label in LABELS] for text, own in zip(TEXTS, SETS, strict=True)}


def test_lists_of_labels_are_multi_label_classification() -> None:
    data = load()
    assert data.task.task_type == MULTI_LABEL and data.task.labels == LABELS and by_text(data) == EXPECTED
    assert data.train.has_label_sets and not data.train.of_words and data.train.targets.dtype == np.bool_
    assert "Multi-label classification: a text has any number of 2 labels: 'price', 'story'." in data.notes
    assert "9 of 36 train rows have no label." in data.notes
    facts = data.report.splits["train"]
    assert facts.label_counts == dict(zip(LABELS, data.train.targets.sum(0).tolist(), strict=True))
    words = pd.DataFrame(
        {"tokens": [["a", f"b{n}"] for n in range(20)], "tags": [["X", "Y"]] * 20, "text": ["a b"] * 20}
    )
    assert loaded(train=words).task.task_type == TOKENS


@pytest.mark.parametrize("source", ["jsonl", "parquet", "dataset", "numbers", "columns", "true", "separator"])
def test_every_source_gives_the_same_examples(tmp_path: Path, source: str) -> None:
    frame, train, options = pd.DataFrame({"text": TEXTS, "labels": SETS}), Path(), {}
    indices = [[LABELS.index(label) for label in own] for own in SETS]
    given: Any = train
    if source == "jsonl":
        given = tmp_path / "train.jsonl"
        frame.to_json(given, orient="records", lines=True)
    elif source == "parquet":
        given = tmp_path / "train.parquet"
        frame.to_parquet(given)
    elif source == "dataset":
        names = datasets.Features(
            {"text": datasets.Value("string"), "labels": datasets.Sequence(datasets.ClassLabel(names=list(LABELS)))}
        )
        given = datasets.Dataset.from_dict({"text": TEXTS, "labels": indices}, features=names)
    elif source == "numbers":
        given, options = frame.assign(labels=indices), {"labels": LABELS}
    elif source in ("columns", "true"):
        given, options = tmp_path / "train.csv", {"indicator_columns": LABELS}
        FLAGS.astype(dict.fromkeys(LABELS, bool) if source == "true" else {}).to_csv(given, index=False)
    else:
        given, options = tmp_path / "train.csv", {"label_separator": ";"}
        frame.assign(labels=[" ; ".join(own) for own in SETS]).to_csv(given, index=False)
    data = loaded(train=given, test="none", **options)
    assert data.task.labels == LABELS and by_text(data) == EXPECTED
    assert [part.digest() for part in data.splits.values()] == [part.digest() for part in load().splits.values()]
    assert data.task.columns.of_labels == (LABELS if source in ("columns", "true") else ("labels",))


@pytest.mark.parametrize(
    ("labels", "options", "scored", "note"),
    [
        (["price;story", "", "story"], {"label_separator": ";"}, SETS[:3], "1 of 3 rows has none of the labels"),
        ([["price", "story"], [], ["story"]], {}, SETS[:3], None),
        ([["price", "story"], None, ["story"]], {}, SETS[0:3:2], "1 of 3 rows has no label (row 2) and is skipped"),
    ],
)
def test_a_new_text_without_a_label_is_scored_as_in_training(
    labels: list[Any], options: dict[str, Any], scored: list[list[str]], note: str | None
) -> None:
    own = SETS if not options else [";".join(one) for one in SETS]
    task = load(own, **options).task
    table = read_table(pd.DataFrame({"text": TEXTS[:3], "labels": labels}), name="new")
    found = labelled_rows(table, task, task.columns)
    assert found is not None and found[0].targets.tolist() == [[label in one for label in LABELS] for one in scored]
    assert not found[1] if note is None else note in found[1][0]


def test_columns_that_are_all_0_are_labels() -> None:
    data = loaded(train=FLAGS, indicator_columns=LABELS, test=FLAGS[:5].assign(price=0, story=0))
    assert data.test is not None and data.test.targets.shape == (5, 2) and not data.test.targets.any()
    missing = FLAGS[:5].assign(price=None, story=None)
    assert "no row has a label" in refusal(FLAGS, indicator_columns=LABELS, test=missing)


@pytest.mark.parametrize(("names", "given"), [(("b", "a"), ("a", "b")), (("2", "1"), None), (("1", "2"), ("2", "1"))])
def test_numbers_are_indices_of_a_class_label_whatever_the_labels_are(
    names: tuple[str, ...], given: tuple[str, ...] | None
) -> None:
    kinds = {"text": datasets.Value("string"), "labels": datasets.Sequence(datasets.ClassLabel(names=list(names)))}
    indices = [[0], [1], [0, 1], []] * 10
    rows = {"text": [f"text {n}" for n in range(len(indices))], "labels": indices}
    train = datasets.Dataset.from_dict(rows, features=datasets.Features(kinds))
    data = loaded(train=train, labels=given, validation=train.select(range(36)), test="none")
    assert data.task.labels == (given or names)
    expected = {text: {names[n] for n in own} for text, own in zip(rows["text"], indices, strict=True)}
    for text, own in zip(data.train.texts, data.train.targets, strict=True):
        assert {label for label, has in zip(data.task.labels, own, strict=True) if has} == expected[text]


@pytest.mark.parametrize(
    ("labels", "options", "new"),
    [
        (["price", "story"], {}, [1]),  # the order of these labels is our own
        (["12", "A7", "3"], {}, [1]),
        (["12", "A7", "3"], {"labels": ("12", "A7", "3")}, [1]),  # some are numbers themselves
        (["12;A7", "3"], {"label_separator": ";"}, "1"),
        (["12;A7", 3], {"label_separator": ";"}, 1),  # as in the CSV file of the same table
    ],
)
def test_a_number_is_no_label_of_names_without_numbers(labels: list[str], options: dict[str, Any], new: Any) -> None:
    cells = labels if options.get("label_separator") else [[label] for label in labels]
    train = pd.DataFrame({"text": TEXTS, "labels": [cells[n % len(cells)] for n in range(len(TEXTS))]})
    validation = pd.DataFrame({"text": ["a", "b"], "labels": [cells[0], new]})
    assert "row 2, column 'labels': the label '1'" in refusal(train, validation=validation, **options)


def test_numbers_for_a_trained_model_are_places_in_its_order_which_a_note_says() -> None:
    """Whether its labels were named in an order is not known any more."""
    task = Task(name="t", task_type=MULTI_LABEL, labels=LABELS, columns=Columns(text="text", label="labels"))
    found = labelled_rows(read_table(pd.DataFrame({"text": ["a"], "labels": [[1]]}), name="new"), task, task.columns)
    assert found is not None and found[0].targets.tolist() == [[False, True]]
    assert found[1] == ["new: numbers are read as places in the model's order of labels, from 0: 'price', 'story'."]


LISTS = pd.DataFrame({"text": TEXTS, "labels": SETS})


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (LISTS.assign(labels=["price"] * 40), {"task_type": MULTI_LABEL}, "row 1, column 'labels': 'price' is not a list of"),
        (LISTS.assign(labels=[None, *SETS[1:]]), {"task_type": MULTI_LABEL}, "the label is missing; write one"),
        (LISTS.assign(labels=[[["price"]], *SETS[1:]]), {}, "is no label; write a text or a whole number"),
        (LISTS.assign(labels=[[""], *SETS[1:]]), {}, "'' is no label"),
        (LISTS.assign(labels=[[0, 1, 1], [0, 0, 1]] * 20), {}, "row 1, column 'labels': [0, 1, 1] seems to have a number"),
        (LISTS.assign(labels=[[1, 0], [0, 1]] * 20), {"labels": LABELS}, "[1, 0] seems to have a number for each of 2 labels"),
        (LISTS.assign(labels=[[1.0, 0.0, 0.0]] * 40), {}, "[1.0, 0.0, 0.0] seems to have a number for each of 3 labels"),
        (LISTS.assign(labels=[[4, 3, 4], [2, 2, 5]] * 20), {}, "[4, 3, 4] seems to have a number for each of 3 labels"),
        (LISTS.assign(labels=["0,1,1", "0,0,1"] * 20), {"label_separator": ","}, "['0', '1', '1'] seems to have a number for"),
        (LISTS.assign(labels=[[]] * 40), {}, "no row has a label"),
        (LISTS.assign(labels=[["price"], []] * 20), {}, "the only label is 'price'"),
        (LISTS.assign(labels=[[f"label {n}"] for n in range(40)]), {}, "40 different labels in 40 rows"),
        (LISTS, {"validation": LISTS.assign(labels=[["prize"], *SETS[1:]])}, "row 1, column 'labels': the label 'prize' (did"),
        (LISTS, {"validation": LISTS.assign(labels=[[]] * 40)}, "no row has a label"),
        (
            LISTS.assign(labels=["price;story", "story"] * 20),
            {"label_separator": ";", "validation": LISTS.assign(labels=[""] * 40)},
            "no row has a label",
        ),
        (FLAGS, {"indicator_columns": LABELS, "glue": "SST-2"}, "--indicator-columns cannot be given with SST-2 of GLUE"),
        (FLAGS, {"indicator_columns": ["price", "plot"]}, "there is no column 'plot'"),
        (FLAGS, {"indicator_columns": ["price"]}, "is one label only"),
        (FLAGS, {"indicator_columns": ["price", "price"]}, "chosen for two purposes"),
        (FLAGS, {"indicator_columns": LABELS, "labels": LABELS}, "leave --labels out"),
        (FLAGS, {"indicator_columns": LABELS, "label_column": "story"}, "leave --label-column or --indicator-columns out"),
        (FLAGS, {"indicator_columns": LABELS, "task_type": "regression"}, "but --task-type is regression"),
        (FLAGS.assign(price=[2, *FLAGS["price"][1:]]), {"indicator_columns": LABELS}, "'price': 2 is neither 0 nor 1"),
        (FLAGS.assign(price=[None, *FLAGS["price"][1:]]), {"indicator_columns": LABELS}, "the cell is empty"),
        (FLAGS.assign(price=0), {"indicator_columns": LABELS}, "no row has a 1"),
        (FLAGS, {"indicator_columns": LABELS, "validation": FLAGS.drop(columns="price")}, "there is no column 'price', which"),
    ],
)  # fmt: skip
def test_unclear_labels_are_refused(table: pd.DataFrame, options: dict[str, Any], message: str) -> None:
    assert message in refusal(table, **options)


SETS_OF_LABELS = arrays.arrays(np.bool_, st.tuples(st.integers(1, 60), st.integers(2, 5)))


@given(SETS_OF_LABELS)
def test_the_stratum_of_a_text_is_its_rarest_label_that_is_not_too_rare(targets: np.ndarray) -> None:
    rows, found = targets.sum(0), strata(targets)
    for own, stratum in zip(targets, found, strict=True):
        common = [n for n in np.flatnonzero(own) if rows[n] >= STRATUM_ROWS]
        assert stratum in common and rows[stratum] == min(rows[common]) if common else stratum == targets.shape[1]


@given(SETS_OF_LABELS)
def test_balanced_weights_give_both_sides_of_a_label_the_same_weight(targets: np.ndarray) -> None:
    names = [str(n) for n in range(targets.shape[1])]
    for own, weight in zip(targets.T, class_weights(targets, "balanced", names), strict=True):
        assert weight == 1 if own.all() or not own.any() else weight * own.sum() == pytest.approx((~own).sum())
