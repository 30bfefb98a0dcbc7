"""Batches of the forward pass contain every example once, in shapes that depend on its own length only."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from frostline.frozen import forward_pass as module
from frostline.frozen.forward_pass import TINY, ForwardPass, tokens_per_batch
from frostline.model.packed_layout import LENGTH_MULTIPLE
from frostline.sweep.operations import forward_totals
from frozen.passes import bytes_by_row, pass_over
from frozen.random_tokens import random_tokens
from small_models import small_model

BUDGET = module.TOKENS["cpu"]
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=300)


@pytest.fixture(scope="module")
def bert() -> ForwardPass:
    return pass_over(small_model("bert"))


@given(LENGTHS, st.booleans(), st.integers(0, 99))
def test_batches_contain_every_row_once_and_respect_their_capacity(
    bert: ForwardPass, lengths: list[int], packed: bool, seed: int
) -> None:
    rows = np.random.default_rng(seed).permutation(len(lengths))[: max(1, len(lengths) // 2)]
    batches = replace(bert, packed=packed).batches(np.array(lengths), rows)
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == sorted(rows.tolist())
    for batch in batches:
        padded = batch.padded_lengths
        assert batch.lengths.tolist() == [lengths[row] for row in batch.rows] and len(batch.rows) <= batch.examples
        assert ((padded - batch.lengths) <= LENGTH_MULTIPLE - packed).all() and not (padded % LENGTH_MULTIPLE).any()
        if packed:
            tiny = batch.lengths.max() <= LENGTH_MULTIPLE
            assert tiny == (
                batch.lengths.min() <= LENGTH_MULTIPLE
            )  # an example's own length decides in which batches it is
            assert batch.lengths.sum() <= batch.capacity == BUDGET
            assert batch.examples == BUDGET // (TINY if tiny else LENGTH_MULTIPLE)
            assert forward_totals(batch).tokens == BUDGET
        else:
            assert len(set(padded)) == 1 and len(batch.rows) <= batch.examples == BUDGET // padded[0]
            assert (batch.lengths < padded).all()  # every example has padding


@given(st.lists(st.integers(1, 40), min_size=200, max_size=400), st.integers(0, 3))
def test_packed_batches_are_full(bert: ForwardPass, lengths: list[int], long: int) -> None:
    """The shortest example of the next batch would exceed the capacity of a batch or of its padded grid."""
    lengths = lengths + [500] * long
    batches = bert.batches(np.array(lengths), np.arange(len(lengths)))
    for batch, later in pairwise(batches):
        if batch.examples != later.examples:
            continue
        most = min(batch.examples, module.GRID * BUDGET // batch.lengths.max())
        assert len(batch.rows) == most or batch.lengths.sum() + later.lengths.min() > batch.capacity
    for batch in batches:
        assert len(batch.rows) * batch.lengths.max() <= module.GRID * BUDGET


def test_a_wider_model_has_fewer_tokens_in_a_batch(bert: ForwardPass) -> None:
    def tokens(width: int) -> int:
        return tokens_per_batch(torch.device("cpu"), replace(bert.anatomy, width=width))

    assert tokens(32) == tokens(module.WIDE) == BUDGET
    assert tokens(2 * module.WIDE) == BUDGET // 2 and tokens(10**9) == LENGTH_MULTIPLE
    for width in range(module.WIDE, 5000, 7):
        assert not tokens(width) % LENGTH_MULTIPLE
        assert BUDGET * module.WIDE - LENGTH_MULTIPLE * width < tokens(width) * width <= BUDGET * module.WIDE


@pytest.mark.parametrize(("gigabytes", "times"), [(1, 1), (16, 1), (31, 1), (32, 2), (67, 4), (180, 4)])
def test_a_gpu_with_more_free_memory_has_more_tokens_in_a_batch(
    bert: ForwardPass, monkeypatch: pytest.MonkeyPatch, gigabytes: int, times: int
) -> None:
    monkeypatch.setattr(module, "memory_limit", lambda device: gigabytes << 30)
    monkeypatch.setattr(module, "_times_as_many", module._times_as_many.__wrapped__)
    assert tokens_per_batch(torch.device("cuda"), bert.anatomy) == times * module.TOKENS["cuda"]


@pytest.mark.parametrize("packed", [True, False])
def test_max_tokens_limits_a_batch(bert: ForwardPass, packed: bool) -> None:
    lengths = np.array([40, 31, 22, 7, 7, 3])
    batches = replace(bert, packed=packed, max_tokens=64).batches(lengths, np.arange(len(lengths)))
    assert sorted(np.concatenate([batch.rows for batch in batches])) == list(range(len(lengths)))
    assert all((batch.capacity or batch.examples * batch.padded_lengths[0]) <= 64 for batch in batches)
    (long,) = replace(bert, packed=True, max_tokens=8).batches(lengths[:1], np.arange(1))
    assert (long.capacity, len(long.rows)) == (40, 1)


def test_short_examples_have_separate_batches(bert: ForwardPass) -> None:
    """A batch with longer examples has room for fewer examples."""
    lengths = np.array([5] * 3000 + [20] * 300)
    batches = bert.batches(lengths, np.arange(3300))
    long, short = BUDGET // 20, BUDGET // 5
    assert [len(batch.rows) for batch in batches] == [long, 300 - long, short, short, short, 3000 - 3 * short]


def test_an_example_with_more_tokens_than_the_budget_has_its_own_batch(bert: ForwardPass) -> None:
    small = replace(bert, max_tokens=16)
    tokens = random_tokens([5, 37, 3, 16, 38])
    batches = small.batches(tokens.lengths, np.arange(5))
    assert [batch.rows.tolist() for batch in batches] == [[4], [1], [3], [0, 2]]
    assert [batch.capacity for batch in batches] == [40, 40, 16, 16]
    together = bytes_by_row(small, tokens, np.arange(5))
    for row in range(5):
        assert bytes_by_row(small, tokens, [row])[row] == together[row]
