"""Atomic file writing: a failure never leaves an incomplete file."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

import frostline.data.files as files_module
from frostline import FrostlineError
from frostline.data.files import (
    create_file,
    create_folder,
    file_name,
    make_folder,
    new_folder,
    replace_file,
    write_json,
)


def disk_is_full(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_file_is_replaced_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "answer.json"
    replace_file(target, b"old", inside=tmp_path)
    monkeypatch.setattr(files_module.os, "fsync", disk_is_full)
    with pytest.raises(FrostlineError, match=r"The disk is full: .*answer\.json could not be written"):
        replace_file(target, b"new", inside=tmp_path)
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]
    monkeypatch.undo()
    replace_file(target, b"new", inside=tmp_path)
    assert target.read_bytes() == b"new" and list(tmp_path.iterdir()) == [target]


def test_create_file_does_not_change_an_existing_file(tmp_path: Path) -> None:
    target = tmp_path / "new" / "run.json"
    assert create_file(target, b"first", inside=tmp_path)
    assert not create_file(target, b"second", inside=tmp_path)
    assert target.read_bytes() == b"first" and list(target.parent.iterdir()) == [target]


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


def test_create_folder_does_not_change_an_existing_folder(tmp_path: Path) -> None:
    target = tmp_path / "new" / "run"
    assert create_folder(target, {"a": b"first", "b": b""}, inside=tmp_path)
    assert not create_folder(target, {"a": b"second"}, inside=tmp_path)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {"a": b"first", "b": b""}
    assert list(target.parent.iterdir()) == [target]


def test_a_folder_is_created_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module.os, "fsync", disk_is_full)
    with pytest.raises(FrostlineError, match=r"The disk is full: .*run could not be written"):
        create_folder(tmp_path / "run", {"a": b"first"}, inside=tmp_path)
    assert not list(tmp_path.iterdir())


def test_content_and_folders_are_flushed_before_and_after_a_file_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power failure may lose is only what was not flushed, so the order of these calls is the guarantee."""
    calls: list[tuple[str, str]] = []
    for name in ("replace", "link", "rename"):
        real = getattr(files_module.os, name)

        def spy(source: Path, target: Path, name: str = name, real: Any = real) -> None:
            calls.append((name, target.name))
            real(source, target)

        monkeypatch.setattr(files_module.os, name, spy)
    flush = files_module.os.fsync
    monkeypatch.setattr(
        files_module.os,
        "fsync",
        lambda n: (calls.append(("flush", Path(f"/proc/self/fd/{n}").resolve().name)), flush(n)),
    )
    out = tmp_path / "out"
    replace_file(out / "a", b"x", inside=out)
    assert [(what, name[:2]) for what, name in calls] == [
        ("flush", tmp_path.name[:2]),  # has the new folder
        ("flush", ".a"),
        ("replace", "a"),
        ("flush", "ou"),
    ]
    calls.clear()
    create_file(out / "b", b"x", inside=out)
    assert [(what, name[:2]) for what, name in calls] == [("flush", ".b"), ("link", "b"), ("flush", "ou")]
    calls.clear()
    create_folder(out / "c", {"1": b"x", "2": b"y"}, inside=out)
    assert [(what, name[:2]) for what, name in calls] == [
        ("flush", "1"),
        ("flush", "2"),
        ("flush", ".c"),
        ("rename", "c"),
        ("flush", "ou"),
    ]


def test_a_folder_takes_the_place_of_an_older_one_after_it_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything in it is flushed before it is moved, and then the folder that has its name."""
    target, steps = tmp_path / "model", list[str]()
    target.mkdir()
    (target / "old.bin").touch()
    monkeypatch.setattr(files_module, "sync", lambda path: steps.append(path.name))
    rename = files_module.os.rename
    monkeypatch.setattr(files_module.os, "rename", lambda a, b: (steps.append(f"to {b.name}"), rename(a, b)))
    with new_folder(target, inside=tmp_path, replace=True) as aside:
        (aside / "part").mkdir()
        (aside / "part" / "new.bin").touch()
    assert steps == ["part", "new.bin", aside.name, f"to {aside.stem}.old", "to model", tmp_path.name]
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "part", "new.bin"]


def test_a_folder_that_is_not_written_to_its_end_leaves_the_older_one(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "model", inside=tmp_path, replace=True) as aside:
        (aside / "new.bin").touch()
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.rglob("*")] == ["model"]


def test_what_a_process_left_that_was_killed_while_it_moved_a_folder_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, rename = tmp_path / "model", files_module.os.rename
    target.mkdir()
    others = [".model.v2.0123abcd.old", ".model.0123abcd.part"]  # another target's, and of a process that may live
    for name in others:
        (tmp_path / name).mkdir()

    def killed(source: Path, to: Path) -> None:
        if to == target:
            raise KeyboardInterrupt
        rename(source, to)

    with monkeypatch.context() as killing, pytest.raises(KeyboardInterrupt):
        killing.setattr(files_module.os, "rename", killed)
        killing.setattr(files_module.shutil, "rmtree", lambda *_, **__: None)
        with new_folder(target, inside=tmp_path, replace=True) as first:
            pass
    both = [first.name, first.with_suffix(".old").name]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, *both])
    with new_folder(target, inside=tmp_path, replace=True):
        pass  # a process that lives may have made them just now
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, *both, "model"])
    os.utime(tmp_path / both[1], (0, 0))
    with new_folder(target, inside=tmp_path, replace=True):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "model"])


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
