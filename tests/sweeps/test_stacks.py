"""Stacks of runs: which runs are stacked, how large a stack is, and what happens if stacking fails."""

from copy import copy
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import frostline.sweeps.execution.stacks as stacks_module
from frostline import Results
from frostline.frozen.forward_pass import StateSelection
from frostline.sweeps.execution.execute import prepare_hidden_states
from frostline.sweeps.execution.stacks import _fastest_size, in_stacks, stack_size
from frostline.sweeps.progress import Progress
from frostline.sweeps.results.store import Store
from frostline.training.experiment import Experiment
from frostline.training.run import Run
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
    assert found == [
        *[(0, [0, 1, 2, 3, 4]), (1, [0]), (2, [0, 1, 2]), (1, [1]), (1, [2]), (1, [3]), (2, [3, 4]), (1, [4])]
    ]
    assert requested == [[0, 1, 2, 3, 4]] * 3


def test_runs_are_stacked_if_they_differ_only_in_seed_and_learning_rate() -> None:
    runs = [
        spec_of(1, 0),
        spec_of(1, 1, 1e-4),
        spec_of(1, 0, class_weights={"a": 1.0}),
        spec_of(1, 0, train_size=10),
        spec_of(1, 1, class_weights={"a": 1.0}),
    ]
    assert [len(stack) for stack in in_stacks(runs, len)] == [2, 2, 1]


@pytest.mark.parametrize(
    "seconds, used, most, limit, size",
    [
        (lambda n: 1.0, lambda n: n, 8, 100, 8),
        (lambda n: 1.0, lambda n: n, 6, 100, 6),
        (lambda n: 1.0, lambda n: n, 8, 5, 4),
        (lambda n: float(n), lambda n: n, 8, 100, 1),  # larger stacks are not faster
        (lambda n: max(4.0, n), lambda n: n, 32, 100, 4),
        (lambda n: 1.0, lambda n: 90 + n, 32, 200, 16),  # most of the memory is shared
        (lambda n: 1.0, lambda n: n, 1, 100, 1),
        (lambda n: inf, lambda n: n, 8, 100, 1),  # the loss is not finite, so no step could be timed
        (lambda n: 1.0 if n < 4 else inf, lambda n: n, 8, 100, 2),
    ],
)
def test_a_stack_grows_while_it_pays_and_fits(seconds: Any, used: Any, most: int, limit: int, size: int) -> None:
    assert _fastest_size(lambda n: (seconds(n), used(n)), most, limit) == size


def test_a_stack_that_runs_out_of_memory_ends_the_doubling() -> None:
    def profile(count: int) -> tuple[float, int]:
        if count > 2:
            raise torch.OutOfMemoryError
        return 1.0, 1

    assert _fastest_size(profile, 8, 1000) == 2


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


def test_a_model_type_that_cannot_be_stacked_runs_one_by_one_with_a_note(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks_module, "stack_refusal", lambda *_, **__: "Its layers talk.")
    assert stacked_of(run_sweep(settings, progress=(shown := Notes()))) == {0: [1, 1], 1: [1, 1]}
    assert "Runs of head only are trained one by one. Its layers talk." in shown.notes


def test_a_given_size_stacks_every_k(settings: dict[str, Any]) -> None:
    sweep = run_sweep(settings, tune="0,1,all", stack=3, seeds=3)
    assert stacked_of(sweep) == {0: [3] * 3, 1: [3] * 3, "full": [3] * 3}
    alone = run_sweep(settings, tune="0,1,all", stack=1, seeds=3, out=Path(settings["out"]).with_name("alone"))
    assert stacked_of(alone) == {0: [1] * 3, 1: [1] * 3, "full": [1] * 3}
    digests = [sorted(Store(one.folder).results()) for one in (sweep, alone)]
    assert digests[0] == digests[1]
    for digest in digests[0]:
        mine, theirs = (Store(one.folder).predictions(digest) for one in (sweep, alone))
        assert mine.keys() == theirs.keys() and all(mine[name].shape == theirs[name].shape for name in mine)


def test_a_stack_at_k_0_gives_the_same_predictions_as_single_runs(settings: dict[str, Any]) -> None:
    together = run_sweep(settings, tune="0", seeds=4)
    alone = run_sweep(settings, tune="0", seeds=4, stack=1, out=Path(settings["out"]).with_name("alone"))
    assert (stacked_of(together), stacked_of(alone)) == ({0: [4] * 4}, {0: [1] * 4})
    for digest in Store(alone.folder).results():
        mine, theirs = (Store(one.folder).predictions(digest) for one in (together, alone))
        assert all(np.array_equal(mine[name], theirs[name]) for name in theirs)


def test_a_stack_that_fails_is_retried_in_halves_with_a_note(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sizes = stacks_module.run_stacked, []

    def short_of_memory(specs: list[Run], *others: Any, **more: Any) -> Any:
        sizes.append(len(specs))
        if len(specs) > 2:
            raise torch.OutOfMemoryError("out of memory\nand more")
        return real(specs, *others, **more)

    monkeypatch.setattr(stacks_module, "run_stacked", short_of_memory)
    sweep = run_sweep(settings, tune="0", seeds=5, progress=(shown := Notes()))
    assert sizes == [5, 2, 3, 2] and stacked_of(sweep) == {0: [2, 2, 1, 2, 2]}
    assert (
        "A stack of 5 runs of head only failed (OutOfMemoryError: out of memory); it is retried in two halves."
        in shown.notes
    )
    assert set(sweep.table().status) == {"done"}


def stacked_of(sweep: Results) -> dict[Any, list[int]]:
    """The size of the stack that each run was trained in, by k and seed."""
    found: dict[Any, dict[int, int]] = {}
    for one in Store(sweep.folder).results().values():
        k = one.spec.recipe.k
        found.setdefault("full" if k is None else k, {})[one.spec.seed] = one.provenance.stacked
    return {k: [of_seed[seed] for seed in sorted(of_seed)] for k, of_seed in found.items()}
