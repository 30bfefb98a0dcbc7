"""One process for each GPU. GPUs are pretended: their processes train on the CPU."""

import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import frostline
import frostline.sweeps.execution.workers as gpus_module
from frostline import find, work
from frostline.model.device import Machine
from frostline.report.plan_text import device_lines
from frostline.search.search import run_together, runs_of
from frostline.sweeps.execution.workers import OtherGpus
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.folder import register
from frostline.training.train import run
from tiny import Notes, TrainWith, plan_of, sentences

STAND_IN = """
import os, sys
from pathlib import Path
with Path(__file__).with_name("calls").open("a") as calls:
    print(os.environ["CUDA_VISIBLE_DEVICES"], *sys.argv[1:], file=calls)
"""
SEARCHES = """
import json, time
record = Path(sys.argv[1]) / "search.json"
while not (record.exists() and json.loads(record.read_text())["over"]):
    time.sleep(0.01)
"""
DONE = {"done": 4, "failed": 0, "pending": 0}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three GPUs, of which none is there. Each call of ``frostline work`` for one is a line of this file."""
    (tmp_path / "work.py").write_text(STAND_IN)
    monkeypatch.setattr(gpus_module, "WORK", (sys.executable, str(tmp_path / "work.py")))
    monkeypatch.setattr(Machine, "gpus", ["3", "5", "7"])
    return tmp_path / "calls"


def lines(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines()) if path.exists() else []


@pytest.mark.parametrize(
    ("named", "expected"), [(None, ["0", "1"]), ("", ["0", "1"]), ("4,GPU-5,6", ["4", "GPU-5"]), ("2", ["2"])]
)
def test_the_variable_names_the_gpus(monkeypatch: pytest.MonkeyPatch, named: str | None, expected: list[str]) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if named is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert Machine(torch.device("cuda"), "float32").gpus == expected
    assert Machine(torch.device("cpu"), "float32").gpus == []


def test_a_sweep_trains_on_each_gpu(settings: dict[str, Any], calls: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = Path(settings["out"])
    plan = frostline.plan(progress=Progress(), **settings)
    print(*device_lines(plan), sep="\n")
    assert "3 GPUs: one process trains on each." in capsys.readouterr().out
    assert plan.processes == 3 and plan.forecast and plan.forecast.processes == 3
    one_by_one = sum(cell.runs * cell.seconds for cell in plan.forecast.cells)
    assert plan.forecast.seconds - plan.forecast.forward_pass_seconds < 0.8 * one_by_one
    for _ in range(2):  # the second time, there is nothing to train
        assert frostline.sweep(save_model=False, progress=Progress(), **settings).answer.runs.done == 4
        assert lines(calls) == [f"5 {out}", f"7 {out}"]


def test_work_goes_on_while_its_processes_wait(settings: dict[str, Any], calls: Path, train_with: TrainWith) -> None:
    until_six = "while len(list((Path(sys.argv[1]) / 'runs').glob('*/result.json'))) < 6:\n    time.sleep(0.01)\n"
    (calls.parent / "work.py").write_text(f"{STAND_IN}\nimport time\n{until_six}")
    register(plan_of(progress=Progress(), **settings, stack=1))

    def add_more(spec: Any, experiment: Any, **more: Any) -> Any:
        register(plan_of(progress=Progress(), **{**settings, "seeds": 3}))
        train_with(run)
        return run(spec, experiment, **more)

    train_with(add_more)
    out = Path(settings["out"])
    assert work(out, wait=True, silent_after=19.5, progress=Progress())["done"] == 6
    assert lines(calls) == [f"{gpu} {out} --silent-after=19.5 --wait" for gpu in (5, 7)]


def test_a_search_ends_before_the_processes(settings: dict[str, Any], calls: Path, tmp_path: Path) -> None:
    (calls.parent / "work.py").write_text(STAND_IN + SEARCHES)
    out, others = tmp_path / "found", ("tune", "seeds", "out")
    own = {name: value for name, value in settings.items() if name not in others}
    find(exhaustive=True, tune="0,1", seeds=2, folds=0, out=out, progress=Progress(), **own)
    assert lines(calls) == [f"{gpu} {out} --wait" for gpu in (5, 7)]


def test_a_step_of_a_search_has_runs_for_each_gpu(settings: dict[str, Any], calls: Path) -> None:
    plan = plan_of(progress=Progress(), **settings)
    runs = runs_of(plan)
    assert [run_together(plan, runs, processes, None) for processes in (None, 1, 2)] == [3, None, 2]


def test_tables_in_memory_are_trained_on_one_gpu(tiny_bert: Path, calls: Path, tmp_path: Path) -> None:
    import pandas as pd

    sweep = {"model": tiny_bert, "train": pd.DataFrame(sentences(60)), "tune": 0, "seeds": 2, "out": tmp_path / "o"}
    assert frostline.plan(timed=False, **sweep).processes == 1


@pytest.mark.parametrize("ends", ["by itself", "with an error"])
def test_no_process_is_left(settings: dict[str, Any], calls: Path, ends: str) -> None:
    sleeps = f"import time\ntime.sleep({0.5 if ends == 'by itself' else 1000})"
    (calls.parent / "work.py").write_text(f"{STAND_IN}{sleeps}")
    plan = plan_of(progress=Progress(), **settings)
    expected = nullcontext() if ends == "by itself" else pytest.raises(KeyError)
    with expected, OtherGpus(plan, Progress()) as others:
        others.start(2)
        others.start(2)  # no more than runs
        while not lines(calls):
            time.sleep(0.01)
        if ends == "with an error":
            raise KeyError
    assert len(lines(calls)) == 1
    assert [process.returncode for process, _ in others._started] == [0 if ends == "by itself" else -signal.SIGTERM]


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("print('frostline: no such model', file=sys.stderr)\nsys.exit(2)", "frostline: no such model"),
        ("os.kill(os.getpid(), 9)", "exit code -9"),
        ("sys.exit(143)", None),
    ],
)
def test_a_process_that_ends_early_is_named(settings: dict[str, Any], calls: Path, does: str, said: str | None) -> None:
    (calls.parent / "work.py").write_text(f"{STAND_IN}\n{does}")
    notes = Notes()
    with OtherGpus(plan_of(progress=Progress(), **settings), notes) as others:
        others.start(2)
    expected = [f"The process on GPU 5 has ended ({said}): the others train its runs."] if said else []
    assert notes.notes == expected
