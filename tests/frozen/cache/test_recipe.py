"""The key of cached hidden states."""

import dataclasses
import os

import pytest

from frostline.frozen.hidden_states import cache_folder, similar_recipes
from frozen.cached import RECIPE, Cache
from frozen.random_tokens import ragged_tokens


def test_every_field_except_the_name_changes_the_key() -> None:
    for field in dataclasses.fields(RECIPE):
        value = getattr(RECIPE, field.name)
        other = dataclasses.replace(RECIPE, **{field.name: value + 1 if isinstance(value, int) else value + "x"})
        assert (other.key == RECIPE.key) == (field.name == "model"), field.name


def test_similar_recipes_differ_only_in_packing_and_head_token(cache: Cache) -> None:
    tokens = ragged_tokens(2)
    cache.load(tokens, range(2), packed=False, model="other name")
    cache.load(tokens, range(2), weights="other")
    (found,) = similar_recipes(RECIPE, folder=cache.folder)
    assert found == dataclasses.replace(RECIPE, packed=False, model="other name")


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "7", '{"colour": "red"}'])
def test_a_damaged_recipe_is_ignored_and_written_again(cache: Cache, content: str) -> None:
    tokens = ragged_tokens(3)
    cache.load(tokens, range(3))
    (file,) = cache.folder.glob("*/recipe.json")
    file.write_text(content)
    assert list(similar_recipes(RECIPE, folder=cache.folder)) == []
    cache.load(tokens, range(3))
    assert not cache.computed and list(similar_recipes(RECIPE, folder=cache.folder)) == [RECIPE]
    assert sorted(path.name for path in file.parent.iterdir() if path.is_file()) == ["lock", "recipe.json"]


def test_the_cache_is_in_the_assets_cache_of_hugging_face() -> None:
    assert cache_folder().is_relative_to(os.environ["HF_ASSETS_CACHE"])
    assert {"frostline", "hidden-states"} <= set(cache_folder().parts)
