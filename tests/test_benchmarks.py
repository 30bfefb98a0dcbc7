"""Benchmarks that run at a tiny size."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_streaming(dtype: str, tmp_path: Path) -> None:
    """It ends in an error unless both sides predict the same bits and the saved model opens."""
    size = ["--layers", "5", "--width", "128", "--vocabulary", "300", "--train", "16", "--validation", "8"]
    command = [sys.executable, BENCHMARKS / "streaming.py", *size, "--dtype", dtype, "--json", tmp_path / "found.json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ, cwd=tmp_path)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["raw"]["equal"] and found["raw"]["opens"] and len(found["tables"][0]["rows"]) == 5
    assert str(tmp_path) not in json.dumps(found["raw"])
