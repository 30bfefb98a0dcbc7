"""The one name of what a run trains."""

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from frostline.statistics.recipe import FULL, HEAD_ONLY, NAMED, Recipe

ORDER = ["head only", "last 1", "last 2", "last 10", "full", "gradual", "lora-2", "named"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        *((given, "head only") for given in (0, "0", "last 0", "last-0", "head", "head-only", "head only")),
        *((given, "last 2") for given in (2, "2", "last 2", "last-2")),
        *((given, "full") for given in ("full", "all")),
        *((name, name) for name in ("named", "lora-2", "mean-pooled-2", "last-x")),
    ],
)
def test_every_form_is_read_as_one_name(given: Any, name: str) -> None:
    recipe = Recipe(given)
    assert recipe == name == str(recipe) and Recipe(recipe) == Recipe(recipe.short) == recipe
    assert pickle.loads(pickle.dumps(recipe)).k == recipe.k and json.dumps(recipe) == f'"{name}"'
    assert TypeAdapter(Recipe).validate_python(given) == name


@pytest.mark.parametrize(
    "given", [-1, True, 1.5, None, "", "-1", "last two", "Full", "lora 2", "0..L", "²", np.arange(3)]
)
def test_other_values_are_refused(given: Any) -> None:
    with pytest.raises(ValidationError, match="numbers of layers such as 2"):
        TypeAdapter(Recipe).validate_python(given)


@given(st.permutations(ORDER))
def test_order_is_by_k_then_full_then_ways_then_named_parts(names: list[str]) -> None:
    assert sorted(names, key=lambda name: Recipe(name).order) == ORDER


def test_full_named_parts_and_ways_have_no_k() -> None:
    found = [(one.k, one.is_k, one.is_way) for one in (HEAD_ONLY, Recipe(12), FULL, NAMED, Recipe("lora-2"))]
    assert found == [
        (0, True, False),
        (12, True, False),
        (None, True, False),
        (None, False, False),
        (None, False, True),
    ]


@given(st.sampled_from(ORDER), st.floats(0.01, 1e5).map(lambda epochs: float(f"{epochs:g}")))
def test_a_training_length_is_part_of_the_name_and_of_nothing_else(name: str, epochs: float) -> None:
    plain, longer = Recipe(name), Recipe(name).for_epochs(epochs)
    if "e" not in f"{epochs:g}":
        assert longer == f"{name} for {epochs:g} {'epoch' if epochs == 1 else 'epochs'}" == Recipe(str(longer))
        assert longer.epochs == epochs and longer.trained == plain and plain.epochs is None
        for about in ("k", "is_k", "is_way", "is_full"):
            assert getattr(longer, about) == getattr(plain, about)
        assert plain.order < longer.order < longer.for_epochs(2 * epochs).order
        assert longer.for_epochs(None) == plain


def test_every_training_length_is_read_back() -> None:
    lengths = {
        1.0: "1 epoch",
        0.5: "0.5 epochs",
        1e-9: "1e-09 epochs",
        3.0000001: "3.0000001 epochs",
        1e6: "1000000 epochs",
    }
    for epochs, length in lengths.items():
        recipe = FULL.for_epochs(epochs)
        assert recipe == f"full for {length}" and recipe.length == length and Recipe(str(recipe)).epochs == epochs
