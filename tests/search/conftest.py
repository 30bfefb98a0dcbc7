"""The settings of a small search."""

from pathlib import Path
from typing import Any

import pytest

from frostline.sweep.execution.progress import Progress
from tiny import SMALL


@pytest.fixture
def wanted(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> dict[str, Any]:
    return {
        "model": tiny_bert,
        "train": tiny_table,
        "out": tmp_path / "o",
        "budget": 1000.0,
        "progress": Progress(),
        **SMALL,
    }
