"""Training subsets are nested and stratified, and determined by the seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frostline import FrostlineError
from frostline.data.splits import subset_indices

counts_by_class = st.lists(st.integers(1, 60), min_size=2, max_size=8)
seeds = st.integers(0, 2**32 - 1)


def classes(counts: list[int]) -> np.ndarray:
    """Class indices in a shuffled order."""
    return np.random.default_rng(7).permutation(np.repeat(np.arange(len(counts)), counts))


@settings(max_examples=15)
@given(counts_by_class, seeds)
def test_subsets_are_nested(counts: list[int], seed: int) -> None:
    targets = classes(counts)
    whole = subset_indices(targets, len(targets), seed)
    assert sorted(whole) == list(range(len(targets)))
    for size in range(len(counts), len(targets) + 1):
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


def test_shares_of_one_large_and_many_small_classes() -> None:
    """Proportional rounding (Webster) would give the large class a long series of consecutive positions."""
    targets = classes([5000] + [50] * 100)
    order = targets[subset_indices(targets, len(targets), 0)]
    large = np.cumsum(order == 0)[200:]
    assert np.abs(large - np.arange(201, len(targets) + 1) / 2).max() < 1


@given(counts_by_class, seeds)
def test_the_same_seed_gives_the_same_subset(counts: list[int], seed: int) -> None:
    targets = classes(counts)
    assert (subset_indices(targets, len(counts), seed) == subset_indices(targets, len(counts), seed)).all()


def test_seeds_differ_and_no_class_is_favoured() -> None:
    targets = classes([500, 500])
    drawn = [subset_indices(targets, 21, seed) for seed in range(40)]
    assert len({tuple(sorted(one)) for one in drawn}) == 40
    odd = [np.bincount(targets[one])[0] for one in drawn]
    assert set(odd) == {10, 11}


def test_numbers_are_stratified_by_decile() -> None:
    targets = np.random.default_rng(0).exponential(size=1000)
    for size in (100, 105):
        deciles = targets.argsort().argsort()[subset_indices(targets, size, 3)] // 100
        assert set(np.bincount(deciles, minlength=10)) <= {10, 11}
    assert len(set(subset_indices(targets, 5, 0))) == 5


@pytest.mark.parametrize(
    ("size", "what"),
    [
        (11, "A train size of 11 is more than the 10 rows; pass a smaller one."),
        (1, "A train size of 1 cannot include all 2 classes; pass 2 or more."),
    ],
)
def test_impossible_sizes_are_refused(size: int, what: str) -> None:
    with pytest.raises(FrostlineError) as caught:
        subset_indices(classes([5, 5]), size, 0)
    assert str(caught.value) == what
    with pytest.raises(FrostlineError, match="pass 1 or more"):
        subset_indices(np.arange(3) / 2, 0, 0)
