"""Pages of mapped files that are released, and what is then read again."""

import os
import platform
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from frostline.fast import mapped_pages
from frostline.fast.mapped_pages import release_mapped_pages


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or not os.access(mapped_pages.PAGEMAP, os.R_OK),
    reason="elsewhere the system is not asked",
)
@pytest.mark.parametrize("on", [True, False])
def test_mapped_values_are_released_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: bool) -> None:
    monkeypatch.setenv("FROSTLINE_WITHOUT", "" if on else "mapped_pages")
    np.save(tmp_path / "values.npy", np.arange(10 << 20, dtype=np.float32))  # 42 MB
    values = torch.from_numpy(np.load(tmp_path / "values.npy", mmap_mode="c"))
    own = torch.ones(1 << 20)
    before, total = resident(), values.double().sum()
    values[:1024] = 1.0  # in a copy of its page, which is no longer the file's
    read = resident()
    release_mapped_pages([values[512:], own, torch.empty(0)])
    assert read - before > 35 << 20
    assert (read - resident() > 35 << 20) == on
    assert (values[:1024] == 1).all() and values.double().sum() == total - sum(range(1024)) + 1024 and own.all()


def test_where_the_system_does_not_tell_of_pages_mapped_values_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "values.npy", np.ones(1 << 20, np.float32))
    values = torch.from_numpy(np.load(tmp_path / "values.npy", mmap_mode="c"))
    monkeypatch.setattr(mapped_pages, "PAGEMAP", tmp_path / "none")
    release_mapped_pages([values])
    assert values.all()
