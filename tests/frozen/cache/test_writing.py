"""Disk errors while hidden states are written."""

import errno
import os
from collections.abc import Callable

import pytest

from frostline import FrostlineError
from frozen.cached import Cache, state_bytes
from frozen.random_tokens import ragged_tokens


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
