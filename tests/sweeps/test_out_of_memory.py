"""What is tried again when memory runs out, with an allocator that raises errors."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch

from frostline.model.stacking import _Stack
from frostline.sweeps.execution import stacks
from frostline.sweeps.results.store import Store
from frostline.training.forward import ForwardFunction
from frostline.training.train import run_stacked
from model.test_stacking import context_of, spec_of
from sweeps.test_stacks import stacked_of
from tiny import Notes, run_sweep

LARGE = {"per_device_train_batch_size": 16, "num_train_epochs": 1}


@pytest.fixture
def memory_lacks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that makes memory run out for each batch for which ``lacks(forward, rows)`` is true."""
    real = ForwardFunction._logits

    def install(lacks: Callable[[Any, Any], bool], error: Exception | None = None) -> None:
        def logits(self: Any, rows: Any) -> Any:
            if lacks(self, rows):
                raise error or torch.OutOfMemoryError("CUDA out of memory")
            return real(self, rows)

        monkeypatch.setattr(ForwardFunction, "_logits", logits)

    return install


def test_stacks_are_halved_and_then_micro_batches(settings: dict[str, Any], memory_lacks: Callable[..., None]) -> None:
    """An allocator that has memory for 8 examples. Each optimizer step still has the 16 examples of two runs, or of one."""
    sizes, shown, out = [], Notes(), Path(settings["out"]).with_name("short")
    plenty = run_sweep(settings, tune="0", seeds=2, **LARGE)

    def lacks(_: Any, rows: Any) -> bool:
        if torch.is_grad_enabled():
            sizes.append(rows.shape)
        return torch.is_grad_enabled() and rows.size > 8

    memory_lacks(lacks)
    short = run_sweep(settings, tune="0", seeds=2, **LARGE, out=out, progress=shown)
    assert sizes[:3] == [(2, 16), (1, 16), (1, 8)] and {shape[1] for shape in sizes[3:]} <= {8, 4}
    reason = "OutOfMemoryError: CUDA out of memory"
    assert [note for note in shown.notes if "emory" in note] == [
        f"A stack of 2 runs of head only failed ({reason}); it is retried in two halves.",
        f"Memory ran out with 16 examples at a time in a run of head only ({reason}); it is retried with 8. An optimizer step "
        "still has 16 examples.",
    ]
    stores = [Store(sweep.folder) for sweep in (plenty, short)]
    assert stacked_of(short) == {0: [1, 1]} and stacked_of(plenty) == {0: [2, 2]}
    for digest, facts in stores[0].results().items():
        other = stores[1].result(digest)
        assert (facts.provenance.micro_batch, other.provenance.micro_batch) == (16, 8)
        assert facts.cost.steps == other.cost.steps
        mine, theirs = (store.predictions(digest) for store in stores)
        assert all(np.allclose(mine[name], theirs[name], rtol=0.3, atol=0.1) for name in theirs)


def test_after_an_evaluation_without_memory_no_run_is_trained_again(
    settings: dict[str, Any], memory_lacks: Callable[..., None]
) -> None:
    failures, shown = [], Notes()

    def lacks(_: Any, rows: Any) -> bool:
        failures.append(not torch.is_grad_enabled() and rows.shape[1] > 3)
        return failures[-1]

    memory_lacks(lacks)
    sweep = run_sweep(settings, tune="1", seeds=2, **LARGE, progress=shown)
    assert any(failures) and not [note for note in shown.notes if "emory" in note]
    stored = Store(sweep.folder).results().values()
    assert [facts.provenance.micro_batch for facts in stored] == [16, 16]


def test_a_run_without_memory_for_an_example_fails(settings: dict[str, Any], memory_lacks: Callable[..., None]) -> None:
    reason, shown = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes", Notes()
    memory_lacks(lambda *_: True, RuntimeError(reason))
    sweep = run_sweep(settings, tune="0", seeds=1, per_device_train_batch_size=5, progress=shown)
    assert [note.split(" in a run")[0] for note in shown.notes if "emory ran" in note] == [
        f"Memory ran out with {size} examples at a time" for size in (5, 3, 2)
    ]
    assert set(sweep.table().status) == {"failed"}


def test_copies_of_hidden_states_are_given_up_first(
    settings: dict[str, Any], memory_lacks: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of this machine stands in for that of a GPU. The run is not changed: it has the same micro-batches."""

    def room_for_all(stack: Any, plan: Any) -> None:
        plan.experiment.worker.copies.keep_within(1 << 30)

    monkeypatch.setattr(stacks, "limit_copies", room_for_all)
    memory_lacks(lambda forward, _: forward.experiment.worker.copies.bytes > 0)
    sweep = run_sweep(settings, tune="1", seeds=2, **LARGE, progress=(shown := Notes()))
    assert [note for note in shown.notes if "emory" in note] == [
        "Memory ran out in runs of last 1 (OutOfMemoryError: CUDA out of memory); they are retried without hidden states on "
        "the GPU."
    ]
    stored = Store(sweep.folder).results().values()
    assert [facts.provenance.micro_batch for facts in stored] == [16, 16]


@pytest.mark.parametrize(("tune", "fails"), [(1, False), ("full", False), (1, True)])
def test_a_stack_frees_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: int | str, fails: bool) -> None:
    """After it was trained, or if there was no memory for its second run. On a GPU, one stack is trained after the other."""
    experiment, made = context_of("bert", tmp_path), []
    original = _Stack.add_run

    def add_run(self: _Stack, run: int, values: Any) -> None:
        if run and fails:
            raise torch.OutOfMemoryError("CUDA out of memory")
        original(self, run, values)
        made.extend(ref(p) for p in (*self.batched.values(), *self.own[run].values()))

    monkeypatch.setattr(_Stack, "add_run", add_run)
    specs = [spec_of(tune, seed, num_train_epochs=1) for seed in range(2)]
    if fails:
        with pytest.raises(torch.OutOfMemoryError):
            run_stacked(specs, experiment.with_worker(batched=True))
    else:
        assert all(result.learned for result in run_stacked(specs, experiment.with_worker(batched=True)))
    gc.collect()
    assert made and not [one for one in made if one() is not None]
