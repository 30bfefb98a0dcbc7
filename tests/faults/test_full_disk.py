"""A disk that is really full: a small file system in memory, filled up to its last pages."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from frostline.sweeps.results.leases import Leases
from frostline.sweeps.results.store import Store
from tiny import Frostline, assert_same_predictions

PAGE, SIZE = 4096, 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        said = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs mount")
    if said.returncode:
        pytest.skip(f"needs the right to mount a file system ({said.stderr.strip()})")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, pages: int) -> None:
    """Leave this many pages free."""
    ballast = disk / "ballast"
    with suppress(FileNotFoundError):
        ballast.unlink()
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, (os.statvfs(disk).f_bavail - pages) * PAGE)


def test_a_command_ends_with_one_sentence_and_the_same_command_goes_on(
    disk: Path, settings: dict[str, Any], finished_small: Path, frostline: Frostline
) -> None:
    words = [f"--{name.replace('_', '-')}={value}" for name, value in {**settings, "out": disk / "o"}.items()]
    words += ["--stack=1", "--workers=1"]
    codes = list[int]()
    for pages in (3, 25, 50, 0):
        fill(disk, pages) if pages else (disk / "ballast").unlink()
        got = frostline("sweep", *words)
        codes.append(got.code)
        if got.code:
            # of a failed run: what was missing besides the disk?
            assert got.code == 2, (got, Store(disk / "o").failures())
            assert len(got.err.strip().splitlines()[-1]) < 400
            assert "The disk is full" in got.err or "No space left on device" in got.err
            assert not list((disk / "o").glob("runs/.*")) and not list(Store(disk / "o").check())
            assert not Leases(disk / "o").current()
    assert codes[0] == 2 and codes[-1] == 0
    assert_same_predictions(Store(disk / "o"), Store(finished_small))
