"""A damaged shard is found and computed again."""

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from frostline.frozen.hidden_states import find_damage, missing_rows
from frozen.cached import ALL, RECIPE, Cache, state_bytes
from frozen.random_tokens import ragged_tokens
from hostile import with_another_byte

FLIPS = 2000


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def change_a_cut(shard: Path) -> None:
    before = (shard / "shard.json").read_text()
    after = before.replace("4\n", "3\n", 1)
    assert after != before
    (shard / "shard.json").write_text(after)


def change_the_seconds(shard: Path) -> None:
    before = (shard / "shard.json").read_text()
    (shard / "shard.json").write_text(before.replace('"seconds": ', '"seconds": 1', 1))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a bit of the states": lambda shard: flip_a_bit(shard / "tokens-2.npy"),
    "a bit of the keys": lambda shard: flip_a_bit(shard / "keys.npy"),
    "truncated states": lambda shard: os.truncate(shard / "head.npy", 200),
    "a missing file": lambda shard: (shard / "offsets.npy").unlink(),
    "half a record": lambda shard: (shard / "shard.json").write_text("{"),
    "a record that is not an object": lambda shard: (shard / "shard.json").write_text("[]"),
    "a missing record": lambda shard: (shard / "shard.json").unlink(),
    "other seconds in the record": change_the_seconds,
    "empty keys": lambda shard: os.truncate(shard / "keys.npy", 0),
    "empty offsets": lambda shard: os.truncate(shard / "offsets.npy", 0),
    "an empty file as record": lambda shard: os.truncate(shard / "shard.json", 0),
    "an empty record": lambda shard: (shard / "shard.json").write_text("{}"),
    "another cut in the record": change_a_cut,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_reported_and_the_states_are_computed_again(cache: Cache, kind: str) -> None:
    tokens = ragged_tokens(6)
    intact = state_bytes(cache.load(tokens, range(6)), range(6))
    (shard,) = cache.shards
    assert find_damage(shard) == ""
    DAMAGE[kind](shard)
    damage = find_damage(shard)
    assert damage.startswith(str(shard)) and damage.endswith(" is missing" if "missing" in kind else " is damaged")
    unverified = missing_rows(tokens, np.arange(6), ALL, RECIPE, folder=cache.folder)
    assert len(unverified) <= 6 and shard.exists()
    assert state_bytes(cache.load(tokens, range(6)), range(6)) == intact
    assert cache.computed == 6
    assert cache.warnings == [f"Cached hidden states are computed again: {damage}."]
    assert find_damage(shard) == ""
    cache.load(tokens, range(6))
    assert cache.progress == [6] and not cache.warnings


def test_changing_a_tensor_does_not_change_the_cached_file(cache: Cache) -> None:
    states = cache.load(ragged_tokens(5), range(5))
    states._shards[0].array("tokens-2").fill_(0)
    assert find_damage(cache.shards[0]) == ""


def test_every_changed_byte_of_a_shard_is_found_and_no_such_shard_is_used(cache: Cache) -> None:
    """Every file of a shard is hit equally often: the states, the keys, the offsets and the record."""
    tokens, rows, rng, found = ragged_tokens(6), range(6), random.Random(0), Counter[str]()
    intact = state_bytes(cache.load(tokens, rows), rows)
    (shard,) = cache.shards
    whole = {path: path.read_bytes() for path in sorted(shard.iterdir())}
    for number in range(FLIPS):
        path = rng.choice(list(whole))
        path.write_bytes(with_another_byte(whole[path], rng))
        assert find_damage(shard) == f"{path} is damaged"
        found[path.name] += 1
        if number % 100 == 0:
            assert state_bytes(cache.load(tokens, rows), rows) == intact and cache.computed == 6 and cache.warnings
            whole |= {shard / "shard.json": (shard / "shard.json").read_bytes()}  # its seconds are others
        path.write_bytes(whole[path])
    assert find_damage(shard) == "" and found.total() == FLIPS and min(found.values()) > FLIPS / 10
    assert {"shard.json", "keys.npy", "offsets.npy", "head.npy", "tokens-1.npy"} <= set(found)
