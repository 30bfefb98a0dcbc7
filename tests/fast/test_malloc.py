"""Freed memory that the process keeps while runs are trained.

The test starts a process of its own, because the heap of this one may have gaps from earlier tests.
"""

import platform
import subprocess
import sys

import pytest

CODE = """
import psutil, torch
from frostline.fast.switch import glibc, memory_reused
from frostline.model.device import anonymous_memory

with memory_reused():
    pass
before = glibc().mallinfo2().hblks
blocks = [bytearray(1 << 20) for _ in range(8)]
print(glibc().mallinfo2().hblks - before)
del blocks
for release in (False, True):
    held = [anonymous_memory(psutil.Process())]
    with memory_reused(release_large=release):
        blocks = [torch.ones(32 << 20) for _ in range(2)]
        held.append(anonymous_memory(psutil.Process()))
        blocks.clear()
        held.append(anonymous_memory(psutil.Process()))
    held.append(anonymous_memory(psutil.Process()))
    print(*held)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such settings")
def test_freed_memory_is_kept_or_released_and_afterwards_medium_blocks_are_not_mapped_individually() -> None:
    printed = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True).stdout
    mapped, *of_memory = printed.splitlines()
    for line, released in zip(of_memory, (False, True), strict=True):
        before, held, freed, after = map(int, line.split())
        assert held - before > 200 << 20
        assert (held - freed > 200 << 20) == released
        assert after - before < 50 << 20
    assert mapped == "0"
