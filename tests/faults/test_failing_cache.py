"""Whichever operation of the disk fails, hidden states are cached whole or not at all, and the next call gets the same ones."""

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from frostline.frozen.cache import is_damaged, remove_entries
from frostline.frozen.forward_pass import StateSelection
from frostline.model.anatomy import Anatomy, find_layers
from frozen.passes import Cache, bytes_of, ragged_tokens, state_bytes
from hostile import HOW, fail_at
from small_models import small_model

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed in a fork")
TOKENS, ROWS, SELECTION = ragged_tokens(6, longest=5), range(6), StateSelection((1,), head=True)


@pytest.fixture(scope="module")
def bert() -> tuple[Any, Anatomy]:
    model = small_model("bert")
    return model, find_layers(model)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frostline.frozen.hidden_states.SHARD_ROWS", 4)


def nothing(cache: Cache) -> None:
    """No hidden states are cached yet."""


def damaged(cache: Cache) -> None:
    """The states of all rows were cached, but those of four are damaged."""
    cache.load(TOKENS, ROWS, SELECTION)
    with max(cache.shards, key=lambda shard: shard.stat().st_size).open("rb+") as file:
        file.write(b"damage")


def intact(cache: Cache) -> set[bytes]:
    """The keys of the examples in each shard."""
    return {bytes_of(shard)["keys"] for shard in cache.shards if not is_damaged(shard)}


@pytest.mark.parametrize("how", HOW)
def test_hidden_states_come_back_after_a_removal_that_failed(
    tmp_path: Path, bert: tuple[Any, Anatomy], how: str
) -> None:
    full = Cache(tmp_path / "full", *bert)
    expected = state_bytes(full.load(TOKENS, ROWS, SELECTION), ROWS)
    count = fail_at(0, "", partial(remove_entries, None, shutil.copytree(full.folder, tmp_path / "0")))
    assert count >= 4  # two shards, the record and the folder
    for number in range(1, count + 1):
        cache = Cache(shutil.copytree(full.folder, tmp_path / f"{number}"), *bert)
        fail_at(number, how, partial(remove_entries, None, cache.folder))
        assert state_bytes(cache.load(TOKENS, ROWS, SELECTION), ROWS) == expected, number


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("before", [nothing, damaged])
def test_shards_are_whole_and_the_next_call_computes_what_is_missing(
    tmp_path: Path, bert: tuple[Any, Anatomy], before: Any, how: str
) -> None:
    def folder(number: int) -> Cache:
        return Cache(shutil.copytree(tmp_path / "before", tmp_path / f"{number}"), *bert)

    def operation(cache: Cache) -> None:
        cache.load(TOKENS, ROWS, SELECTION)

    (tmp_path / "before").mkdir()
    before(Cache(tmp_path / "before", *bert))
    old = intact(folder(-1))
    count = fail_at(0, "", partial(operation, new := folder(0)))
    expected, all_of_them, seen = state_bytes(new.load(TOKENS, ROWS, SELECTION), ROWS), intact(new), set[int]()
    assert count >= 15 and len(all_of_them) == 2 and old < all_of_them
    for number in range(1, count + 1):
        cache = folder(number)
        fail_at(number, how, partial(operation, cache))
        found = intact(cache)
        assert old <= found <= all_of_them, number
        seen.add(len(found))
        assert state_bytes(cache.load(TOKENS, ROWS, SELECTION), ROWS) == expected, number
        assert bool(cache.computed) == (found < all_of_them)
        assert intact(cache) == all_of_them and not list(cache.folder.glob("*/*.part"))
        assert {path.name for path in cache.folder.glob("*/*")} - {s.name for s in cache.shards} == {
            "lock",
            "recipe.json",
        }
    assert seen >= set(range(len(old), 2))
