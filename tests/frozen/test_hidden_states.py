"""Cached hidden states equal the hidden states of the model, in the order of the batch.

- Hidden states are computed once and are the same in every batch. Incomplete files are never used.
- The key of cached hidden states.
- A damaged shard is found and computed again.
- Cached hidden states on this machine: list, remove, verify.
- Disk errors while hidden states are written.
- Hidden states that no later command reads.
"""

import dataclasses
import errno
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from frostline import FrostlineError
from frostline.frozen import hidden_states as temporary
from frostline.frozen.cut import cut_at
from frostline.frozen.forward_pass import StateSelection
from frostline.frozen.hidden_states import (
    cache_folder,
    computed_states,
    find_damage,
    list_entries,
    missing_rows,
    remove_entries,
    scratch_folder,
    similar_recipes,
    verify_entries,
)
from frostline.model.anatomy import Anatomy, find_layers
from frostline.model.tokens import Tokens
from frozen.passes import ALL, RECIPE, Cache, pass_over, ragged_tokens, random_tokens, state_bytes
from hostile import with_another_byte, without_locks
from small_models import small_model

WIDTH = 64


def test_cached_states_equal_the_states_of_the_model(cache: Cache) -> None:
    """Compared with a forward pass over each example alone, without padding."""
    tokens = ragged_tokens(20)
    states = cache.load(tokens, range(20))
    for row in range(20):
        with torch.no_grad():
            hidden = cache.model(**tokens.batch(np.array([row])), output_hidden_states=True).hidden_states
        for cut in ALL.cuts:
            assert (states.tokens(cut, np.array([row])) - hidden[cut]).abs().max() < 1e-5
        assert (states.head(np.array([row])) - hidden[4][:, :1]).abs().max() < 1e-5


def test_pooled_vectors_follow_from_the_states_of_all_tokens(cache: Cache) -> None:
    tokens, rows = ragged_tokens(20), np.random.default_rng(3).permutation(20)[:12]
    states = cache.load(tokens, range(20), StateSelection((1, 2), head=False, pooled=(1, 2, 4)))
    assert cache.computed == 20
    for layer in (1, 2):
        pooled = states.pooled(layer, rows)
        assert pooled.shape == (12, 3, WIDTH)
        for row, (first, mean, last) in zip(rows, pooled, strict=True):
            of_row = states.tokens(layer, np.array([row]))[0]
            assert torch.equal(first, of_row[0]) and torch.equal(last, of_row[-1])
            torch.testing.assert_close(mean, of_row.mean(0))
    assert torch.equal(states.pooled(4, rows)[:, 0], cache.load(tokens, range(20)).head(rows)[0])


@pytest.mark.usefixtures("small_shards")
def test_rows_from_several_shards_have_the_order_of_the_batch(cache: Cache) -> None:
    tokens = ragged_tokens(40)
    states = cache.load(tokens, range(40))
    assert len(cache.shards) == 6
    generator = np.random.default_rng(2)
    for size in (1, 3, 16, 40):
        rows = generator.permutation(40)[:size]
        for cut in ALL.cuts:
            alone = [states.tokens(cut, np.array([row]))[0] for row in rows]
            assert torch.equal(states.tokens(cut, rows), torch.cat(alone)[None])
        assert torch.equal(states.head(rows)[0], torch.cat([states.head(np.array([row]))[0] for row in rows]))


@pytest.mark.parametrize("reads", ["first", "last"])
def test_the_head_gets_the_state_of_the_token_that_it_reads(cache: Cache, reads: str) -> None:
    tokens = ragged_tokens(8)
    states = cache.load(tokens, range(8), head_reads=reads)
    for row in range(8):
        whole = states.tokens(4, np.array([row]))[0]
        assert torch.equal(states.head(np.array([row]))[0, 0], whole[0 if reads == "first" else -1])


def test_the_last_token_is_the_last_one_whose_id_is_not_the_padding_id(tmp_path: Path) -> None:
    """As in transformers: if end-of-text is also the padding token, the head reads the token before it."""
    model = small_model("gpt2")
    tokens, rows = ragged_tokens(6), np.arange(6)
    tokens.inputs["input_ids"][tokens.offsets[1:4] - 1] = model.config.pad_token_id
    cache = Cache(tmp_path, model, find_layers(model))
    states = cache.load(tokens, rows, StateSelection((), head=True), head_reads="last")
    with torch.no_grad():
        expected = model(**tokens.batch(rows)).logits
        with cut_at(model, cache.anatomy, 4) as upper:
            logits = upper(tokens.one_token(rows, last=True), states.head(rows))
    assert (logits - expected).abs().max() < 1e-5


def test_an_example_of_the_maximum_length(tmp_path: Path) -> None:
    """The forward pass rounds lengths up to a multiple of 8, but not above the model's positions."""
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 96}
    model = BertForSequenceClassification(BertConfig(vocab_size=300, max_position_embeddings=29, **sizes)).eval()
    tokens = Tokens.join([ragged_tokens(5, longest=29), random_tokens([29])])
    states = Cache(tmp_path, model, find_layers(model)).load(tokens, range(6))
    assert states.tokens(4, np.array([5])).shape == (1, 29, WIDTH)


def test_it_has_rows_only_if_all_of_them_are_cached(cache: Cache) -> None:
    states = cache.load(ragged_tokens(20), range(10))
    assert states.has(np.arange(10)) and not states.has(np.array([3, 15])) and not states.has(np.array([15]))


