"""Training on a device that is not the CPU: every operand is on the device, and a step reads nothing back.

No test machine has a GPU. Tensors of torch's device ``meta`` have no data but run every operation (tests/training/stand_in.py).
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from frostline.training import train as loop
from frostline.training.experiment import Batching
from frostline.training.problem import MultiLabelProblem, TagProblem
from frostline.training.train import run_stacked
from model.test_stacking import context_of, spec_of, with_states
from tagged import small_base
from training import test_tagging
from training.stand_in import META, on_stand_in

EPOCHS, STEPS = 2, 3  # steps of one epoch
CASES = [(kind, tune, True) for kind, tune in (("bert", 0), ("bert", 1), ("bert", "full"), ("gpt2", 1), ("llama", 2))]
CASES += [("bert", 1, False), pytest.param("modernbert", "full", True, marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def constant_predictions():
    """The stand-in reads ones, so all logits are the same and correlations are undefined."""
    with np.errstate(all="ignore"):
        yield


def trained(experiment, specs, watched, monkeypatch):
    """Train on the stand-in device. ``watched`` counts what happens in a step separately."""
    original = loop.backward

    def backward(*args, **more):
        watched.phase = "step"
        return original(*args, **more)

    def after(step, total):
        watched.phase = "between steps"

    monkeypatch.setattr(loop, "backward", backward)
    return run_stacked(specs, experiment, on_step=after)


def one_epoch(tune, runs, **more):
    return [spec_of(tune, seed, num_train_epochs=1, **more) for seed in range(runs)]


def texts_context(folder):
    return context_of("bert", folder, dropout=True)


def sets_context(folder, weights=None):
    experiment = texts_context(folder)
    sets = np.eye(3, dtype=np.bool_)[experiment.problem.targets]
    return replace(experiment, problem=MultiLabelProblem.of(sets, experiment.problem.lengths, weights, "f1_micro"))


def tags_context(folder, every_token=False):
    """A small model for tags of words, sentences, and their hidden states."""
    experiment = with_states(test_tagging.context_of(small_base(folder / "base", "bert")), folder)
    own = experiment.problem
    problem = TagProblem.of(own.targets, own.tokens, own.labels, own.metric, every_token=every_token)
    return replace(experiment, problem=problem)


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize(("model_type", "tune", "packed"), CASES)
def test_a_step_reads_nothing_and_mixes_no_devices(tmp_path, monkeypatch, model_type, tune, runs, packed):
    experiment = context_of(model_type, tmp_path, dropout=True, packed=packed)
    with on_stand_in(experiment, monkeypatch) as (on_device, watched):
        results = trained(on_device, one_epoch(tune, runs), watched, monkeypatch)
    assert [result.record.cost.steps for result in results] == [STEPS] * runs
    assert not watched.draws.total()  # a new head has the values that it has on a CPU
    assert not watched.misplaced and watched.operations["step"] > 50 * STEPS
    # Without packing, transformers asks in every forward pass whether there is padding.
    assert watched.reads["step"] == (0 if packed else STEPS)


OTHERS = [
    *((texts_context, (), 1, more) for more in ({"gradient_checkpointing": True}, {"precision": "float16"})),
    (texts_context, (), 1, {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}),
    *((sets_context, (weights,), 1, {}) for weights in (None, torch.tensor([1.0, 2.0, 0.5]))),
    *((tags_context, (every_token,), tune, {}) for every_token in (False, True) for tune in (0, 1, "full")),
]


@pytest.mark.parametrize(("of", "options", "tune", "more"), OTHERS)
def test_settings_that_save_memory_and_other_tasks_read_nothing_either(tmp_path, monkeypatch, of, options, tune, more):
    """With float16, the stand-in computes in float32 but scales losses."""
    with on_stand_in(of(tmp_path, *options), monkeypatch) as (on_device, watched):
        results = trained(on_device, one_epoch(tune, 2, **more), watched, monkeypatch)
    assert [result.record.cost.steps for result in results] == [STEPS] * 2
    assert not watched.misplaced and not watched.reads["step"] and watched.operations["step"] > 50 * STEPS


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("of", [texts_context, tags_context])
def test_the_forward_pass_over_frozen_layers_reads_nothing(tmp_path, monkeypatch, of, packed):
    experiment = of(tmp_path).with_worker(batching=Batching(packed))
    selection = replace(experiment.states.selection, pooled=(1, 2))
    with on_stand_in(experiment, monkeypatch) as (on_device, watched):
        whole = on_device.forward_pass(selection)
        batches = whole.batches(on_device.tokens.lengths, np.arange(40))
        states = list(whole.hidden_states(on_device.tokens, batches))
    assert not watched.misplaced and all(x.device == META for one, _ in states for x in one.values())
    assert watched.reads.total() == (0 if packed else len(batches))
