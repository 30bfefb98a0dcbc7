"""The benchmark for GPUs, on the CPU at a small size."""

import json
import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
ROWS = {"equality": 5, "stacked": 2, "tags": 2, "throughput": 2, "forward_pass": 2, "llama": 2}


@pytest.fixture
def run_script(monkeypatch):
    """A function that runs the script in this process, and returns what it exits with."""

    def run(*arguments):
        script = str(BENCHMARKS / "on_gpu.py")
        monkeypatch.syspath_prepend(BENCHMARKS)
        monkeypatch.setattr("versus_trainer.warm_up", lambda *modules: None)
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(script, run_name="__main__")
        return ended.value.code

    return run


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("parts", [",".join(ROWS), pytest.param("grid", marks=pytest.mark.slow)])
def test_every_part_runs_at_a_small_size(run_script, tmp_path, capsys, parts):
    file, precision = tmp_path / "on_gpu.json", "float32" if parts == "grid" else "float16"
    where = ("--size", "tiny", "--device", "cpu", "--precision", precision)
    failed = run_script(*where, "--parts", parts, "--json", str(file))
    out = capsys.readouterr().out
    assert not failed, out
    found = json.loads(file.read_text())
    lines = found["lines"]
    counts = {part: sum(line["part"] == part for line in lines) for part in parts.split(",")}
    assert counts == ROWS if parts != "grid" else counts["grid"] > 0
    assert all(line["value"] in out for line in lines) and found["machine"]["precision"] == precision


def test_an_unknown_part_is_refused(run_script):
    assert "parts are equality, stacked" in run_script("--parts", "speed", "--device", "cpu")
