"""The prediction task is decided from the labels. Ambiguous labels are refused."""

from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

from frostline import FrostlineError
from frostline.data.columns import choose_columns
from frostline.data.kinds import CLASSIFICATION, REGRESSION
from frostline.data.labels import lists_in
from frostline.data.reader import read_table
from frostline.data.table import Table
from frostline.data.task import Task, decide_task, targets_of
from frostline.statistics.results_table import read_results
from loaded import loaded, sentence_of


def labelled(labels: list[Any]) -> Table:
    frame = pd.DataFrame({"text": [f"text {i}" for i in range(len(labels))], "label": pd.Series(labels, dtype=object)})
    return read_table(frame, name="t.csv")


def decided(table: Table, **options: Any) -> Task:
    return decide_task(table, choose_columns(table), name="t", **options)


def refusal(cells: list[Any], **options: Any) -> str:
    return sentence_of(decided, labelled(cells), **options)


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        (["pos", "neg", "pos"], ("neg", "pos")),
        (["10", "9", "9", "10"], ("9", "10")),
        ([10, 9, -1, 9], ("-1", "9", "10")),
        ([True, False, True], ("False", "True")),
        (["NA", "null", "null"], ("NA", "null")),
    ],
)
def test_classes_and_their_order(labels: list[Any], order: tuple[str, ...]) -> None:
    task = decided(labelled(labels))
    assert task.task_type == CLASSIFICATION and task.labels == order
    targets = targets_of(labelled(labels), task, ())
    assert targets.dtype == np.int64 and [order[i] for i in targets] == [str(label) for label in labels]
    assert targets_of(labelled([order[0]] * 2), task, ()).tolist() == [0, 0]  # -1 is no missing label if it is a class


@pytest.mark.parametrize("write", [str, float])
def test_many_fractions_are_a_regression(write: Any) -> None:
    numbers = [i / 7 for i in range(30)]
    table = labelled([write(number) for number in numbers])
    task = decided(table)
    assert task.task_type == REGRESSION and task.labels == ()
    targets = targets_of(table, task, ())
    assert targets.dtype == np.float64 and targets.tolist() == numbers


def test_the_user_overrides_the_decision() -> None:
    few = labelled(["0.5", "1.5", "0.5"])
    assert decided(labelled(["0,5", "1,5"]), task_type=CLASSIFICATION).labels == ("0,5", "1,5")
    assert decided(few, task_type=REGRESSION).task_type == REGRESSION
    assert decided(few, task_type=CLASSIFICATION).labels == ("0.5", "1.5")
    assert decided(few, labels=["1.5", "0.5"]).labels == ("1.5", "0.5")
    assert targets_of(few, decided(few, labels=["1.5", "0.5"]), ()).tolist() == [1, 0, 1]


def test_class_names_of_a_data_set_are_kept() -> None:
    names = datasets.ClassLabel(names=["neg", "neutral", "pos"])
    features = datasets.Features({"text": datasets.Value("string"), "label": names})
    table = read_table(datasets.Dataset.from_dict({"text": ["a", "b"], "label": [2, 0]}, features=features))
    assert decided(table).labels == ("neg", "neutral", "pos")
    assert targets_of(table, decided(table), ()).tolist() == [2, 0]
    hidden = read_table(datasets.Dataset.from_dict({"text": ["a", "b"], "label": [2, -1]}, features=features))
    with pytest.raises(FrostlineError, match="row 2, column 'label': the label is missing; write one"):
        decided(hidden)


