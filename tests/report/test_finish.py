"""The steps after the last run, while other processes may do the same."""

from concurrent.futures import ThreadPoolExecutor, TimeoutError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock

from frostline import FrostlineError
from frostline.report.rebuild import finish
from frostline.statistics.answer import Answer
from frostline.sweeps.progress import Progress
from hostile import without_locks
from synthetic_sweep import make_folder


def finished(out: Path) -> Answer:
    plan: Any = SimpleNamespace(store=SimpleNamespace(out=out))
    return finish(plan, Progress(), save_model=False)


def test_one_process_at_a_time_finishes_and_an_error_leaves_the_lock_free(tmp_path: Path) -> None:
    out = make_folder(tmp_path / "out", tune=(0, "full"), seeds=1)
    with ThreadPoolExecutor() as pool:
        with FileLock(out / ".finish.lock"):
            waiting = pool.submit(finished, out)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            assert not (out / "report.html").exists()
        assert waiting.result().sentence and (out / "report.html").exists()
    (out / "validation.parquet").unlink()
    for _ in range(2):
        with pytest.raises(FrostlineError, match=r"validation\.parquet"):
            finished(out)


def test_a_folder_without_locks_is_refused(tmp_path: Path) -> None:
    refused = pytest.raises(FrostlineError, match=r"finish\.lock cannot be locked .*: choose a folder on another")
    with refused, without_locks():
        finished(tmp_path)
