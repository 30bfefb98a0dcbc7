"""A run that is interrupted after any step, and continued from the file of its checkpoint, ends in the same bits."""

import pytest

from frostline.fast import optimizer as sparse_gradients
from frostline.model.ways import Way
from frostline.sweeps.results.tensor_files import TensorFiles
from frostline.training import updates
from frostline.training.train import run_stacked
from training.runs import context_of, outcome, spec_of, with_states

STEPS = 8  # of two epochs of 32 examples
WAYS = {
    "gradual": Way(tune=2, order="gradual"),
    "head-first": Way(tune=1, order="head-first"),
    "low-rank": Way(tune=2, low_rank=2),
    "new layers": Way(tune=2, reinitialized=1),
    "mixout": Way(mixout=0.5),
    "pulled back, with patience": Way(towards_pretrained=0.1, patience=1),
    "uncorrected, decaying rates": Way(bias_correction=False, layer_decay=0.5),
}
CASES = {  # runs of a stack, and the steps after which they are interrupted
    "at the beginning, in the middle and at the end": ([spec_of(1)], (1, 4, 5, STEPS - 1)),
    "all layers": ([spec_of("full")], (3,)),
    **{name: ([spec_of("my-way", way=way)], (2, 3) if name == "gradual" else (3,)) for name, way in WAYS.items()},
    "scaled losses": ([spec_of(1, precision="float16")], (3,)),
    "scored in the middle of epochs": ([spec_of(1, evaluations_per_epoch=2, max_grad_norm=0.1)], (3,)),
    "dropout in frozen layers": ([spec_of(1, frozen_dropout=True)], (3,)),
    "parts of batches": ([spec_of(2, per_device_train_batch_size=4, gradient_accumulation_steps=2)], (3,)),
    "runs that diverge at other steps": (
        [spec_of(1, seed=seed, learning_rate=rate) for seed, rate in ((0, 3e-3), (1, 1e30), (2, 1e-3))],
        (1, 3),
    ),
}


class Interrupted(BaseException):
    pass


class Interrupting:
    """Keeps a state in a file after one of the steps, and interrupts the training there."""

    def __init__(self, folder, after):
        self.files, self.after, self.steps = TensorFiles(folder, "checkpoints"), after, 0

    def load(self):
        return self.files.load("run", {}, note=pytest.fail)

    def after_step(self, state):
        self.steps += 1
        if self.steps == self.after:
            self.files.save(f"run.{self.steps}", (self.steps,), {}, state())
            raise Interrupted


def ending(specs, experiment, folder, after):
    """The outcomes and the trained values of runs that are interrupted after this number of steps, and again after as many
    more; None: never."""
    interruptions = 0
    for _ in range(2):
        try:
            results = run_stacked(specs, experiment, checkpoints=Interrupting(folder, after))
            break
        except Interrupted:
            interruptions += 1
    else:
        results = run_stacked(specs, experiment, checkpoints=Interrupting(folder, None))
    assert bool(interruptions) == (after is not None)
    assert all(len(one.record.provenance.continued_after) == interruptions for one in results)
    values = [{name: p.detach().numpy().tobytes() for name, p in one.learned.items()} for one in results]
    return [outcome(one) for one in results], values


def assert_equal_endings(specs, experiment, folder, at):
    """Runs end alike without interruption, and with one after each of these numbers of steps."""
    plain, *interrupted = (ending(specs, experiment, folder / str(after), after) for after in (None, *at))
    assert interrupted == [plain] * len(at)


@pytest.mark.parametrize("case", CASES)
def test_runs_from_cached_hidden_states(case, experiment, tmp_path):
    specs, at = CASES[case]
    assert_equal_endings(specs, experiment, tmp_path, at)


def test_a_loss_scale_that_has_changed(tiny_bert, tmp_path, monkeypatch):
    """It begins too large, so the first steps are skipped."""
    monkeypatch.setattr(updates, "START", 2.0**22)
    half = with_states(context_of(tiny_bert, precision="float16"), tmp_path)
    assert_equal_endings([spec_of(1, precision="float16")], half, tmp_path, (2,))


def test_tables_with_deferred_updates(uncached, tmp_path, monkeypatch):
    monkeypatch.setattr(sparse_gradients, "LARGE", 8)
    assert_equal_endings([spec_of("full", weight_decay=0.5)], uncached, tmp_path, (3,))
