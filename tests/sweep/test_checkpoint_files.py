"""The files of checkpoints: a state comes back bit for bit, or not at all."""

import errno
import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import frostline.sweep.results.tensor_files as checkpoint_files
from frostline import FrostlineError
from frostline.sweep.results.tensor_files import CheckpointFiles
from hostile import failing

ABOUT = {"runs": ["aa"], "micro_batch": 8}
STATE = {"step": 3, "values": [torch.arange(3.0), np.arange(4)]}
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(),
    st.sampled_from([torch.int64, torch.float32, torch.bfloat16, torch.uint8]).map(
        lambda kind: torch.tensor([[1, 250, 3]]).to(kind)
    ),
    st.sampled_from([np.int64, np.uint64, np.float64]).map(lambda kind: np.array([2**40, 3], kind)),
)
STATES = st.dictionaries(
    st.text(),
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)),
    max_size=4,
)


def unexpected(note: str) -> None:
    raise AssertionError(note)


def equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@settings(deadline=None, max_examples=40)
@given(state=STATES)
def test_a_state_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, state: dict[str, Any]) -> None:
    files = CheckpointFiles(tmp_path_factory.mktemp("sweep"))
    files.save("aa", 3, state, ABOUT)
    found = files.load("aa", ABOUT, unexpected)
    assert found is not None and equal(found, state)


def test_tensors_that_share_memory_are_kept_apart(tmp_path: Path) -> None:
    whole = torch.arange(6.0)
    state = {"views": [whole[:2], whole[1:4], whole.view(2, 3).T]}
    files = CheckpointFiles(tmp_path)
    files.save("aa", 1, state, ABOUT)
    found = files.load("aa", ABOUT, unexpected)
    assert found is not None and equal(found, state)


def test_a_state_of_something_else_is_not_used(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    assert files.load("aa", ABOUT, unexpected) is None
    files.save("aa", 3, STATE, ABOUT)
    assert files.load("aa", {**ABOUT, "micro_batch": 4}, unexpected) is None
    assert files.load("a", ABOUT, unexpected) is None and files.load("aa", ABOUT, unexpected) is not None


def test_the_last_state_counts_and_is_removed_with_its_folder(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    for steps in (9, 10):
        files.save("aa", steps, {"step": steps}, ABOUT)
    files.save("bb", 2, {"step": 2}, ABOUT)
    assert files.load("aa", ABOUT, unexpected) == {"step": 10} and len(list(files.folder.iterdir())) == 2
    files.remove(["aa"])
    assert files.load("aa", ABOUT, unexpected) is None and files.load("bb", ABOUT, unexpected) == {"step": 2}
    files.remove(["bb"])
    assert not files.folder.exists()
    files.remove(["bb"])


def test_a_process_that_was_replaced_leaves_the_later_state_of_its_successor(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    files.save("aa", 5000, {"step": 5000}, ABOUT)
    files.save("aa", 600, {"step": 600}, ABOUT)
    assert files.load("aa", ABOUT, unexpected) == {"step": 5000}


@pytest.mark.parametrize("error", [FileNotFoundError(), OSError(errno.EIO, "Input/output error")])
def test_a_state_that_cannot_be_read_now_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    files, notes = CheckpointFiles(tmp_path), list[str]()
    files.save("aa", 9, {"step": 9}, ABOUT)
    with monkeypatch.context() as failing_now:
        failing_now.setattr(checkpoint_files, "file_checksum", Mock(side_effect=error))
        assert files.load("aa", ABOUT, notes.append) is None
    assert [note.partition("cannot be read")[2] for note in notes] == (
        [" (Input/output error): the run starts from an earlier step."] if error.errno else []
    )
    assert files.load("aa", ABOUT, unexpected) == {"step": 9}


def test_another_process_removes_the_folder_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, remove = CheckpointFiles(tmp_path), Path.rmdir

    def after_another_process(folder: Path) -> None:
        remove(folder)
        remove(folder)

    files.save("aa", 1, {"step": 1}, ABOUT)
    monkeypatch.setattr(Path, "rmdir", after_another_process)
    files.remove(["aa"])
    assert not files.folder.exists()


def test_every_damaged_byte_is_found_and_an_older_state_is_used(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path)
    files.save("aa", 9, {**STATE, "step": 9}, ABOUT)
    (older,) = files.folder.iterdir()
    kept = older.read_bytes()
    files.save("aa", 10, {**STATE, "step": 10}, ABOUT)
    (newer,) = files.folder.iterdir()
    older.write_bytes(kept)
    whole, notes = newer.read_bytes(), list[str]()
    for place in range(0, len(whole), 7):
        newer.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found = files.load("aa", ABOUT, notes.append)
        assert found is not None and found["step"] == 9 and not newer.exists()
    assert len(notes) == len(list((tmp_path / "damaged").iterdir())) and "is damaged: it is now in" in notes[0]


@pytest.mark.parametrize("how", ["ENOSPC", "EIO"])
def test_whatever_fails_the_old_state_or_the_new_one_is_found(tmp_path: Path, how: str) -> None:
    number, failed = 0, True
    while failed:
        number += 1
        files = CheckpointFiles(tmp_path / str(number))
        files.save("aa", 1, {"step": 1}, ABOUT)
        try:
            with failing(number, how) as disk:
                files.save("aa", 2, {"step": 2}, ABOUT)
        except (OSError, FrostlineError):
            pass
        failed = disk.count >= number
        assert files.load("aa", ABOUT, unexpected) in ({"step": 1}, {"step": 2})
    assert number > 4 and files.load("aa", ABOUT, unexpected) == {"step": 2}


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    files = CheckpointFiles(tmp_path / "sweep")
    files.out.mkdir()
    files.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FrostlineError, match=r"is a link to .*, outside of the folder"):
        files.save("aa", 1, STATE, ABOUT)
    assert not list((tmp_path / "elsewhere").iterdir())
