"""Hidden states are computed once and are the same in every batch. Incomplete files are never used."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frostline import FrostlineError
from frostline.frozen.forward_pass import StateSelection
from frostline.frozen.hidden_states import remove_entries
from frostline.model.anatomy import Anatomy
from frostline.model.tokens import Tokens
from frozen.cached import ALL, RECIPE, Cache, state_bytes
from frozen.random_tokens import ragged_tokens
from hostile import without_locks


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("shards", ["one", "many"])
def test_hidden_states_do_not_depend_on_the_other_rows_of_the_batch(
    tmp_path: Path, bert: tuple[Any, Anatomy], request: pytest.FixtureRequest, shards: str, packed: bool
) -> None:
    if shards == "many":
        request.getfixturevalue("small_shards")
    tokens = ragged_tokens(40)
    options: dict[str, Any] = {"packed": packed, "batch_tokens": 200 if shards == "many" else 512}
    whole = state_bytes(Cache(tmp_path / "whole", *bert).load(tokens, range(40), **options), range(40))
    assert len({tuple(states) for states in whole}) == 40
    generator = np.random.default_rng(1)
    for n, size in enumerate([1, 2, 17]):
        rows = generator.permutation(40)[:size]
        some = Cache(tmp_path / f"some {n}", *bert).load(tokens, rows, **options)
        assert state_bytes(some, rows) == [whole[row] for row in rows]
    growing = Cache(tmp_path / "growing", *bert)
    for rows in (range(30, 35), range(10), range(40)):
        states = growing.load(tokens, rows, **options)
        assert state_bytes(states, rows) == [whole[row] for row in rows]
    assert growing.computed == 40 - 15


def test_rows_of_another_table_with_the_same_tokens_are_cached(cache: Cache) -> None:
    tokens, more = ragged_tokens(10), ragged_tokens(5, seed=1)
    first = state_bytes(cache.load(tokens, range(10)), range(10))
    states = cache.load(Tokens.join([more, tokens]), range(15))
    assert cache.computed == 5
    assert state_bytes(states, range(5, 15)) == first


def test_rows_with_the_same_tokens_are_computed_once(cache: Cache) -> None:
    tokens = ragged_tokens(10)
    states = cache.load(Tokens.join([tokens, tokens]), range(20))
    assert sum(np.load(shard / "keys.npy").shape[0] for shard in cache.shards) == 10
    assert state_bytes(states, range(10)) == state_bytes(states, range(10, 20))


def test_cached_states_are_not_computed_again(cache: Cache) -> None:
    def times() -> dict[Path, tuple[int, int]]:
        files = [file for shard in cache.shards for file in shard.iterdir()]
        return {file: (file.stat().st_mtime_ns, file.stat().st_ino) for file in files}

    tokens = ragged_tokens(20)
    first = state_bytes(cache.load(tokens, range(20)), range(20))
    assert (cache.progress[0], cache.computed) == (0, 20)
    before = times()
    for selection in (ALL, StateSelection((2,), head=False), StateSelection((), head=True)):
        states = cache.load(tokens, range(20), selection)
        assert cache.progress == [20] and times() == before and not cache.warnings
    assert state_bytes(cache.load(tokens, range(20)), range(20)) == first
    assert states.head(np.arange(20)).shape == (1, 20, 64)


def test_a_larger_selection_is_computed_in_a_new_shard(cache: Cache) -> None:
    tokens = ragged_tokens(10)
    cache.load(tokens, range(10), StateSelection((2,), head=False))
    states = cache.load(tokens, range(10), StateSelection((2, 3), head=False))
    assert cache.computed == 10 and len(cache.shards) == 2
    assert states.tokens(3, np.arange(10)).shape[1] == tokens.offsets[-1]


def test_every_recipe_has_its_own_states(cache: Cache) -> None:
    tokens = ragged_tokens(5)
    cache.load(tokens, range(5))
    cache.load(tokens, range(5), weights="other")
    assert cache.computed == 5
    recipes = [json.loads(file.read_text())["weights"] for file in cache.folder.glob("*/recipe.json")]
    assert sorted(recipes) == ["other", "w"]


def test_incomplete_files_of_a_killed_process_are_removed(cache: Cache) -> None:
    tokens = ragged_tokens(5)
    shard = cache.folder / RECIPE.key / f"{'0123' * 8}.part"
    shard.mkdir(parents=True)
    (shard / "tokens-2.npy").write_bytes(b"half")
    recipe = cache.folder / RECIPE.key / ".recipe.json.45670123.part"
    recipe.write_text("{")
    (cache.folder / RECIPE.key / "mine.part").write_text("of a user")
    assert len(state_bytes(cache.load(tokens, range(5)), range(5))) == 5
    assert not shard.exists() and not recipe.exists() and len(cache.shards) == 1
    assert (cache.folder / RECIPE.key / "mine.part").exists()


def test_a_cache_without_locks_is_refused(cache: Cache) -> None:
    with pytest.raises(FrostlineError, match=r"lock cannot be locked .*: set HF_ASSETS_CACHE"), without_locks():
        cache.load(ragged_tokens(5), range(5))
    assert not cache.shards
    cache.load(ragged_tokens(5), range(5))
    with pytest.raises(FrostlineError, match="end all processes that use this folder"), without_locks():
        remove_entries(None, cache.folder)
    assert cache.shards
