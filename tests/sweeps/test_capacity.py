"""How much one machine takes at the same time: workers of a CPU, runs of a stack, copies of hidden states on a GPU."""

from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from frostline.sweeps.execution import stacks
from frostline.sweeps.execution.execute import prepare_hidden_states
from frostline.sweeps.execution.stacks import limit_copies, stack_size
from frostline.sweeps.execution.workers import MIN_OPERATIONS, workers_for
from frostline.sweeps.progress import Progress
from records import spec_of_run
from tiny import plan_of

GB = 1 << 30


def costs_of(*, operations: float = 0.0, memory: int = GB) -> Any:
    """A model of costs in which all runs cost the same."""
    batches = SimpleNamespace(steps=SimpleNamespace(count=0))
    own = {"operations": lambda run: operations, "memory_bound": lambda run: memory, "batches": lambda run: batches}
    return SimpleNamespace(**own)


@pytest.mark.parametrize(
    ("wanted", "runs", "device", "operations", "memory", "count"),
    [
        (1, 9, "cpu", MIN_OPERATIONS, 1, 1),
        (3, 9, "cpu", 0.0, 99, 3),  # as many as the user says
        (3, 2, "cpu", 0.0, 1, 2),
        (3, 1, "cpu", 0.0, 1, 1),
        (3, 9, "cuda", 0.0, 1, 1),  # a GPU has stacks instead
        ("auto", 9, "cuda", MIN_OPERATIONS, 1, 1),
        ("auto", 9, "cpu", MIN_OPERATIONS, 1, 8),  # one for each core
        ("auto", 5, "cpu", MIN_OPERATIONS, 1, 5),  # one for each run
        ("auto", 9, "cpu", MIN_OPERATIONS / 10, 1, 1),  # too little work
        ("auto", 9, "cpu", MIN_OPERATIONS, 6, 5),  # half of the memory, 32 GB, has no room for more
        ("auto", 9, "cpu", MIN_OPERATIONS, 8, 4),
        ("auto", 9, "cpu", MIN_OPERATIONS, 9, 1),  # 3 of 8 cores: one run on all cores is faster
        ("auto", 3, "cpu", MIN_OPERATIONS, 1, 1),
    ],
)
def test_the_number_of_workers(
    monkeypatch: pytest.MonkeyPatch,
    wanted: int | str,
    runs: int,
    device: str,
    operations: float,
    memory: int,
    count: int,
) -> None:
    experiment = SimpleNamespace(machine=SimpleNamespace(device=torch.device(device)))
    costs = costs_of(operations=operations, memory=memory * GB)
    plan: Any = SimpleNamespace(spec=SimpleNamespace(workers=wanted), experiment=experiment, cost_model=costs)
    torch.set_num_threads(8)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=64 * GB))
    assert workers_for(plan, [spec_of_run(seed=seed) for seed in range(runs)]) == count


@pytest.mark.parametrize(
    ("wanted", "shared_by", "memory", "size"),
    [
        ("auto", 1, 99, 9),  # stacks of k = 0 need no timing
        ("auto", 1, 3, 3),
        ("auto", 1, 0, 1),
        *[("auto", 2, 99, 5), ("auto", 5, 99, 2), ("auto", 20, 99, 1)],  # one stack for each worker
        ("auto", 2, 3, 3),
        *[(4, 1, 0, 4), (4, 3, 0, 4), (20, 1, 0, 9)],  # as the user says
        (1, 1, 99, 1),
    ],
)
def test_the_size_of_a_stack_at_k_0(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, wanted: int | str, shared_by: int, memory: int, size: int
) -> None:
    plan = plan_of(progress=Progress(), **settings)
    prepare_hidden_states(plan, plan.runs, Progress())
    head = 4 * (32 * 32 + 32 + 32 * 2 + 2)  # bytes of the pooler and the classifier
    monkeypatch.setattr(stacks, "memory_limit", lambda device: memory * 5 * head)  # copies for the optimizer
    runs = [spec_of_run(recipe=0, seed=seed) for seed in range(9)]
    assert stack_size(runs, plan.experiment, wanted, print, workers=shared_by) == size


@pytest.mark.parametrize(
    ("device", "runs", "forecast", "kept"),
    [
        ("cpu", 1, None, []),
        ("cuda", 1, (1, 30), [70]),
        ("cuda", 4, (4, 30), [70]),  # the memory of a forecast is that of its stack
        ("cuda", 3, (4, 30), [70]),  # of a smaller one at most
        (
            "cuda",
            2,
            (1, 30),
            [100 - 20 - 2 * 8],
        ),  # a larger one was not forecast: what is in use, and a bound for each run
        ("cuda", 2, None, [100 - 20 - 2 * 8]),
        ("cuda", 20, None, [100 - 20 - 20 * 8]),  # none is kept
    ],
)
def test_the_copies_of_hidden_states_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, device: str, runs: int, forecast: tuple[int, int] | None, kept: list[int]
) -> None:
    """Of a GPU with 100 GB, of which 25 are in use: 20, and copies of 5."""
    found: list[int] = []
    copies = SimpleNamespace(bytes=5, keep_within=found.append)
    experiment = SimpleNamespace(
        machine=SimpleNamespace(device=torch.device(device)), worker=SimpleNamespace(copies=copies)
    )
    stack = [spec_of_run(seed=seed) for seed in range(runs)]
    cells = {stack[0].digest: SimpleNamespace(stack=forecast[0], memory_bytes=forecast[1])} if forecast else {}
    plan: Any = SimpleNamespace(experiment=experiment, cells=lambda runs: cells, cost_model=costs_of(memory=8))
    for owner, name, value in (
        (stacks, "memory_limit", lambda device: 100),
        (torch.cuda, "memory_allocated", lambda device: 25),
    ):
        monkeypatch.setattr(owner, name, value)
    limit_copies(stack, plan)
    assert found == kept
