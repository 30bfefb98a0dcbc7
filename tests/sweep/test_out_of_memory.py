"""What is tried again when memory runs out, with an allocator that raises errors."""

import gc
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch

from frostline.model.stacking import _Stack
from frostline.sweep.results.store import Store
from frostline.training.forward import ForwardFunction
from frostline.training.train import run_stacked
from model.test_stacking import context_of, spec_of
from sweep.test_stacks import notes_of, stacked_of
from tiny import run_sweep


def test_when_memory_runs_out_stacks_are_halved_and_then_micro_batches(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An allocator that has memory for 8 examples. Each optimizer step still has the 16 examples of two runs, or of one."""
    real, sizes = ForwardFunction._logits, []

    def short_of_memory(self: Any, rows: Any) -> Any:
        if torch.is_grad_enabled():
            sizes.append(rows.shape)
            if rows.size > 8:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return real(self, rows)

    plenty = run_sweep(settings, tune="0", seeds=2, per_device_train_batch_size=16, num_train_epochs=1)
    monkeypatch.setattr(ForwardFunction, "_logits", short_of_memory)
    notes, out = notes_of(monkeypatch), Path(settings["out"]).with_name("short")
    short = run_sweep(settings, tune="0", seeds=2, per_device_train_batch_size=16, num_train_epochs=1, out=out)
    assert sizes[:3] == [(2, 16), (1, 16), (1, 8)] and {shape[1] for shape in sizes[3:]} <= {8, 4}
    reason = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    assert [note for note in notes if "emory" in note] == [
        f"A stack of 2 runs of head only failed ({reason}); it is retried in two halves.",
        f"Memory ran out with 16 examples at a time in a run of head only ({reason}); it is retried with 8. An optimizer step "
        "still has 16 examples.",
    ]
    stores = [Store(Path(sweep.spec.out)) for sweep in (plenty, short)]
    assert stacked_of(short) == {0: [1, 1]} and stacked_of(plenty) == {0: [2, 2]}
    for digest, facts in stores[0].results().items():
        other = stores[1].result(digest)
        assert (facts.provenance.micro_batch, other.provenance.micro_batch) == (16, 8)
        assert facts.cost.steps == other.cost.steps
        mine, theirs = (store.predictions(digest) for store in stores)
        assert all(np.allclose(mine[name], theirs[name], rtol=0.3, atol=0.1) for name in theirs)


def test_when_memory_runs_out_in_an_evaluation_no_run_is_trained_again(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = ForwardFunction._logits, 0

    def short_of_memory(self: Any, rows: Any) -> Any:
        nonlocal failures
        if not torch.is_grad_enabled() and rows.shape[1] > 3:
            failures += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, rows)

    monkeypatch.setattr(ForwardFunction, "_logits", short_of_memory)
    notes = notes_of(monkeypatch)
    sweep = run_sweep(settings, tune="1", seeds=2, per_device_train_batch_size=16, num_train_epochs=1)
    assert failures and not [note for note in notes if "emory" in note]
    stored = Store(Path(sweep.spec.out)).results().values()
    assert [facts.provenance.micro_batch for facts in stored] == [16, 16]


def test_a_run_without_memory_for_one_example_fails(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: Any, rows: Any) -> Any:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(ForwardFunction, "_logits", none_left)
    notes = notes_of(monkeypatch)
    sweep = run_sweep(settings, tune="0", seeds=1, per_device_train_batch_size=5)
    assert [note.split(" in a run")[0] for note in notes if "emory ran" in note] == [
        f"Memory ran out with {size} examples at a time" for size in (5, 3, 2)
    ]
    assert set(sweep.table().status) == {"failed"}


def test_copies_of_hidden_states_are_given_up_first(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of this machine stands in for that of a GPU. The run is not changed: it has the same micro-batches."""
    sizes: list[int] = []

    def limit(stack: Any, prepared: Any) -> None:
        prepared.context.worker.copies.keep_within(1 << 30)
        sizes.append(prepared.context.worker.copies.bytes)

    real = ForwardFunction._logits

    def short_of_memory(self: Any, rows: Any) -> Any:
        if self.context.worker.copies.bytes:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, rows)

    monkeypatch.setattr("frostline.sweep.execution.stacks.limit_copies", limit)
    monkeypatch.setattr(ForwardFunction, "_logits", short_of_memory)
    notes = notes_of(monkeypatch)
    sweep = run_sweep(settings, tune="1", seeds=2, per_device_train_batch_size=16, num_train_epochs=1)
    assert [note for note in notes if "emory" in note] == [
        "Memory ran out in runs of last 1 (OutOfMemoryError: CUDA out of memory); they are retried without hidden states on "
        "the GPU."
    ]
    stored = Store(Path(sweep.spec.out)).results().values()
    assert [facts.provenance.micro_batch for facts in stored] == [16, 16]


@pytest.mark.parametrize("tune", [1, "full"])
def test_a_stack_that_was_trained_gives_its_memory_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tune: int | str
) -> None:
    """On a GPU, a sweep trains one stack after the other."""
    context, made = context_of("bert", tmp_path), []
    original = _Stack.add_run

    def add_run(self: _Stack, run: int, values: Any) -> None:
        original(self, run, values)
        made.extend(ref(p) for p in (*self.batched.values(), *self.own[run].values()))

    monkeypatch.setattr(_Stack, "add_run", add_run)
    results = run_stacked([spec_of(tune, seed, num_train_epochs=1) for seed in range(2)], context, batched=True)
    assert made and all(result.learned for result in results)
    del results
    gc.collect()
    assert not [one for one in made if one() is not None]


def test_a_stack_for_which_there_is_no_memory_gives_back_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, made = context_of("bert", tmp_path), []
    original = _Stack.add_run

    def add_run(self: _Stack, run: int, values: Any) -> None:
        if run:
            raise torch.OutOfMemoryError("CUDA out of memory")
        original(self, run, values)
        made.extend(ref(p) for p in self.batched.values())

    monkeypatch.setattr(_Stack, "add_run", add_run)
    with pytest.raises(torch.OutOfMemoryError):
        run_stacked([spec_of(1, seed, num_train_epochs=1) for seed in range(2)], context, batched=True)
    gc.collect()
    assert made and not [one for one in made if one() is not None]
