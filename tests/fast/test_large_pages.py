"""Large tensors in pages of 2 MB."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
VARIABLE = "THP_MEM_ALLOC_ENABLE"
CODE = """
import os, re
from pathlib import Path
import frostline.fast.large_pages
import torch
block = torch.ones(16 << 20)  # 64 MB
print(re.search(r"AnonHugePages: +([0-9]+) kB", Path("/proc/self/smaps_rollup").read_text())[1], *sorted(
    name for name in os.environ if name.startswith("THP")))
"""


@pytest.mark.skipif(
    not SETTING.exists() or "[madvise]" not in SETTING.read_text(), reason="Linux gives them to programs that ask"
)
@pytest.mark.parametrize("setting", [{}, {VARIABLE: "0"}, {"FROSTLINE_WITHOUT": "large_pages"}])
def test_large_tensors_lie_in_large_pages_unless_the_environment_says_otherwise(setting: dict[str, str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE} | setting
    command = [sys.executable, "-c", CODE]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    kilobytes, *left = printed.split()
    assert (int(kilobytes) > 32 << 10) == (not setting)
    assert left == [name for name in setting if name == VARIABLE]
