"""Atomic file writing: a failure never leaves an incomplete file."""

import errno
import json
import math
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock, Timeout
from hypothesis import given
from hypothesis import strategies as st

from frostline import FrostlineError
from frostline.data.files import (
    MOST,
    create_file,
    create_folder,
    file_name,
    locked,
    make_folder,
    new_folder,
    replace_file,
    seal,
    unseal,
    write_json,
)
from hostile import fail_at, failing, without_locks
from tiny import contents


def test_a_full_disk_is_named_and_no_file_or_folder_is_written_in_part(tmp_path: Path) -> None:
    target = tmp_path / "answer.json"
    replace_file(target, b"old", inside=tmp_path)
    for number in (1, 2, 3):
        full = pytest.raises(FrostlineError, match=r"The disk is full: .*answer\.json could not be written")
        with full, failing(number, "ENOSPC"):
            replace_file(target, b"new", inside=tmp_path)
        full = pytest.raises(FrostlineError, match=r"The disk is full: .*run could not be written")
        with full, failing(number, "ENOSPC"):
            create_folder(tmp_path / "run", {"a": b"first"}, inside=tmp_path)
        assert contents(tmp_path) == {"answer.json": b"old"} and list(tmp_path.iterdir()) == [target]
    replace_file(target, b"new", inside=tmp_path)
    assert contents(tmp_path) == {"answer.json": b"new"}


def test_what_exists_is_not_created_again(tmp_path: Path) -> None:
    file, folder = tmp_path / "new" / "run.json", tmp_path / "new" / "run"
    assert create_file(file, b"first", inside=tmp_path) and not create_file(file, b"second", inside=tmp_path)
    assert create_folder(folder, {"a": b"first", "b": b""}, inside=tmp_path)
    assert not create_folder(folder, {"a": b"second"}, inside=tmp_path)
    assert contents(tmp_path / "new") == {"run.json": b"first", "run/a": b"first", "run/b": b""}


def test_a_file_is_created_although_the_network_sent_the_request_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def twice(*paths: Path) -> None:
        link(*paths)
        link(*paths)

    monkeypatch.setattr(os, "link", twice)
    assert create_file(tmp_path / "run.json", b"first", inside=tmp_path) and not create_file(
        tmp_path / "run.json", b"second", inside=tmp_path
    )
    assert (tmp_path / "run.json").read_bytes() == b"first"


def test_an_older_folder_is_replaced_as_a_whole_whichever_operation_fails(tmp_path: Path) -> None:
    def prepared(number: int) -> Path:
        (tmp_path / f"{number}" / "model").mkdir(parents=True)
        (tmp_path / f"{number}" / "model" / "old.bin").touch()
        return tmp_path / f"{number}"

    def replace(out: Path) -> None:
        with new_folder(out / "model", inside=out, replace=True) as aside:
            (aside / "new.bin").write_bytes(b"new")

    count, found = fail_at(0, "", partial(replace, prepared(0))), set[str]()
    for number in range(1, count + 1):
        out, ended = prepared(number), False
        with suppress(OSError), failing(number, "EIO"):
            replace(out)
            ended = True  # although something of the older folder could not be removed
        assert ended or [path.name for path in out.iterdir()] == ["model"], number
        assert contents(out / "model") in ({"old.bin": b""}, {"new.bin": b"new"}), number
        found |= contents(out / "model").keys()
    assert found == {"old.bin", "new.bin"}


def test_a_path_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FrostlineError, match=r"cannot be written \(.*\): make it writable, or choose another folder"):
        replace_file(tmp_path / "file" / "x.json", b"", inside=tmp_path)
    with pytest.raises(
        FrostlineError, match=r"cannot be written into \(.*\): make it writable, or choose another folder"
    ):
        make_folder(tmp_path / "file" / "folder", inside=tmp_path)


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    write_json(tmp_path / "facts.json", {"a": [1.5, math.nan, {"b": (math.inf, "x")}], "c": None}, inside=tmp_path)
    assert json.loads((tmp_path / "facts.json").read_text()) == {"a": [1.5, None, {"b": [None, "x"]}], "c": None}


@pytest.mark.parametrize(
    "name, expected",
    [("org/model", "org-model"), ("a  b?", "a-b"), ("..", "data"), ("MiniLM-L6_v2.1", "MiniLM-L6_v2.1")],
)
def test_names_of_models_and_tasks_are_safe_file_names(name: str, expected: str) -> None:
    assert file_name(name) == expected


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(-MOST, MOST) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=3,
)
FACTS = st.dictionaries(st.text().filter(lambda key: key != "checksum"), VALUES, min_size=1)


@given(FACTS)
def test_sealed_facts_are_ordinary_json_and_are_read_back(facts: dict[str, object]) -> None:
    content = seal(facts)
    assert unseal(content) == facts and json.loads(content).items() >= facts.items()


@given(FACTS, st.integers(0, 10**9), st.integers(1, 255), st.sampled_from(["change", "truncate", "insert"]))
def test_every_other_content_is_refused(facts: dict[str, object], place: int, change: int, how: str) -> None:
    content = seal(facts)
    place %= len(content)
    after = {"change": content[place + 1 :], "truncate": b"", "insert": content[place:]}[how]
    byte = {"change": bytes([content[place] ^ change]), "truncate": b"", "insert": bytes([change])}[how]
    with pytest.raises(ValueError, match="checksum"):
        unseal(content[:place] + byte + after)


def test_one_holder_at_a_time_and_an_error_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    with pytest.raises(ZeroDivisionError), locked(path, "choose another", inside=tmp_path):
        with pytest.raises(Timeout):
            FileLock(path).acquire(timeout=0)
        raise ZeroDivisionError
    with FileLock(path, timeout=0):
        pass


@pytest.mark.skipif(os.name == "nt", reason="Windows has other locks")
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
