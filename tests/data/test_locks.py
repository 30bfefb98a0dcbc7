"""Locks between processes, and file systems that have none."""

import errno
import os
from pathlib import Path

import pytest
from filelock import Timeout

from frostline import FrostlineError
from frostline.data.files import file_lock, locked
from hostile import without_locks

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has other locks")


def test_one_holder_at_a_time_and_an_error_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with pytest.raises(ZeroDivisionError), locked(path, "choose another", inside=tmp_path):
        with pytest.raises(Timeout):
            file_lock(path, timeout=0, inside=tmp_path).acquire()
        raise ZeroDivisionError
    with file_lock(path, timeout=0, inside=tmp_path):
        pass


@pytest.mark.parametrize("name", ["ENOLCK", "ENOSYS", "EOPNOTSUPP"])
def test_a_file_system_without_locks_is_refused_and_nothing_is_done(tmp_path: Path, name: str) -> None:
    """By default, filelock would warn at ENOSYS and take the file's existence as the lock."""
    number, path = getattr(errno, name), tmp_path / "lock"
    with (
        pytest.raises(FrostlineError) as caught,
        without_locks(number),
        locked(path, "choose another --out", inside=tmp_path),
    ):
        raise AssertionError("this was done without the lock")
    assert str(caught.value) == (
        f"{path} cannot be locked ({os.strerror(number)}), because its file system has no locks: choose another --out."
    )
    with pytest.raises(OSError) as raised, without_locks(number):
        file_lock(path, timeout=0, inside=tmp_path).acquire()
    assert raised.value.errno == number


def test_another_error_is_not_taken_for_missing_locks(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="Input/output error"),
        without_locks(errno.EIO),
        locked(tmp_path / "lock", "no", inside=tmp_path),
    ):
        raise AssertionError("this was done without the lock")


def test_a_link_is_refused_and_its_target_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "lock").symlink_to("thesis.tex")
    with (
        pytest.raises(FrostlineError, match=r"lock is a link, .*: remove it"),
        locked(tmp_path / "lock", "no", inside=tmp_path),
    ):
        raise AssertionError("this was done without the lock")
    assert (tmp_path / "thesis.tex").read_text() == "mine"