LISTS = ["good;books", "bad;books", "", "good", "bad"]
CHOOSE = "which may be classes or a quantity; choose with --task-type text-classification or regression"
REFUSED: list[tuple[list[Any], dict[str, Any], str]] = [  # of the training labels
    ([str(i) for i in range(21)], {}, f"t.csv, column 'label': 21 different integers, {CHOOSE}"),
    (["0.5", "1.5", "2"], {}, CHOOSE),
    ([1.0, 0.5, 1.0], {}, CHOOSE),
    ([0.5, 0.5], {}, f"1 number that is no integer, {CHOOSE}"),
    (["1.5", "2.5", "n/a", "3.5"], {}, "row 3, column 'label': the column mixes 3 distinct numbers with 1 distinct text;"),
    *((["pos", one, "neg", one], {}, "row 2, column 'label': the label is missing (and in 1 more)") for one in ("", "  ", None)),
    (["1", "1", "01", "0"], {}, "'1' and '01' look the same"),
    (["0.5", "2", "0.50"], {"task_type": CLASSIFICATION}, "'0.5' and '0.50' look the same"),
    (["pos", "neg", "\u200b"], {}, "the label '\\u200b' has no visible character; give it a name"),
    (["pos", "neg\ud800"], {}, "the label 'neg\\ud800' contains half a character; write it again"),
    (
        LISTS,
        {},
        "t.csv, column 'label': labels such as 'bad;books' look like lists; choose with --label-separator ';' for several "
        "labels a text, or --task-type text-classification if each is one class.",
    ),
    (["pos", "neg"], {"labels": ["pos", "other"]}, "'neg' is not among --labels"),
    (["pos", "neg"], {"labels": ["pos", "neg", "other"]}, "no row has 'other', which --labels names"),
    (["pos", "neg"], {"labels": ["pos", "neg", "pos"]}, "names 'pos' more than once"),
    (["1", "2"], {"labels": ["1", "2"], "task_type": REGRESSION}, "a regression has none"),
    (["1.5", "1.5"], {"task_type": REGRESSION}, "t.csv, column 'label': every row has the number '1.5'; give rows with"),
    (["0,5", "1,5", "2"], {}, "labels such as '0,5' look like numbers with a decimal comma; write a decimal point, or pass"),
    (["pos", "pos"], {}, "t.csv, column 'label': the only label is 'pos'; give rows of at least two labels"),
    ([["a"], ["b"]], {}, "row 1, column 'label': ['a'] is neither a text nor a number"),
    ([f"name {i}" for i in range(30)], {}, "30 different labels in 30 rows; name the column of the labels with --label-column"),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "options", "message"), REFUSED)
def test_unclear_labels_are_refused(labels: list[Any], options: dict[str, Any], message: str) -> None:
    assert message in refusal(labels, **options)


@pytest.mark.parametrize(
    ("trained", "given", "message"),
    [
        *((["1.5", "2"], ["1.5", one], "row 2, column 'label': .* is not a") for one in ("nan", "1_000", "１", "n/a")),
        *((["1.5", "2"], ["1.5", large], f"row 2, column 'label': '{large}' is too large") for large in ("1e999", "-1e39")),
        (["positive", "negative"], ["negative", "Positive"], r"row 2, .* the label 'Positive' \(did you mean 'positive'\?\)"),
        (["positive", "negative"], ["other"], r"the 2 training labels \('negative', 'positive'\); correct it, or add such rows"),
        (["pos", "neg"], ["neg", "pos\u200b"], r"did you mean 'pos'\? They differ in U\+\w+ ZERO WIDTH SPACE\) is none of"),
        (["pos", "neg"], ["neg", "pоs"], r"did you mean 'pos'\? They differ in U\+\w+ CYRILLIC SMALL LETTER O\) is none of"),
    ],
)  # fmt: skip
def test_labels_that_do_not_suit_the_task_are_refused(trained: list[str], given: list[str], message: str) -> None:
    task = decided(labelled(trained), task_type=REGRESSION if trained[0] == "1.5" else CLASSIFICATION)
    with pytest.raises(FrostlineError, match=message):
        targets_of(labelled(given), task, ())


TWINS = {  # of the label "pos-x", and the character that differs
    **dict.fromkeys(["Pos-x", "pos-x ", "ｐｏｓ-x"], ""),
    "pos-x\u200b": "U+200B ZERO WIDTH SPACE",
    "\u202bpos-x": "U+202B RIGHT-TO-LEFT EMBEDDING",
    "po\u00ads-x": "U+00AD SOFT HYPHEN",
    "pos-x\ufe0f": "U+FE0F VARIATION SELECTOR-16",
    "pos-x\u2800": "U+2800 BRAILLE PATTERN BLANK",
    "pos-x\x85": "U+0085",
    "pos\u2011x": "U+2011 NON-BREAKING HYPHEN",
    "pоs-x": "U+043E CYRILLIC SMALL LETTER O",
}
KINDS = ["classes", "classes with names", "--labels", "several labels", "columns", "tags", "models"]


