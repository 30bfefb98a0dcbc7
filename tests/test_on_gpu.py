"""The benchmark for GPUs, on the CPU at a small size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "on_gpu.py"
ROWS = {"equality": 5, "stacked": 1, "throughput": 2, "forward_pass": 2, "llama": 1}


def run_script(*arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), *arguments], capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize(
    "parts",
    [",".join(ROWS), pytest.param("grid", marks=pytest.mark.slow)],
)
def test_every_part_runs_at_a_small_size(tmp_path, parts):
    file = tmp_path / "on_gpu.json"
    done = run_script("--size", "tiny", "--device", "cpu", "--parts", parts, "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = json.loads(file.read_text())["lines"]
    counts = {part: sum(line["part"] == part for line in lines) for part in parts.split(",")}
    assert counts == ROWS if parts != "grid" else counts["grid"] > 0
    assert all(line["value"] in done.stdout for line in lines)


def test_an_unknown_part_is_refused():
    done = run_script("--parts", "speed", "--device", "cpu")
    assert done.returncode == 1 and "parts are equality, stacked" in done.stderr
