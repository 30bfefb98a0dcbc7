"""The printed plan: the device, what fits into its memory, and the forecast."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import frostline
from frostline.model.device import DeviceMemory
from frostline.report.plan_text import forecast_lines, plan_lines
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.forecast_record import Forecast, KindForecast
from tiny import SMALL

T4 = DeviceMemory(total=15_600_000_000, free=14_600_000_000, held=0)
NAMES = ("head only", "last 1", "full")


@pytest.fixture
def plan(tiny_bert: Path, tiny_table: Path, tmp_path: Path) -> frostline.Plan:
    settings = {**SMALL, "model": tiny_bert, "train": tiny_table, "out": tmp_path / "o", "tune": "0,1,all", "seeds": 8}
    return frostline.plan(timed=False, progress=Progress(), **settings)


def cell(plan: frostline.Plan, name: str, memory_bytes: float, stack: int = 1) -> KindForecast:
    size = plan.runs[0].train_size
    return KindForecast(name, size, 8, 2.0, memory_bytes, stack=stack, num_train_epochs=plan.runs[0].num_train_epochs)


def test_a_plan_names_its_device(plan: frostline.Plan, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    print(*plan_lines(replace(plan, memory=T4)), sep="\n")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Device: ")]
    assert len(lines) == 1 and lines[0].startswith(f"Device: CPU, {threads} thread")
    assert lines[0].endswith(", 14.6 GB free of 15.6 GB, float32.")


def rows_of(printed: str) -> list[list[str]]:
    lines = printed.splitlines()
    header = next(n for n, line in enumerate(lines) if line.startswith("tune "))
    return [line.split() for line in lines[header : header + 4]]


def test_a_plan_shows_the_size_of_stacks_and_what_fits(
    plan: frostline.Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"head only": (1e9, 8), "last 1": (14.6e9, 4), "full": (14.7e9, 1)}
    cells = tuple(cell(plan, name, *sizes[name]) for name in NAMES)
    print(*plan_lines(replace(plan, memory=T4, forecast=Forecast(cells, 0.0))), sep="\n")
    printed = capsys.readouterr().out
    header, *rows = rows_of(printed)
    assert header[-2:] == ["stack", "fits"]
    assert [row[-2:] for row in rows] == [["8", "yes"], ["4", "yes"], ["1", "no"]]
    assert "More memory than is free: full." in printed


def test_workers_need_their_memory_at_the_same_time(plan: frostline.Plan, capsys: pytest.CaptureFixture[str]) -> None:
    cells = tuple(cell(plan, name, size) for name, size in zip(NAMES, (7e9, 8e9, 9e9), strict=True))
    print(*plan_lines(replace(plan, memory=T4, forecast=Forecast(cells, 0.0, workers=2))), sep="\n")
    printed = capsys.readouterr().out
    header, *rows = rows_of(printed)
    assert header[-1] == "fits" and "stack" not in header
    assert [row[-1] for row in rows] == ["yes", "no", "no"] and "More memory than is free: last 1, full." in printed
    print(*plan_lines(replace(plan, memory=T4, forecast=Forecast(cells[:1], 0.0))), sep="\n")  # the others are done
    assert "More memory" not in capsys.readouterr().out


def test_a_plan_prints_its_forecast(
    tiny_bert: Path, tiny_table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SMALL, "model": tiny_bert, "train": tiny_table, "out": tmp_path / "o", "seeds": 2}
    made = frostline.plan(progress=Progress(), **settings | {"tune": "0,named,all", "tune_modules": "layer.1"})
    print(*plan_lines(made), sep="\n")
    print(*forecast_lines(made.forecast), sep="\n")
    printed = capsys.readouterr().out
    for words in ("per run", "memory", "Forecast from timed steps", "transformers' Trainer and its defaults"):
        assert words in printed