@pytest.mark.usefixtures("small_shards")
def test_closed_files_are_opened_again(cache: Cache) -> None:
    rows = np.arange(40)
    states = cache.load(ragged_tokens(40), range(40))
    assert not states.open_files
    before = states.tokens(ALL.cuts[0], rows)
    assert states.open_files == {f"tokens-{ALL.cuts[0]}"}
    states.begin_group(ALL.cuts[0])
    assert not states.open_files
    assert torch.equal(states.tokens(ALL.cuts[0], rows), before)
    states.begin_group(ALL.cuts[0])  # they are of this group
    assert states.open_files == {f"tokens-{ALL.cuts[0]}"}


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


@pytest.fixture(scope="module")
def two_precisions(bert: tuple[Any, Anatomy], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the hidden states of one model in two precisions. Tests must copy it before they write into it."""
    cache, tokens = Cache(tmp_path_factory.mktemp("entries") / "cache", *bert), ragged_tokens(12)
    for precision in ("float32", "bfloat16"):
        for rows in (range(8), range(12)):
            cache.load(tokens, rows, StateSelection((1,), head=False), precision=precision)
    return cache.folder


@pytest.fixture
def folder(two_precisions: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(two_precisions, tmp_path / "copy"))


def test_all_entries_are_listed(folder: Path) -> None:
    entries = list(list_entries(folder))
    assert [entry.recipe["precision"] for entry in entries] == ["float32", "bfloat16"]
    for entry in entries:
        assert (entry.model, entry.rows, entry.cuts) == ("m", 12, (1,))
        assert entry.bytes == sum(path.stat().st_size for path in entry.folder.rglob("*") if path.is_file())
    assert list(list_entries(folder / "nothing")) == []


def test_entries_are_removed_by_a_prefix_of_their_key(folder: Path) -> None:
    first, second = list_entries(folder)
    with pytest.raises(FrostlineError, match="No cached hidden states have the key 'zz'"):
        remove_entries([first.key[:6], "zz"], folder)
    assert len(list(list_entries(folder))) == 2
    assert [entry.key for entry in remove_entries([first.key[:6]], folder)] == [first.key]
    assert [entry.key for entry in list_entries(folder)] == [second.key] and not first.folder.exists()
    assert len(remove_entries(None, folder)) == 1
    assert list(list_entries(folder)) == [] and remove_entries(None, folder) == []


@pytest.mark.parametrize("content", ["", "{", "[]"])
@pytest.mark.parametrize("name", ["recipe.json", "shard.json"])
def test_an_entry_with_a_damaged_record_is_listed_and_can_be_removed(folder: Path, name: str, content: str) -> None:
    file = next(folder.rglob(name))
    file.write_text(content)
    assert len(list(list_entries(folder))) == 2
    damages = [damage for _, damage in verify_entries(folder)]
    assert sorted(damages) == ["", f"{file} is damaged"]
    assert len(remove_entries(None, folder)) == 2 and list(list_entries(folder)) == []


def test_verification_finds_a_changed_bit(folder: Path) -> None:
    assert [damage for _, damage in verify_entries(folder)] == ["", ""]
    file = next(folder.rglob("tokens-1.npy"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert sorted(damage for _, damage in verify_entries(folder)) == ["", f"{file} is damaged"]


def raises(number: int) -> Callable[..., None]:
    def fail(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    "function, number", [("posix_fallocate", errno.ENOSPC), ("fsync", errno.ENOSPC), ("posix_fallocate", errno.EDQUOT)]
)
@pytest.mark.usefixtures("small_shards")
def test_a_full_disk_is_an_error_and_complete_shards_remain(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, function: str, number: int
) -> None:
    """Incomplete files are removed, and the next call computes only the missing rows."""
    tokens = ragged_tokens(21)
    first = state_bytes(cache.load(tokens, range(7)), range(7))
    with monkeypatch.context() as disk:
        disk.setattr(os, function, raises(number))
        with pytest.raises(FrostlineError, match=r"The disk is full: .*`frostline cache rm`.* cache_limit"):
            cache.load(tokens, range(21))
    assert len(cache.shards) == 1 and not list(cache.folder.glob("*/*.part"))
    assert state_bytes(cache.load(tokens, range(21)), range(7)) == first
    assert cache.computed == 14


def test_a_disk_that_is_full_before_the_first_shard(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frostline.data.files.os.fsync", raises(errno.ENOSPC))
    with pytest.raises(FrostlineError, match=r"The disk is full: hidden states could not be cached in .* cache_limit"):
        cache.load(ragged_tokens(3), range(3))


def test_a_folder_that_cannot_be_written(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frostline.data.files.os.fsync", raises(errno.EROFS))
    with pytest.raises(FrostlineError, match=r"cannot be cached in .*: set HF_ASSETS_CACHE to a folder"):
        cache.load(ragged_tokens(3), range(3))


def test_other_disk_errors_are_raised_unchanged(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", raises(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        cache.load(ragged_tokens(3), range(3))
    assert not list(cache.folder.glob("*/*.part"))


def test_computed_states_are_those_of_a_forward_pass(tmp_path: Path) -> None:
    forward_pass = pass_over(small_model("bert"), selection=StateSelection((1,), head=False))
    tokens, rows = ragged_tokens(12), np.array([7, 2, 5, 2])
    states = computed_states(tmp_path, forward_pass, tokens, rows)
    for row in rows:
        one = np.array([row])
        (expected,) = forward_pass.hidden_states(tokens, forward_pass.batches(tokens.lengths, one))
        assert torch.equal(states.tokens(1, one)[0], expected["tokens-1"])
    assert not states.has(np.array([0]))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_cannot_be_written_is_named(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "cache_folder", lambda: tmp_path / "cache")
    with pytest.raises(FrostlineError, match=r"^Hidden states cannot be written to .*cache \("), scratch_folder():
        raise OSError(number, "no")
    with pytest.raises(FileNotFoundError), scratch_folder():  # not about this folder
        raise FileNotFoundError(errno.ENOENT, "gone")
