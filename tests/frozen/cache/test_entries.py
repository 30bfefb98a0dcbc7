"""Cached hidden states on this machine: list, remove, verify."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from frostline import FrostlineError
from frostline.frozen.forward_pass import StateSelection
from frostline.frozen.hidden_states import list_entries, remove_entries, verify_entries
from frostline.model.anatomy import Anatomy
from frozen.cached import Cache
from frozen.random_tokens import ragged_tokens


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
