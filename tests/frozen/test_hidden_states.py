"""Cached hidden states are those of the model. They are computed once, listed, verified and removed.

Damaged ones are computed again. ``tests/faults/test_failing_cache.py`` lets every operation of the disk fail.
"""

import dataclasses
import errno
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from frostline import FrostlineError
from frostline.frozen.cache import (
    cache_folder,
    is_damaged,
    list_entries,
    remove_entries,
    similar_recipes,
)
from frostline.frozen.cut import cut_at
from frostline.frozen.forward_pass import StateSelection
from frostline.frozen.hidden_states import missing_rows, scratch_folder
from frostline.model.anatomy import Anatomy, find_layers
from frostline.model.tokens import Tokens
from frozen.passes import ALL, RECIPE, Cache, ragged_tokens, random_tokens, state_bytes
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


def test_only_what_is_missing_is_computed(cache: Cache) -> None:
    def times() -> dict[Path, tuple[int, int]]:
        return {shard: (shard.stat().st_mtime_ns, shard.stat().st_ino) for shard in cache.shards}

    tokens, more = ragged_tokens(20), ragged_tokens(5, seed=1)
    first = state_bytes(cache.load(tokens, range(20)), range(20))
    assert (cache.progress[0], cache.computed) == (0, 20)
    before = times()
    for selection in (ALL, StateSelection((2,), head=False), StateSelection((), head=True)):
        states = cache.load(tokens, range(20), selection)
        assert cache.progress == [20] and times() == before and not cache.warnings
    assert states.head(np.arange(20)).shape == (1, 20, 64)
    states = cache.load(Tokens.join([more, tokens, more]), range(30))  # rows of another table, some of them twice
    assert cache.computed == 5 and state_bytes(states, range(5, 25)) == first
    assert state_bytes(states, range(5)) == state_bytes(states, range(25, 30))
    states = cache.load(tokens, range(10), StateSelection((2, 3), head=False))  # a larger selection
    assert cache.computed == 10 and states.tokens(3, np.arange(10)).shape[1] == tokens.offsets[10]
    assert states.has(np.arange(10)) and not states.has(np.array([3, 15])) and not states.has(np.array([15]))
    cache.load(tokens, range(5), weights="other")
    recipes = [json.loads(file.read_text())["weights"] for file in cache.folder.glob("*/recipe.json")]
    assert cache.computed == 5 and sorted(recipes) == ["other", "w"]


def test_a_cache_without_locks_is_refused(cache: Cache) -> None:
    with pytest.raises(FrostlineError, match=r"lock cannot be locked .*: set HF_ASSETS_CACHE"), without_locks():
        cache.load(ragged_tokens(5), range(5))
    assert not cache.shards
    cache.load(ragged_tokens(5), range(5))
    with pytest.raises(FrostlineError, match="end all processes that use this folder"), without_locks():
        remove_entries(None, cache.folder)
    assert cache.shards


def test_every_field_except_the_name_changes_the_key() -> None:
    others = {"packed": False, "machine": {**RECIPE.machine, "threads": 2}}
    for field in dataclasses.fields(RECIPE):
        other = dataclasses.replace(RECIPE, **{field.name: others.get(field.name, "other")})
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


def test_the_cache_is_in_the_assets_cache_of_hugging_face() -> None:
    assert cache_folder().is_relative_to(os.environ["HF_ASSETS_CACHE"])
    assert {"frostline", "hidden-states"} <= set(cache_folder().parts)


@pytest.mark.parametrize("change", [lambda x: b"", lambda x: x[:200], lambda x: x[:-1], lambda x: x + b"\0"])
def test_a_damaged_shard_is_reported_and_its_states_are_computed_again(
    cache: Cache, change: Callable[[bytes], bytes]
) -> None:
    tokens = ragged_tokens(6)
    intact = state_bytes(cache.load(tokens, range(6)), range(6))
    (shard,) = cache.shards
    assert not is_damaged(shard)
    shard.write_bytes(change(shard.read_bytes()))
    assert is_damaged(shard)
    assert len(missing_rows(tokens, np.arange(6), ALL, RECIPE, folder=cache.folder)) <= 6 and shard.exists()
    assert state_bytes(cache.load(tokens, range(6)), range(6)) == intact
    assert cache.computed == 6 and cache.warnings == [f"Cached hidden states are computed again: {shard} is damaged."]
    cache.load(tokens, range(6))
    assert cache.progress == [6] and not cache.warnings


