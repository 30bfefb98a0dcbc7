"""How much one machine takes at the same time: stacks of runs, workers of a CPU, copies of hidden states on a GPU."""

from copy import copy
from math import inf
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

import frostline.sweeps.execution.stacks as stacks_module
from frostline import Results
from frostline.frozen.forward_pass import StateSelection
from frostline.sweeps.execution import stacks
from frostline.sweeps.execution.execute import prepare_hidden_states
from frostline.sweeps.execution.stacks import _fastest_size, in_stacks, limit_copies, stack_size
from frostline.sweeps.execution.workers import MIN_OPERATIONS, workers_for
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.store import Store
from frostline.training.experiment import Experiment
from frostline.training.run import Run
from records import spec_of_run
from tiny import Notes, plan_of, run_sweep


def spec_of(tune: int | str, seed: int, rate: float = 1e-3, **more: Any) -> Run:
    values = {"weights": "w", "vocabulary": "v", "data": "d", "recipe": tune, "seed": seed, "train_size": 20}
    return Run.model_validate({**values, "learning_rate": rate, **more})


def test_runs_with_the_same_key_are_stacked_and_the_others_keep_their_order() -> None:
    runs = [spec_of(k, seed) for seed in range(5) for k in (0, 1, 2)]
    requested = []

    def size_of(some: list[Run]) -> int:
        requested.append([run.seed for run in some])
        return {0: 5, 1: 1, 2: 3}[some[0].recipe.k]

    found = [(stack[0].recipe.k, [run.seed for run in stack]) for stack in in_stacks(runs, size_of)]
    ones = [(1, [seed]) for seed in range(5)]
    assert found == [(0, [0, 1, 2, 3, 4]), ones[0], (2, [0, 1, 2]), *ones[1:4], (2, [3, 4]), ones[4]]
    assert requested == [[0, 1, 2, 3, 4]] * 3
    own = {"class_weights": {"a": 1.0}}  # runs that differ only in seed and learning rate are stacked
    mixed = [
        spec_of(1, 0),
        spec_of(1, 1, 1e-4),
        spec_of(1, 0, **own),
        spec_of(1, 0, train_size=10),
        spec_of(1, 1, **own),
    ]
    assert [len(stack) for stack in in_stacks(mixed, len)] == [2, 2, 1]


def out_of_memory_above_2(size: int) -> float:
    if size > 2:
        raise torch.OutOfMemoryError
    return 1.0


@pytest.mark.parametrize(
    "seconds, used, most, limit, size",
    [
        (lambda n: 1.0, lambda n: n, 6, 100, 6),
        (lambda n: 1.0, lambda n: n, 8, 5, 4),
        (lambda n: float(n), lambda n: n, 8, 100, 1),  # larger stacks are not faster
        (lambda n: max(4.0, n), lambda n: n, 32, 100, 4),
        (lambda n: 1.0, lambda n: 90 + n, 32, 200, 16),  # most of the memory is shared
        (lambda n: 1.0, lambda n: n, 1, 100, 1),
        (lambda n: inf, lambda n: n, 8, 100, 1),  # the loss is not finite, so no step could be timed
        (lambda n: 1.0 if n < 4 else inf, lambda n: n, 8, 100, 2),
        (out_of_memory_above_2, lambda n: n, 8, 1000, 2),
    ],
)
def test_a_stack_grows_while_it_pays_and_fits(seconds: Any, used: Any, most: int, limit: int, size: int) -> None:
    assert _fastest_size(lambda n: (seconds(n), used(n)), most, limit) == size


@pytest.fixture
def experiment(settings: dict[str, Any]) -> Experiment:
    plan = plan_of(**settings)
    prepare_hidden_states(plan, plan.runs, Progress())
    return plan.experiment