@pytest.mark.parametrize(
    ("kind", "twin"), [*(("classes", twin) for twin in TWINS), *((kind, "pos-x\u200b") for kind in KINDS[1:])]
)
def test_labels_that_look_the_same_are_refused(twin: str, kind: str) -> None:
    """Wherever labels are named, a person would take the two for one."""
    sources: dict[str, Any] = {"train": labelled(["pos-x", "neg", "pos-x", twin]).columns}
    sources["train"] = pd.DataFrame(sources["train"])
    names = datasets.ClassLabel(names=["pos-x", "neg", twin])
    if kind == "classes with names":
        features = datasets.Features({"text": datasets.Value("string"), "label": names})
        sources["train"] = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features=features)
    elif kind == "--labels":
        sources["labels"] = ["pos-x", twin, "neg"]
    elif kind == "several labels":
        sources["train"] = pd.DataFrame({"text": ["a", "b"], "labels": [["pos-x", "neg"], [twin]]})
    elif kind == "columns":
        sources["train"] = pd.DataFrame({"text": ["a", "b"], "pos-x": [0, 1], twin: [0, 1]})
        sources["indicator_columns"] = ["pos-x", twin]
    elif kind == "tags":
        sources["train"] = pd.DataFrame({"tokens": [["a"], ["b"]], "tags": [["B-pos-x"], [f"B-{twin}"]]})
    with pytest.raises(FrostlineError) as caught:
        if kind == "models":
            rows = {"model": ["pos-x-base", f"{twin}-base"], "task": "t", "k": 1, "seed": 0, "score": 0.5}
            read_results(pd.DataFrame(rows))
        else:
            loaded(**sources)
    sentence, differing = str(caught.value), TWINS[twin]
    remedy = ", or name each label with --labels if they differ" if twin == "Pos-x" else ""
    assert "look the same" in sentence and sentence.endswith(f"; write them alike{remedy}."), sentence
    assert (f" and differ in {differing};" in sentence) == bool(differing)


@pytest.mark.parametrize(
    "others",
    [
        ("pos", "poz"),
        ("ja", "jа̀"),
        ("👍🏻", "👍🏿"),
        ("🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🏴󠁧󠁢󠁳󠁣󠁴󠁿"),  # England and Scotland
        ("e", "é"),
        ("α", "a"),
    ],
)
def test_labels_that_only_resemble_each_other_are_classes(others: tuple[str, str]) -> None:
    assert set(decided(labelled([*others, *others])).labels) == set(others)
    tags = pd.DataFrame({"tokens": [[f"{n}", "b"] for n in range(20)], "tags": [list(others)] * 20})
    assert set(loaded(train=tags).task.labels) == set(others)


@pytest.mark.parametrize("labels", [("US", "us"), ("mm", "MM", "Mm"), ("1", "01"), ("007", "7", "07"), ("ß", "ss")])
def test_labels_that_differ_in_case_or_zeros_are_classes_if_each_is_named(labels: tuple[str, ...]) -> None:
    table = pd.DataFrame({"text": [f"a{n}" for n in range(20 * len(labels))], "label": labels * 20})
    for label in (table["label"], table["label"].map(lambda one: [one])):
        with pytest.raises(FrostlineError, match="write them alike, or name each label with --labels if they differ"):
            loaded(train=table.assign(label=label))
        data = loaded(train=table.assign(label=label), labels=labels, test="none")
        assert data.task.labels == labels
        both = zip(data.train.rows - 1, data.train.targets, strict=True)
        assert all((np.argmax(one) if one.ndim else one) == row % len(labels) for row, one in both)


def test_labels_that_look_like_lists_may_be_classes() -> None:
    table = labelled([label for label in LISTS if label])
    assert decided(table, task_type=CLASSIFICATION).labels == ("bad", "bad;books", "good", "good;books")
    assert decided(table, labels=["good", "bad", "bad;books", "good;books"]).labels[0] == "good"


@pytest.mark.parametrize(
    ("labels", "separator"),
    [
        (["positive;books", "negative;books", "positive", "negative"], ";"),
        (["a|b", "b|c", "a|c"], "|"),
        (["price, story", "story", "price, cast", "cast"], ","),
        (["1,3,5", "1,3", "3,5,1", "5"], ","),
        (["books", "good;books", "good;dvd"], ";"),  # a part that occurs once
        (["Albany, NY", "Boston, MA", "New York, NY"], None),
        (["arts; culture", "sports", "politics"], None),
        (["arts; culture", "home; garden", "food; drink"], None),  # names of two words each
        (["arts; culture", "arts", "culture", *(f"class {n}" for n in range(8))], None),
        (["Smith, John", "Smith, Jane", "Doe, Kim", "Diaz, Maria"], None),
        (["3,5", "4,0", "4,5", "3,0", "5,4"], None),  # decimal commas
        (["a", "b"], None),
        ([], None),
        (["arts; culture"] * 50 + ["sports"] * 50, None),  # a name in many rows
    ],
)
def test_labels_are_lists_if_their_parts_recur(labels: list[str], separator: str | None) -> None:
    found = lists_in(labels)
    assert (found and found[0]) == separator
    assert found is None or (found[1] in labels and found[0] in found[1])