def test_every_changed_byte_of_a_shard_is_found_and_no_command_fails(cache: Cache) -> None:
    """Most of the changes are in the header, which says what the file holds."""
    tokens, rng = ragged_tokens(6), random.Random(0)
    cache.load(tokens, range(6))
    (shard,) = cache.shards
    whole, header = shard.read_bytes(), 8 + int.from_bytes(shard.read_bytes()[:8], "little")
    for number in range(500):
        end = header if number % 5 else len(whole)
        shard.write_bytes(with_another_byte(whole[:end], rng) + whole[end:])
        assert is_damaged(shard) and len(list_entries(cache.folder)) == 1
        assert len(missing_rows(tokens, np.arange(6), ALL, RECIPE, folder=cache.folder)) <= 6


def test_changing_a_tensor_does_not_change_the_cached_file(cache: Cache) -> None:
    states = cache.load(ragged_tokens(5), range(5))
    states._shards[0]["tokens-2"].fill_(0)
    assert not is_damaged(cache.shards[0])


@pytest.fixture(scope="module")
def two_precisions(bert: tuple[Any, Anatomy], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the hidden states of one model in two precisions. Tests must copy it before they write into it."""
    cache, tokens = Cache(tmp_path_factory.mktemp("entries") / "cache", *bert), ragged_tokens(12)
    for precision in ("float32", "bfloat16"):
        for rows in (range(8), range(12)):
            cache.load(tokens, rows, StateSelection((1,), head=True, pooled=(0, 2)), precision=precision)
        again = StateSelection((2,), head=False)  # of examples that another file has
        cache.load(tokens, range(4), again, precision=precision)
    return cache.folder


@pytest.fixture
def folder(two_precisions: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(two_precisions, tmp_path / "copy"))


def test_all_entries_are_listed(folder: Path) -> None:
    entries = list_entries(folder)
    assert [entry.recipe and entry.recipe.precision for entry in entries] == ["float32", "bfloat16"]
    for entry in entries:
        assert (entry.model, entry.rows, entry.after) == ("m", 12, ("0", "1", "2", "last"))
        assert entry.bytes == sum(path.stat().st_size for path in entry.folder.rglob("*") if path.is_file())
    assert list_entries(folder / "nothing") == []


def test_entries_are_removed_by_a_prefix_of_their_key(folder: Path) -> None:
    first, second = list_entries(folder)
    with pytest.raises(FrostlineError, match="No cached hidden states have the key 'zz'"):
        remove_entries([first.folder.name[:6], "zz"], folder)
    assert len(list_entries(folder)) == 2
    assert [entry.folder.name for entry in remove_entries([first.folder.name[:6]], folder)] == [first.folder.name]
    assert [entry.folder.name for entry in list_entries(folder)] == [second.folder.name] and not first.folder.exists()
    assert len(remove_entries(None, folder)) == 1
    assert list_entries(folder) == [] and remove_entries(None, folder) == []


@pytest.mark.parametrize("content", ["", "{", "[]"])
@pytest.mark.parametrize("name", ["recipe.json", "*.safetensors"])
def test_a_damaged_entry_is_listed_and_can_be_removed(folder: Path, name: str, content: str) -> None:
    next(folder.rglob(name)).write_text(content)
    assert len(list_entries(folder)) == 2
    assert len(remove_entries(None, folder)) == 2 and list_entries(folder) == []


def raises(number: int) -> Callable[..., None]:
    def fail(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EDQUOT, FrostlineError), (errno.EROFS, FrostlineError), (errno.EIO, OSError)]
)
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, number: int, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught, scratch_folder():
        raises(number)()
    assert str(caught.value).startswith("Hidden states cannot be written to") == (kind is FrostlineError)


@pytest.mark.parametrize(
    ("number", "cached", "scratch"),
    [
        (
            errno.ENOSPC,
            "free disk space (`frostline cache rm`), set HF_ASSETS_CACHE to another folder, or set a lower --cache-limit of a "
            "sweep or search, and run the same command again. Finished runs remain.",
            "free disk space (`frostline cache rm`), or set HF_ASSETS_CACHE to another folder.",
        ),
        (
            errno.EACCES,
            "set HF_ASSETS_CACHE to a folder that can be written, or cache nothing in a sweep or search (--cache-limit 0).",
            "set HF_ASSETS_CACHE to a folder that can be written.",
        ),
    ],
)
def test_the_advice_fits_what_cannot_be_written(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, number: int, cached: str, scratch: str
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", raises(number))
    with pytest.raises(FrostlineError) as caught:
        cache.load(ragged_tokens(7), range(7))
    assert str(caught.value).endswith(f"({os.strerror(number)}): {cached}")
    with pytest.raises(FrostlineError) as caught, scratch_folder():
        raises(number)()
    assert str(caught.value).endswith(f"({os.strerror(number)}): {scratch}")