def test_on_a_cpu_only_k_0_is_stacked_unless_a_size_is_given(experiment: Experiment) -> None:
    notes: list[str] = []

    def size(tune: int, wanted: int | str, count: int = 5) -> int:
        return stack_size([spec_of(tune, seed) for seed in range(count)], experiment, wanted, notes.append)

    assert [size(0, "auto"), size(1, "auto"), size(0, 1), size(0, 3), size(1, 3), size(1, 9)] == [5, 1, 1, 3, 3, 5]
    assert size(0, "auto", count=1) == 1
    all_tokens = copy(experiment.states)
    assert all_tokens is not None
    all_tokens.selection = StateSelection((3,), head=False)
    for states in (None, all_tokens):
        other = experiment.with_worker(states=states)
        assert stack_size([spec_of(0, seed) for seed in range(5)], other, "auto", notes.append) == 1
    assert not notes


def test_a_model_that_cannot_be_stacked_has_a_note(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks_module, "stack_refusal", lambda *_, **__: "Its layers talk.")
    assert stacked_of(run_sweep(settings, progress=(shown := Notes()))) == {0: [1, 1], 1: [1, 1]}
    assert "Runs of head only are trained one by one. Its layers talk." in shown.notes


def stacked_of(sweep: Results) -> dict[Any, list[int]]:
    """The size of the stack that each run was trained in, by k and seed."""
    found: dict[Any, dict[int, int]] = {}
    for one in Store(sweep.folder).results().values():
        k = one.spec.recipe.k
        found.setdefault("full" if k is None else k, {})[one.spec.seed] = one.provenance.stacked
    return {k: [of_seed[seed] for seed in sorted(of_seed)] for k, of_seed in found.items()}


def costs_of(*, operations: float = 0.0, memory: int) -> Any:
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
        ("auto", 9, "cpu", MIN_OPERATIONS, 6, 5),  # half of the memory has no room for more
        ("auto", 9, "cpu", MIN_OPERATIONS, 8, 4),
        ("auto", 9, "cpu", MIN_OPERATIONS, 9, 1),  # 3 of 8 cores: one run on all cores is faster
        ("auto", 3, "cpu", MIN_OPERATIONS, 1, 1),
    ],
)
def test_the_number_of_workers(
    wanted: int | str, runs: int, device: str, operations: float, memory: int, count: int
) -> None:
    """``memory`` of a run is in 64ths of what this machine has."""
    experiment = SimpleNamespace(machine=SimpleNamespace(device=torch.device(device)))
    costs = costs_of(operations=operations, memory=memory * (psutil.virtual_memory().total // 64))
    plan: Any = SimpleNamespace(spec=SimpleNamespace(workers=wanted), experiment=experiment, cost_model=costs)
    torch.set_num_threads(8)
    assert workers_for(plan, [spec_of_run(seed=seed) for seed in range(runs)]) == count


def test_the_size_of_a_stack_at_k_0(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(progress=Progress(), **settings)
    prepare_hidden_states(plan, plan.runs, Progress())
    head = 4 * (32 * 32 + 32 + 32 * 2 + 2)  # bytes of the pooler and the classifier
    runs, memory = [spec_of_run(recipe=0, seed=seed) for seed in range(9)], 0
    monkeypatch.setattr(stacks, "memory_limit", lambda device: memory * 5 * head)  # copies for the optimizer
    sizes = {
        ("auto", 1, 99): 9,  # stacks of k = 0 need no timing
        **{("auto", 1, 3): 3, ("auto", 1, 0): 1, ("auto", 2, 3): 3},
        **{("auto", 2, 99): 5, ("auto", 5, 99): 2, ("auto", 20, 99): 1},  # one stack for each worker
        **{(4, 1, 0): 4, (4, 3, 0): 4, (20, 1, 0): 9, (1, 1, 99): 1},  # as the user says
    }
    for (wanted, shared_by, memory), size in sizes.items():
        plan.experiment.worker.stack_sizes.clear()
        assert stack_size(runs, plan.experiment, wanted, print, workers=shared_by) == size, (wanted, shared_by, memory)


@pytest.mark.parametrize(
    ("device", "runs", "forecast", "kept"),
    [
        ("cpu", 1, None, []),
        ("cuda", 1, (1, 30), [70]),
        ("cuda", 3, (4, 30), [70]),  # the memory of a forecast is that of its stack, or of a smaller one at most
        ("cuda", 2, (1, 30), [100 - 20 - 2 * 8]),  # a larger one was not forecast: what is in use, and a bound for each
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
