"""Freed memory that the process keeps while runs are trained.

Each test starts its own process, because the heap of this one may have gaps from earlier tests.
"""

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such settings")

FREED = """
import sys
import psutil, torch
from frostline.fast.switch import memory_reused
from frostline.model.device import anonymous_memory

held = [anonymous_memory(psutil.Process())]
with memory_reused(release_large=sys.argv[1] == "release"):
    blocks = [torch.ones(32 << 20) for _ in range(2)]
    held.append(anonymous_memory(psutil.Process()))
    blocks.clear()
    held.append(anonymous_memory(psutil.Process()))
held.append(anonymous_memory(psutil.Process()))
print(*held)
"""


def printed_by(code: str, *arguments: str) -> str:
    return subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("how", ["keep", "release"])
def test_freed_memory_is_kept_or_released(how: str) -> None:
    before, held, freed, after = map(int, printed_by(FREED, how).split())
    assert held - before > 200 << 20
    assert (held - freed > 200 << 20) == (how != "keep")
    assert after - before < 50 << 20


AFTERWARDS = """
from frostline.fast.switch import glibc
from frostline.fast.switch import memory_reused
with memory_reused():
    pass
before = glibc().mallinfo2().hblks
blocks = [bytearray(1 << 20) for _ in range(8)]
print(glibc().mallinfo2().hblks - before)
"""


def test_afterwards_medium_blocks_are_not_mapped_individually() -> None:
    assert int(printed_by(AFTERWARDS)) == 0
