"""Held-out rows and folds: stratified, disjoint, and determined by the seed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from frostline.data.columns import Columns
from frostline.data.examples import Examples
from frostline.data.kinds import CLASSIFICATION, REGRESSION
from frostline.data.load import labelled_rows
from frostline.data.reader import read_table
from frostline.data.splits import fold_numbers, hold_out, least_size, subset_indices
from frostline.data.task import Task
from loaded import frame, loaded, refused

counts_by_class = st.lists(st.integers(1, 60), min_size=2, max_size=8)
seeds = st.integers(0, 2**32 - 1)


def classes(counts: list[int]) -> np.ndarray:
    """Class indices in a shuffled order."""
    return np.random.default_rng(7).permutation(np.repeat(np.arange(len(counts)), counts))


def examples(targets: np.ndarray) -> tuple[Examples, Task]:
    texts = tuple(f"text {i}" for i in range(len(targets)))
    labels = tuple(f"class {i}" for i in range(targets.max() + 1)) if targets.dtype == np.int64 else ()
    kind = CLASSIFICATION if labels else REGRESSION
    task = Task(name="t", task_type=kind, labels=labels, columns=Columns(text="text", label="label"))
    return Examples(texts=texts, pairs=None, rows=np.arange(len(texts)) + 2, name="t.csv", targets=targets), task


@given(st.lists(st.integers(10, 60), min_size=2, max_size=5), seeds)
def test_held_out_rows_are_stratified_and_disjoint(counts: list[int], seed: int) -> None:
    given_examples, task = examples(classes(counts))
    size = max(len(counts), len(given_examples) // 10)
    rest, held = hold_out(given_examples, task, size, seed, split="test")
    assert len(held) == size
    assert sorted([*rest.texts, *held.texts]) == sorted(given_examples.texts)
    for part in (rest, held):
        assert set(part.targets) == set(range(len(counts)))
        assert (np.diff(part.rows) > 0).all()
        assert [f"text {row - 2}" for row in part.rows] == list(part.texts)
    again = hold_out(given_examples, task, size, seed, split="test")[1]
    assert again.digest() == held.digest()
    others = ((seed + 1, "test"), (seed, "validation"))
    digests = {hold_out(given_examples, task, size, other, split=split)[1].digest() for other, split in others}
    assert size < 5 or held.digest() not in digests


def test_held_out_numbers_are_stratified_by_decile() -> None:
    given_examples, task = examples(np.arange(100) / 7)
    rest, held = hold_out(given_examples, task, 10, 0, split="test")
    assert len(rest) == 90 and sorted(held.targets // (100 / 7 / 10)) == list(range(10))


@given(st.lists(st.integers(15, 60), min_size=2, max_size=8), seeds, st.integers(2, 5))
def test_folds_are_stratified_and_of_equal_size(counts: list[int], seed: int, folds: int) -> None:
    some, task = examples(classes(counts))
    numbers = fold_numbers(some, task, folds, seed)
    sizes = np.bincount(numbers, minlength=folds)
    assert sizes.sum() == len(some) and sizes.max() - sizes.min() <= 1
    shares = np.array([np.bincount(some.targets[numbers == fold], minlength=len(counts)) for fold in range(folds)])
    assert (np.abs(shares - np.array(counts) / folds) < 1).all()
    assert (fold_numbers(some, task, folds, seed) == numbers).all()


def test_rare_numbers_are_spread_over_the_folds() -> None:
    """Of 200 numbers that are 0 but for five, each fold has one that is not."""
    targets = np.zeros(200)
    targets[:5] = [3.0, 1.0, 2.0, 5.0, 4.0]
    some, task = examples(targets)
    of_rare = [fold_numbers(some, task, 5, seed)[:5] for seed in range(5)]
    assert all(sorted(one) == list(range(5)) for one in of_rare)
    assert len({tuple(one) for one in of_rare}) > 1  # no fold always has the highest


def test_rows_with_the_same_text_are_in_the_same_fold() -> None:
    some, task = examples(classes([40, 40]))
    twice = replace(some, texts=tuple(f"{('text', 'Text ')[n % 2]} {n // 2}" for n in range(80)))
    numbers = fold_numbers(twice, task, 5, 0)
    assert (numbers[::2] == numbers[1::2]).all() and len(np.unique(numbers)) == 5


def test_folds_hold_out_no_rows() -> None:
    data = loaded(train=frame(50), folds=5)
    assert data.folds is not None and np.bincount(data.folds).tolist() == [10] * 5 and data.train_rows == 40
    assert data.validation is data.train and data.test is None and len(data.train) == 50
    notes = " ".join(data.notes)
    assert "All 50 rows are validation rows, in 5 folds" in notes and "No rows are held out" in notes
    assert "as requested" not in notes
    assert data.report.shared == {}
    tested = loaded(train=frame(50), folds=5, test=frame(10, 100))
    assert tested.test is not None and len(tested.train) == 50


def test_a_tenth_is_held_out_up_to_2000_rows() -> None:
    sizes = {rows: len(loaded(train=frame(rows), test="none").validation) for rows in (50, 21_000)}
    assert sizes == {50: 5, 21_000: 2000}
    assert len(loaded(train=frame(21_000), test="none", held_out_share=0.1).validation) == 2100


def test_automatic_folds_are_used_for_few_rows() -> None:
    assert loaded(train=frame(100), folds="auto").folds is not None
    contradicting = {"validation": frame(10, 200)}, {"held_out_share": 0.2}
    for options in (
        {"train": frame(5000)},
        {"train": frame(20)},
        *({"train": frame(100), **one} for one in contradicting),
    ):
        data = loaded(**options, folds="auto")
        assert data.folds is None and data.train_rows == len(data.train)


@pytest.mark.parametrize(
    ("rows", "options", "hinted"),
    [
        (5000, {}, False),
        (4998, {}, True),
        (26, {}, True),  # after the test rows are held out, 23 rows are left
        (24, {}, False),
        (100, {"held_out_share": 0.2}, False),
        (100, {"validation": "hold out"}, False),
    ],
)
def test_folds_are_suggested_where_they_would_be_accepted(rows: int, options: dict[str, Any], hinted: bool) -> None:
    assert ("with --folds 5" in " ".join(loaded(train=frame(rows), **options).notes)) == hinted
    if hinted:
        assert loaded(train=frame(rows), **options, folds=5).folds is not None


def table(texts: list[Any], labels: list[Any], **columns: list[Any]) -> pd.DataFrame:
    return pd.DataFrame({"text": texts, "label": labels, **columns})


NUMBERED = [f"text {n}" for n in range(60)]
LABELS = ["no", "yes"] * 30
REPEATED: dict[str, tuple[pd.DataFrame, dict[str, Any]]] = {
    "each text twice": (table([f"text {n // 4} {n % 2}" for n in range(60)], LABELS), {}),
    "one text in a third of the rows": (table([*["ok"] * 20, *NUMBERED[:40]], LABELS), {}),
    "a text with both labels": (table([f"text {n // 2}" for n in range(60)], LABELS), {}),
    "a class of two texts, one of them frequent": (
        table([*NUMBERED[:40], *["n/a"] * 19, "none", "nothing"], [*LABELS[:40], *["empty"] * 21]),
        {"test": "none"},
    ),
    "case and white space": (table([text for n in range(30) for text in (f"text {n}", f"Text  {n} ")], LABELS), {}),
    "pairs": (table(["a"] * 60, LABELS, text_pair=[f"text {n // 2}" for n in range(60)]), {}),
    "pairs in both orders": (
        table(
            [f"{'ab'[n % 2]} {n // 2}" for n in range(60)],
            LABELS,
            text_pair=[f"{'ba'[n % 2]} {n // 2}" for n in range(60)],
        ),
        {},
    ),
    "numbers": (table([f"text {n // 3}" for n in range(60)], [n / 7 for n in range(60)]), {"task_type": REGRESSION}),
    "tags": (pd.DataFrame({"tokens": [["Anna", f"{n // 3}"] for n in range(60)], "tags": [["B-x", "O"]] * 60}), {}),
    "several labels": (table([f"text {n // 3}" for n in range(60)], [["a"], ["a", "b"], []] * 20), {}),
    "only texts that are too frequent": (
        table([f"text {n // 15} {n % 2}" for n in range(60)], LABELS),
        {"test": "none"},
    ),
    "a share": (table([f"text {n // 4} {n % 2}" for n in range(60)], LABELS), {"held_out_share": 0.3}),
}


@pytest.mark.parametrize("case", REPEATED)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rows_with_the_same_text_are_in_the_same_split(case: str, seed: int) -> None:
    rows, options = REPEATED[case]
    data = loaded(train=rows, data_seed=seed, **options)
    parts = [part for part in (data.train, data.validation, data.test) if part is not None]
    assert set(data.report.shared.values()) == {0} and "is also in" not in " ".join(data.notes)
    assert "Rows with the same text stay together." in " ".join(data.notes)
    assert sum(map(len, parts)) == 60 + (case.startswith("a class")) and min(map(len, parts)) > 0
    if data.task.task_type == CLASSIFICATION:
        assert all(set(part.targets) == set(range(len(data.task.labels))) for part in parts)


TOO_FEW = "has too few different texts for training and each split that is held out; add rows, remove it, or give --"
REFUSED: list[tuple[list[str], list[Any], dict[str, Any], str]] = [  # texts, labels, options, part of the sentence
    ([*NUMBERED[:40], *["n/a"] * 20], [*LABELS[:40], *["empty"] * 20], {}, f"row 41: the label 'empty' {TOO_FEW}"),
    ([*NUMBERED[:40], "x", "x", "y", "y"], [*LABELS[:40], *["rare"] * 4], {}, f"row 41: the label 'rare' {TOO_FEW}"),
    (["a", "b"] * 30, LABELS, {}, f"row 1: the label 'no' {TOO_FEW}"),
    (["a"] * 60, LABELS, {}, f"row 1: the label 'no' {TOO_FEW}"),
    (["a"] * 60, [n / 7 for n in range(60)], {}, "all 60 rows left for training have the same text"),
    (NUMBERED[:31], ["a"] * 30 + ["b"], {}, "row 31: the label 'b' has too few rows for training and each split"),
    (NUMBERED[:31], ["a"] * 30 + ["b"], {"held_out_share": 0.01}, "has too few rows for training and each split"),
    (NUMBERED[:3], ["a", "b", "c"], {}, "3 of 3 rows held out for test cannot leave all 3 classes there and in training"),
    (NUMBERED[:41], ["a"] * 40 + ["b"], {"folds": 5}, "the label 'b' has too few rows to be both trained on and scored"),
    (NUMBERED[:40], LABELS[:40], {"folds": 10}, "10 folds of 40 rows leave 4 in one"),
    (NUMBERED, LABELS, {"folds": 5, "validation": frame(10, 100)}, "leave out either validation or folds"),
    (NUMBERED, LABELS, {"folds": 5, "held_out_share": 0.2}, "holds out no rows"),
    (NUMBERED, LABELS, {"held_out_share": 0.5}, "for each of test and validation leaves no training rows: give less than 0.5."),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "labels", "options", "message"), REFUSED)
def test_impossible_splits_are_refused(
    texts: list[str], labels: list[Any], options: dict[str, Any], message: str
) -> None:
    assert message in refused(train=table(texts, labels), **options)


def test_a_share_may_be_large_if_it_is_held_out_once() -> None:
    assert loaded(train=frame(50), test="hold out", held_out_share=0.6, folds=3).train_rows < 20


def test_tables_without_equal_texts_are_split_as_before() -> None:
    """The digests are from before equal texts stayed together."""
    tables = {"classes": frame(200), "numbers": table(NUMBERED, [n / 7 for n in range(60)])}
    found = {
        name: loaded(train=rows, task_type=REGRESSION if name == "numbers" else None) for name, rows in tables.items()
    }
    digests = {
        name: (data.validation.digest()[:8], data.test and data.test.digest()[:8]) for name, data in found.items()
    }
    assert digests == {"classes": ("2cd712bd", "565cfa1d"), "numbers": ("08219c66", "446b38db")}


AUTHORS = [f"author {n % 12}" if n < 48 else "" for n in range(60)]
GROUPED: dict[str, tuple[pd.DataFrame, dict[str, Any]]] = {
    "classes": (table(NUMBERED, LABELS, author=AUTHORS), {}),
    "classes, more rows for some authors": (table(NUMBERED, LABELS, author=["a"] * 20 + AUTHORS[20:]), {}),
    "authors in two spellings": (
        table(
            NUMBERED, LABELS, author=[f" {one.title()}\u200b " if n % 24 < 12 else one for n, one in enumerate(AUTHORS)]
        ),
        {},
    ),
    "numbers of authors": (table(NUMBERED, LABELS, author=[n // 5 for n in range(60)]), {}),
    "numbers": (table(NUMBERED, [n / 7 for n in range(60)], author=AUTHORS), {"task_type": REGRESSION}),
    "several labels": (table(NUMBERED, [["a"], ["a", "b"], []] * 20, author=AUTHORS), {}),
    "tags": (pd.DataFrame({"tokens": [["Anna", str(n)] for n in range(60)], "tags": [["B-x", "O"]] * 60, "author": AUTHORS}), {}),
    "a text of a pair": (table([f"text {n // 3}" for n in range(60)], LABELS, text_pair=NUMBERED), {"group_column": "text"}),
    "authors with a text in common": (table([f"text {n % 30}" for n in range(60)], LABELS, author=AUTHORS), {}),
}  # fmt: skip


@pytest.mark.parametrize("folds", [0, 3])
@pytest.mark.parametrize("case", GROUPED)
def test_rows_of_a_group_are_in_the_same_split_and_fold(case: str, folds: int) -> None:
    rows, options = GROUPED[case]
    options = {"group_column": "author", **options}
    data = loaded(train=rows, folds=folds, **options)
    parts = (
        [data.train.take(np.flatnonzero(data.folds == n)) for n in range(3)]
        if data.folds is not None
        else [part for part in (data.train, data.validation, data.test) if part is not None]
    )
    assert sum(map(len, parts)) == 60 and min(map(len, parts)) >= (15 if folds else 5)
    groups = [{one.casefold().strip("\u200b ") for one in part.groups or ()} - {""} for part in parts]
    assert all(groups) and not any(groups[n] & other for n in range(len(groups)) for other in groups[:n])
    texts = [set(part.read_alike()) for part in parts]
    assert not any(texts[n] & other for n in range(len(texts)) for other in texts[:n])
    assert f"the same text or the same '{options['group_column']}'" in " ".join(data.notes)
    if data.task.task_type == CLASSIFICATION and folds:
        assert max(abs(2 * part.targets.sum() - len(part)) for part in parts) <= 6
    assert loaded(train=rows, folds=folds, **options).train.digest() == data.train.digest()
    ungrouped = loaded(train=rows, folds=folds, **options | {"group_column": None})
    assert ungrouped.train.digest() != data.train.digest()


@pytest.mark.parametrize("labels", [[n / 7 for n in range(60)], [f"class {n % 20}" for n in range(80)]])
def test_the_odd_rows_of_strata_go_to_all_folds(labels: list[Any]) -> None:
    """Folds of rows in groups have nearly the same size, although most strata have a row more in one fold than in others."""
    rows = table([f"text {n}" for n in range(len(labels))], labels, author=range(len(labels)))
    for folds in (3, 5):
        found = loaded(train=rows, group_column="author", folds=folds).folds
        assert found is not None and np.ptp(np.bincount(found)) <= 2


@pytest.mark.parametrize("groups", [1, 2, 4, 20])
def test_there_are_no_more_folds_than_groups(groups: int) -> None:
    rows = table(NUMBERED, LABELS, author=[n // 2 % groups for n in range(60)])
    if groups == 1:
        assert "the same text or the same 'author', so none can be held" in refused(
            train=rows.assign(label=[n / 7 for n in range(60)]), group_column="author", folds="auto"
        )
        return
    data = loaded(train=rows, group_column="author", folds="auto")
    assert data.folds is not None and len(set(data.folds)) == min(5, groups)
    if groups > 2:
        hint = " ".join(loaded(train=rows, group_column="author").notes)
        assert f"with --folds {min(5, groups)}, all rows are validation rows" in hint


def test_groups_that_cannot_stay_together_are_refused_and_those_that_do_not_are_named() -> None:
    rows = table(NUMBERED, LABELS, author=AUTHORS)
    unknown = "no column 'Author' (did you mean 'author'?); pass one of 'text', 'label', 'author' with --group-column."
    assert unknown in refused(train=rows, group_column="Author")
    one = refused(train=rows.assign(author="me"), group_column="author", folds=3)
    assert "3 folds of 60 rows leave 0 in one (rows with the same text or the same 'author' stay together)" in one
    of_label = refused(train=rows, group_column="label")
    assert "the label 'no' has too few different 'label' for training" in of_label
    assert "there is no column 'author', which the training data has" in refused(
        train=rows, validation=frame(20, 100), group_column="author"
    )
    shared = "Warning: 8 of 20 validation rows have the same 'author' as rows of train: scores"
    numbers = [np.nan, *(n % 12 if n < 48 else n for n in range(1, 60))]  # all are stored as floating-point numbers
    for authors in (AUTHORS, numbers):
        of_each = rows.assign(author=authors)
        notes = loaded(train=of_each[:40], validation=of_each[40:], test="none", group_column="author").notes
        assert any(shared in one for one in notes)
    alone = frame(20, 100).assign(author="Z")
    notes = loaded(train=rows, validation=alone, test="none", group_column="author").notes
    assert any("Warning: all 20 validation rows have the same 'author', so that no interval" in one for one in notes)
    task = loaded(train=rows, group_column="author").task
    for new, groups in ((rows[:3], ("author 0", "author 1", "author 2")), (rows[["text", "label"]], None)):
        labelled = labelled_rows(read_table(new), task, Columns(text="text"))
        assert labelled and labelled[0].groups == groups
    assert "--group-column cannot be given with SST-2 of GLUE" in refused(glue="SST-2", data="x", group_column="author")


few_classes = st.lists(st.integers(1, 40), min_size=2, max_size=4).map(classes)
label_sets = arrays.arrays(np.bool_, st.tuples(st.integers(1, 60), st.integers(2, 5)))


@settings(max_examples=30)
@given(few_classes | label_sets, seeds)
def test_subsets_are_nested(targets: np.ndarray, seed: int) -> None:
    whole, least = subset_indices(targets, len(targets), seed), least_size(targets)
    assert sorted(whole) == list(range(len(targets)))
    assert least == (1 if targets.dtype == np.bool_ else len(np.unique(targets)))
    for size in range(least, len(targets) + 1):
        assert (subset_indices(targets, size, seed) == whole[:size]).all()


@given(counts_by_class, seeds)
def test_classes_have_their_share_at_every_size(counts: list[int], seed: int) -> None:
    targets, total, kinds = classes(counts), sum(counts), len(counts)
    order = targets[subset_indices(targets, total, seed)]
    share = np.array(counts) / total
    for size in range(kinds, total + 1):
        shown = np.bincount(order[:size], minlength=kinds)
        assert shown.min() >= 1
        if size * share.min() >= 1:  # every class differs from its share by less than one row
            assert np.abs(shown - size * share).max() < 1
        else:  # rare classes have their one row early, and the other classes have correspondingly fewer rows
            assert ((shown == 1) | (shown < size * share + 1)).all()
            assert (shown > (size - kinds) * share - 1).all()


def test_seeds_differ_and_no_class_is_favoured() -> None:
    targets = classes([500, 500])
    drawn = [subset_indices(targets, 21, seed) for seed in range(40)]
    assert len({tuple(sorted(one)) for one in drawn}) == 40
    odd = [np.bincount(targets[one])[0] for one in drawn]
    assert set(odd) == {10, 11}
