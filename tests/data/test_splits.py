"""The law of subsets: nested, stratified, by seed; and what is held out is held out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import FrostlineError
from frostline.data import CLASSIFICATION, REGRESSION, Columns, Examples, Task, fold_numbers, hold_out, subset_indices

counts_by_class = st.lists(st.integers(1, 60), min_size=2, max_size=8)
seeds = st.integers(0, 2**32 - 1)


def classes(counts: list[int]) -> np.ndarray:
    """Class indices in an order of their own."""
    return np.random.default_rng(7).permutation(np.repeat(np.arange(len(counts)), counts))


def examples(targets: np.ndarray) -> tuple[Examples, Task]:
    texts = tuple(f"text {i}" for i in range(len(targets)))
    labels = tuple(f"class {i}" for i in range(targets.max() + 1)) if targets.dtype == np.int64 else ()
    kind = CLASSIFICATION if labels else REGRESSION
    task = Task(name="t", problem_type=kind, labels=labels, columns=Columns(text="text", label="label"))
    return Examples(texts=texts, pairs=None, rows=np.arange(len(texts)) + 2, name="t.csv", targets=targets), task


@given(counts_by_class, seeds)
def test_nested(counts: list[int], seed: int) -> None:
    targets = classes(counts)
    whole = subset_indices(targets, len(targets), seed)
    assert sorted(whole) == list(range(len(targets)))
    for size in range(len(counts), len(targets) + 1):
        assert (subset_indices(targets, size, seed) == whole[:size]).all()


@given(counts_by_class, seeds)
def test_shares_at_every_size(counts: list[int], seed: int) -> None:
    targets, total, kinds = classes(counts), sum(counts), len(counts)
    order = targets[subset_indices(targets, total, seed)]
    share = np.array(counts) / total
    for size in range(kinds, total + 1):
        shown = np.bincount(order[:size], minlength=kinds)
        assert shown.min() >= 1
        if size * share.min() >= 1:  # every class is due: within one row of its share
            assert np.abs(shown - size * share).max() < 1
        else:  # some stand there early, and the others are as in a subset smaller by at most these
            assert ((shown == 1) | (shown < size * share + 1)).all()
            assert (shown > (size - kinds) * share - 1).all()


def test_shares_of_one_large_and_many_small_classes() -> None:
    """Where proportional rounding (Webster) would give the large class everything for a long while."""
    targets = classes([5000] + [50] * 100)
    order = targets[subset_indices(targets, len(targets), 0)]
    large = np.cumsum(order == 0)[200:]
    assert np.abs(large - np.arange(201, len(targets) + 1) / 2).max() < 1


@given(counts_by_class, seeds)
def test_the_same_seed_gives_the_same(counts: list[int], seed: int) -> None:
    targets = classes(counts)
    assert (subset_indices(targets, len(counts), seed) == subset_indices(targets, len(counts), seed)).all()


def test_seeds_differ_and_no_class_is_favoured() -> None:
    targets = classes([500, 500])
    drawn = [subset_indices(targets, 21, seed) for seed in range(40)]
    assert len({tuple(sorted(one)) for one in drawn}) == 40
    odd = [np.bincount(targets[one])[0] for one in drawn]
    assert set(odd) == {10, 11}


def test_numbers_are_stratified_by_tenths() -> None:
    targets = np.random.default_rng(0).exponential(size=1000)
    for size in (100, 105):
        tenths = targets.argsort().argsort()[subset_indices(targets, size, 3)] // 100
        assert set(np.bincount(tenths, minlength=10)) <= {10, 11}
    assert len(set(subset_indices(targets, 5, 0))) == 5


@given(st.lists(st.integers(10, 60), min_size=2, max_size=5), seeds)
def test_hold_out(counts: list[int], seed: int) -> None:
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


def test_hold_out_follows_the_seed_and_the_split() -> None:
    given_examples, task = examples(classes([100, 100]))
    drawn = {
        hold_out(given_examples, task, 20, seed, split=split)[1].digest()
        for seed in range(10)
        for split in ("validation", "test")
    }
    assert len(drawn) == 20


def test_hold_out_of_numbers() -> None:
    given_examples, task = examples(np.arange(100) / 7)
    rest, held = hold_out(given_examples, task, 10, 0, split="test")
    assert len(rest) == 90 and sorted(held.targets // (100 / 7 / 10)) == list(range(10))


@pytest.mark.parametrize(
    ("size", "what"),
    [
        (11, "A train size of 11 is more than the 10 rows; pass a smaller one."),
        (1, "A train size of 1 cannot show all 2 classes; pass 2 or more."),
    ],
)
def test_sizes_that_cannot_be(size: int, what: str) -> None:
    with pytest.raises(FrostlineError) as caught:
        subset_indices(classes([5, 5]), size, 0)
    assert str(caught.value) == what
    with pytest.raises(FrostlineError, match="pass 1 or more"):
        subset_indices(np.arange(3) / 2, 0, 0)


def test_a_class_too_rare_to_hold_out() -> None:
    rare, task = examples(classes([30, 1]))
    with pytest.raises(FrostlineError, match=r"t\.csv, row \d+: the label 'class 1' has too few rows .* --test FILE"):
        hold_out(rare, task, 3, 0, split="test")
    with pytest.raises(FrostlineError, match=r"t\.csv: 1 of 31 rows set aside for test cannot show all 2 classes"):
        hold_out(rare, task, 1, 0, split="test")
    numbers, regression = examples(np.array([0.5]))
    with pytest.raises(FrostlineError, match="give more rows or --validation FILE"):
        hold_out(numbers, regression, 1, 0, split="validation")


@given(st.lists(st.integers(15, 60), min_size=2, max_size=8), seeds, st.integers(2, 5))
def test_folds_are_alike(counts: list[int], seed: int, folds: int) -> None:
    some, task = examples(classes(counts))
    numbers = fold_numbers(some, task, folds, seed)
    sizes = np.bincount(numbers, minlength=folds)
    assert sizes.sum() == len(some) and sizes.max() - sizes.min() <= 1
    shares = np.array([np.bincount(some.targets[numbers == fold], minlength=len(counts)) for fold in range(folds)])
    assert (np.abs(shares - np.array(counts) / folds) < 1).all()
    assert (fold_numbers(some, task, folds, seed) == numbers).all()


def test_the_same_text_is_in_one_fold() -> None:
    some, task = examples(classes([40, 40]))
    twice = replace(some, texts=tuple(f"text {n // 2}" for n in range(80)))
    numbers = fold_numbers(twice, task, 5, 0)
    assert (numbers[::2] == numbers[1::2]).all() and len(np.unique(numbers)) == 5


def test_a_class_in_one_fold_alone_is_refused() -> None:
    some, task = examples(classes([40, 1]))
    with pytest.raises(FrostlineError, match="'class 1' has too few rows to be both trained and scored"):
        fold_numbers(some, task, 5, 0)
