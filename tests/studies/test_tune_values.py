"""Values of k relative to the number of layers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline import FrostlineError
from frostline.statistics.recipe import Recipe
from frostline.studies.protocol import load_protocol, tune_values

NAMES = ("amazon-tutorial", "jeong2025", "lee2019", "lowdata2021", "transferred2018")


def recipes(*given: int | str) -> list[Recipe]:
    return [Recipe(one) for one in given]


def test_values_relative_to_the_number_of_layers() -> None:
    assert tune_values("0..L/2, all", 12) == recipes(0, 1, 2, 3, 4, 5, 6, "full")
    assert tune_values("0..L:2", 12) == recipes(0, 2, 4, 6, 8, 10, 12)
    assert tune_values("0, L/6, L/3, 2L/3, 5L/6, L, all", 12) == recipes(0, 2, 4, 8, 10, 12, "full")
    assert tune_values("named, 3, 1", 12) == recipes(1, 3, "named")
    assert tune_values("full, last-2, head", 12) == recipes(0, 2, "full")


def test_ways_relative_to_the_number_of_layers() -> None:
    names = (0, "lora-1", "llrd", "transferred-0", "transferred-1", "transferred-2", "full")
    assert tune_values("0, lora-1..L/2, llrd, transferred-0..L", 3) == recipes(*names)
    assert tune_values("bilstm, bilstm-4, probe", 3) == recipes("bilstm", "bilstm-4", "probe")
    with pytest.raises(FrostlineError, match="'lorra-2' is not a number of layers"):
        tune_values("lorra-2", 12)


@given(st.integers(1, 48))
def test_values_are_distinct_rising_and_within_the_model(layers: int) -> None:
    for name in NAMES:
        found = tune_values(load_protocol(name).tune, layers)
        numbers = [one.k for one in found if one.k is not None]
        assert numbers == sorted(set(numbers)) and all(0 <= k <= layers for k in numbers)
        assert found[: len(numbers)] == recipes(*numbers)
