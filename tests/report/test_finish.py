"""The steps after the last run, while other processes may do the same."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock, Timeout

import frostline.report.pages.sweep_page as page_module
import frostline.report.rebuild as rebuild_module
import frostline.report.recommended_model as model_module
from frostline import FrostlineError
from frostline.report.rebuild import finish
from frostline.sweep.progress import Progress
from hostile import without_locks


@pytest.mark.parametrize("save_model", [True, False])
def test_one_process_at_a_time_writes_answer_model_and_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_model: bool
) -> None:
    done = list[str]()

    def step(name: str) -> Callable[..., Any]:
        def do(*given: object, **more: object) -> dict[str, str]:
            with pytest.raises(Timeout):
                FileLock(tmp_path / ".finish.lock", timeout=0).acquire()
            done.append(name)
            return {"sentence": "It is good."}

        return do

    monkeypatch.setattr(rebuild_module, "Folder", lambda out: out)
    monkeypatch.setattr(rebuild_module, "_rebuild", step("answer"))
    monkeypatch.setattr(model_module, "save_recommended", step("model"))
    monkeypatch.setattr(page_module, "write_page", step("report"))
    prepared: Any = SimpleNamespace(store=SimpleNamespace(out=tmp_path))
    assert finish(prepared, Progress(), save_model=save_model) == {"sentence": "It is good."}
    assert done == (["answer", "model", "report"] if save_model else ["answer", "report"])
    with FileLock(tmp_path / ".finish.lock", timeout=0):  # it is free again
        pass


def test_an_error_leaves_the_lock_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(out: Path) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(rebuild_module, "Folder", fail)
    prepared: Any = SimpleNamespace(store=SimpleNamespace(out=tmp_path))
    with pytest.raises(OSError, match="the disk is full"):
        finish(prepared, Progress())
    with FileLock(tmp_path / ".finish.lock", timeout=0):
        pass


def test_a_folder_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_module, "Folder", pytest.fail)
    prepared: Any = SimpleNamespace(store=SimpleNamespace(out=tmp_path))
    with (
        pytest.raises(FrostlineError, match=r"finish\.lock cannot be locked .*: choose a folder on another"),
        without_locks(),
    ):
        finish(prepared, Progress())
