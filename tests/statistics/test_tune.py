"""The names of what a run trains."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.statistics.tune import FULL, NAMED, Tune, is_k, is_way, k_of, name_of, sort_key, tune_of

ks = st.integers(0, 200)


@given(ks)
def test_name_and_k_are_inverse(k: int) -> None:
    assert k_of(name_of(k)) == k and name_of(k) == f"last {k}"


@pytest.mark.parametrize("tune", [FULL, NAMED])
def test_full_and_named_parts_have_no_k(tune: Tune) -> None:
    assert name_of(tune) == tune and k_of(name_of(tune)) is None


@given(st.permutations([0, 1, 2, 10, FULL, NAMED]))
def test_names_sort_by_k_then_full_then_named_parts(tunes: list[Tune]) -> None:
    names = sorted(map(name_of, tunes), key=sort_key)
    assert names == ["last 0", "last 1", "last 2", "last 10", "all", "named"]


@given(ks, ks)
def test_fewer_layers_come_first(one: int, other: int) -> None:
    assert (sort_key(name_of(one)) < sort_key(name_of(other))) == (one < other)
    assert sort_key(name_of(one)) < sort_key(FULL) < sort_key(NAMED)


@given(ks)
def test_named_parts_alone_cannot_be_recommended_as_k(k: int) -> None:
    assert is_k(name_of(k)) and is_k(FULL) and not is_k(NAMED)


def test_ways_have_no_k_and_come_after_full_fine_tuning() -> None:
    names = ["last 0", "last 10", "all", "gradual", "lora-2", "named"]
    assert sorted({*names}, key=sort_key) == names
    assert [is_way(name) for name in names] == [False, False, False, True, True, False]
    assert not is_way(2) and not is_k("lora-2") and k_of("lora-2") is None and name_of("lora-2") == "lora-2"


def test_names_of_the_grid_are_read_as_k() -> None:
    assert [tune_of(name) for name in ("last-12", "full", "head", "all", "lora-2", "last-x")] == [
        *(12, FULL, 0, FULL, "lora-2", "last-x")
    ]
