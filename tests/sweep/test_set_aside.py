"""Files that no longer count are set aside."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from frostline import FrostlineError
from frostline.sweep.results.store import set_aside


def test_every_version_is_kept(tmp_path: Path) -> None:
    for n in range(3):
        (tmp_path / "a.json").write_text(str(n))
        set_aside(tmp_path / "a.json", tmp_path / "damaged")
    assert {path.name: path.read_text() for path in (tmp_path / "damaged").iterdir()} == {
        "a.json": "0",
        "a.json.1": "1",
        "a.json.2": "2",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]


def test_what_does_not_exist_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        set_aside(tmp_path / "a.json", tmp_path / "damaged")
    assert not list(tmp_path.iterdir())


def test_the_message_if_it_cannot_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.json").write_text("")
    monkeypatch.setattr("frostline.data.files.os.replace", refuse)
    with pytest.raises(FrostlineError, match=r"a\.json cannot be moved to .* \(Permission denied\): move it yourself"):
        set_aside(tmp_path / "a.json", tmp_path / "damaged")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_of_processes_that_set_files_of_one_name_aside_none_loses_its_own(tmp_path: Path, kind: str) -> None:
    start, aside = Barrier(6), tmp_path / "damaged"
    for n in range(6):
        made = tmp_path / str(n) / "a.json"
        made.parent.mkdir()
        if kind == "folder":
            made.mkdir()
        (made / "a" if kind == "folder" else made).write_text(str(n))

    def move(n: int) -> Path:
        start.wait()
        return set_aside(tmp_path / str(n) / "a.json", aside)

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(move, range(6)))
    assert [(path / "a" if kind == "folder" else path).read_text() for path in found] == list("012345")
    assert len(list(aside.iterdir())) == 6
