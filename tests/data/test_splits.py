"""Rows held out and folds: stratified, disjoint, and determined by the seed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import FrostlineError
from frostline.data.columns import Columns
from frostline.data.examples import Examples
from frostline.data.splits import fold_numbers, hold_out
from frostline.data.task import CLASSIFICATION, REGRESSION, Task

seeds = st.integers(0, 2**32 - 1)


def classes(counts: list[int]) -> np.ndarray:
    """Class indices in a shuffled order."""
    return np.random.default_rng(7).permutation(np.repeat(np.arange(len(counts)), counts))


def examples(targets: np.ndarray) -> tuple[Examples, Task]:
    texts = tuple(f"text {i}" for i in range(len(targets)))
    labels = tuple(f"class {i}" for i in range(targets.max() + 1)) if targets.dtype == np.int64 else ()
    kind = CLASSIFICATION if labels else REGRESSION
    task = Task(name="t", problem_type=kind, labels=labels, columns=Columns(text="text", label="label"))
    return Examples(texts=texts, pairs=None, rows=np.arange(len(texts)) + 2, name="t.csv", targets=targets), task


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


def test_a_class_too_rare_to_hold_out() -> None:
    rare, task = examples(classes([30, 1]))
    with pytest.raises(FrostlineError, match=r"t\.csv, row \d+: the label 'class 1' has too few rows .* --test FILE"):
        hold_out(rare, task, 3, 0, split="test")
    with pytest.raises(FrostlineError, match=r"t\.csv: 1 of 31 rows held out for test cannot leave all 2 classes"):
        hold_out(rare, task, 1, 0, split="test")
    numbers, regression = examples(np.array([0.5]))
    with pytest.raises(FrostlineError, match="give more rows or --validation FILE"):
        hold_out(numbers, regression, 1, 0, split="validation")


@given(st.lists(st.integers(15, 60), min_size=2, max_size=8), seeds, st.integers(2, 5))
def test_folds_are_stratified_and_of_equal_size(counts: list[int], seed: int, folds: int) -> None:
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


def test_a_class_in_only_one_fold_is_refused() -> None:
    some, task = examples(classes([40, 1]))
    with pytest.raises(FrostlineError, match="'class 1' has too few rows to be both trained on and scored"):
        fold_numbers(some, task, 5, 0)
