"""The memory that copies of hidden states may take beside the training of a stack."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import frostline
from frostline.frozen.readers import DeviceCopies
from frostline.model.device import Machine
from frostline.sweep.execution import execute as copies_module
from frostline.sweep.execution.execute import limit_copies
from frostline.sweep.operations import CostModel
from frostline.sweep.prepare import Prepared
from frostline.sweep.progress import Progress
from frostline.sweep.results.forecast_record import Cell, Forecast

LIMIT, IN_USE, COPIES = 1000, 100, 30


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The limits that are set, on a GPU with 1000 free bytes, a model of 100, and copies that take 30."""
    found: list[int] = []
    monkeypatch.setattr(copies_module, "memory_limit", lambda device: LIMIT)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: IN_USE + COPIES)
    monkeypatch.setattr(DeviceCopies, "bytes", COPIES)
    monkeypatch.setattr(CostModel, "memory_bound", lambda self, run: 200)
    monkeypatch.setattr(DeviceCopies, "keep_within", lambda _, n: found.append(n))
    return found


@pytest.fixture
def on_gpu(settings: dict[str, Any]) -> Prepared:
    """A prepared sweep on a machine that only claims to have a GPU."""
    prepared = frostline.Sweep(progress=Progress(), **settings)._prepare(Progress())
    prepared.context = replace(prepared.context, machine=Machine(torch.device("cuda"), "float32"))
    return prepared


def forecast_of(prepared: Prepared, stack: int, memory_bytes: float) -> Forecast:
    run = prepared.plan.runs[0]
    cell = Cell(run.recipe, run.train_size, 8, 1.0, 1.0, 2.0, memory_bytes, None, timed=True, stack=stack)
    return Forecast((cell,), 0.0, 0.0)


def test_copies_take_what_training_leaves(on_gpu: Prepared, limits: list[int]) -> None:
    run = on_gpu.plan.runs[0]
    limit_copies([run], on_gpu)
    limit_copies([run] * 3, on_gpu)
    assert limits == [LIMIT - IN_USE - 200, LIMIT - IN_USE - 3 * 200]  # an upper bound without a forecast
    limits.clear()
    on_gpu.plan = replace(on_gpu.plan, forecast=forecast_of(on_gpu, 2, 250.0))
    limit_copies([run], on_gpu)
    limit_copies([run] * 2, on_gpu)
    limit_copies([run] * 3, on_gpu)  # larger than forecast
    assert limits == [LIMIT - 250, LIMIT - 250, LIMIT - IN_USE - 3 * 200]


def test_a_cpu_has_no_copies(on_gpu: Prepared, limits: list[int]) -> None:
    on_gpu.context = replace(on_gpu.context, machine=Machine(torch.device("cpu"), "float32"))
    limit_copies([on_gpu.plan.runs[0]], on_gpu)
    assert not limits
