"""Training on a device that is not the CPU: every operand is on the device, and a step reads nothing back.

No test machine has a GPU. Tensors of torch's device ``meta`` have no data but run every operation (tests/training/stand_in.py).
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from frostline.data.kinds import MULTI_LABEL
from frostline.training.experiment import Batching
from frostline.training.problem import MultiLabelProblem, TagProblem
from frostline.training.train import run_stacked
from model.test_stacking import spec_of
from tagged import small_base
from training import test_tagging
from training.runs import small_context as context_of
from training.runs import with_states
from training.stand_in import META, on_stand_in

STEPS = 3  # of one epoch


@pytest.fixture(autouse=True)
def constant_predictions():
    """The stand-in reads ones, so all logits are the same and correlations are undefined."""
    with np.errstate(all="ignore"):
        yield


def texts(folder, model_type="bert", packed=True):
    return context_of(model_type, folder, dropout=True, packed=packed)


def sets(folder, weights=None):
    experiment = texts(folder)
    targets = np.eye(3, dtype=np.bool_)[experiment.problem.targets]
    lengths = experiment.problem.lengths
    return replace(experiment, problem=MultiLabelProblem(MULTI_LABEL, targets, lengths, weights, "f1_micro"))


def tags(folder, every_token=False):
    """A small model for tags of words, sentences, and their hidden states."""
    experiment = with_states(test_tagging.context_of(small_base(folder / "base", "bert")), folder)
    own = experiment.problem
    problem = TagProblem.of(own.targets, own.tokens, own.labels, own.metric, every_token=every_token)
    return replace(experiment, problem=problem)


CASES = [  # a context, what is tuned, the number of runs, and settings
    (texts, 0, 3, {}),
    (texts, 1, 1, {}),
    (texts, "full", 3, {}),
    (partial(texts, model_type="gpt2"), 1, 3, {}),
    (partial(texts, model_type="llama"), 2, 1, {}),
    pytest.param(partial(texts, model_type="modernbert"), "full", 3, {}, marks=pytest.mark.slow),
    (partial(texts, packed=False), 1, 3, {}),
    (texts, 1, 2, {"gradient_checkpointing": True}),
    (texts, 1, 2, {"precision": "float16"}),  # the stand-in computes in float32 but scales losses
    (texts, 1, 2, {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}),
    (partial(sets, weights=torch.tensor([1.0, 2.0, 0.5])), 1, 2, {}),
    (tags, 0, 2, {}),
    (tags, "full", 2, {}),
    (partial(tags, every_token=True), 1, 2, {}),
]


@pytest.mark.parametrize(("of", "tune", "runs", "more"), CASES)
def test_a_step_reads_nothing_and_mixes_no_devices(tmp_path, monkeypatch, of, tune, runs, more):
    specs = [spec_of(tune, seed, num_train_epochs=1, **more) for seed in range(runs)]
    with on_stand_in(of(tmp_path), monkeypatch) as (on_device, watched):

        def after(step, total):  # all steps but the first, and the evaluation after the last one
            watched.phase = "step" if step < total else "evaluation"

        results = run_stacked(specs, on_device, on_step=after)
    assert [result.record.cost.steps for result in results] == [STEPS] * runs
    assert not watched.draws.total()  # a new head has the values that it has on a CPU
    assert not watched.misplaced and watched.operations["step"] > 50 * (STEPS - 1)
    # Without packing, transformers asks in every forward pass whether there is padding.
    assert watched.reads["step"] == (0 if on_device.packed else STEPS - 1)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("of", [texts, tags])
def test_the_forward_pass_over_frozen_layers_reads_nothing(tmp_path, monkeypatch, of, packed):
    experiment = of(tmp_path).with_worker(batching=Batching(packed))
    selection = replace(experiment.states.selection, pooled=(1, 2))
    with on_stand_in(experiment, monkeypatch) as (on_device, watched):
        whole = on_device.forward_pass(selection)
        batches = whole.batches(on_device.tokens.lengths, np.arange(40))
        states = list(whole.hidden_states(on_device.tokens, batches))
    assert not watched.misplaced and all(x.device == META for one, _ in states for x in one.values())
    assert watched.reads.total() == (0 if packed else len(batches))
