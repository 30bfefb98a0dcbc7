"""Training on a device that is not the CPU: every operand is on the device, and a step reads nothing back.

No test machine has a GPU. Tensors of torch's device ``meta`` have no data but run every operation (tests/training/stand_in.py).
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from frostline.fast.dropout import Dropout
from frostline.fast.optimizer import AdamW
from frostline.frozen import forward_pass, readers
from frostline.frozen.cut import UpperModel
from frostline.model import packed_layout, packing, stacking
from frostline.training import forward, loop, problem, updates
from frostline.training.learner import LearnerState
from frostline.training.problem import MultiLabelProblem, TagProblem
from frostline.training.train import run_stacked
from model.test_stacking import L, context_of, spec_of, with_states
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


def trained(context, specs, watched, monkeypatch):
    """Train on the stand-in device. ``watched`` counts what happens in a step separately."""
    original = loop.backward

    def backward(*args, **more):
        watched.phase = "step"
        return original(*args, **more)

    def after(step, total):
        watched.phase = "between steps"

    monkeypatch.setattr(loop, "backward", backward)
    return run_stacked(specs, context, on_step=after)


def one_epoch(tune, runs, **more):
    return [spec_of(tune, seed, num_train_epochs=1, **more) for seed in range(runs)]


def texts_context(folder):
    return context_of("bert", folder)


def tags_context(folder, *, every_token=False):
    """A small model for tags of words, sentences, and their hidden states."""
    context = with_states(test_tagging.context_of(small_base(folder / "base", "bert")), folder)
    own = context.problem
    problem = TagProblem.of(own.targets, own.tokens, own.labels, own.metric, every_token=every_token)
    return replace(context, problem=problem)


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize(("model_type", "tune", "packed"), CASES)
def test_a_step_reads_nothing_and_mixes_no_devices(tmp_path, monkeypatch, model_type, tune, runs, packed):
    context = context_of(model_type, tmp_path, dropout=True, packed=packed)
    with on_stand_in(context, monkeypatch) as (on_device, watched):
        results = trained(on_device, one_epoch(tune, runs), watched, monkeypatch)
    assert [result.record.cost.steps for result in results] == [STEPS] * runs
    assert not watched.draws.total()  # a new head has the values that it has on a CPU
    assert not watched.misplaced and watched.operations["step"] > 50 * STEPS
    # Without packing, transformers asks in every forward pass whether there is padding.
    assert watched.reads["step"] == (0 if packed else STEPS)


@pytest.mark.parametrize(("tune", "packed"), [(0, True), (1, True), (1, False)])
def test_copies_of_hidden_states_are_read_without_waiting(tmp_path, monkeypatch, tune, packed):
    """A step sends positions instead of hidden states. The inputs of a step are the same."""
    context = context_of("bert", tmp_path, dropout=True, packed=packed)
    context.worker.copies.keep_within(1 << 30)
    with on_stand_in(context, monkeypatch) as (on_device, watched):
        monkeypatch.setattr(readers.AheadReader, "read", None)  # from the host
        results = trained(on_device, one_epoch(tune, 2), watched, monkeypatch)
    assert [result.record.cost.steps for result in results] == [STEPS] * 2 and context.worker.copies.bytes
    assert not watched.misplaced and watched.reads["step"] == (0 if packed else STEPS)


SAVES_MEMORY = [
    {"gradient_checkpointing": True},
    {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4},
    {"precision": "float16"},
]


@pytest.mark.parametrize("more", SAVES_MEMORY)
def test_settings_that_save_memory_read_nothing_either(tmp_path, monkeypatch, more):
    """With float16, the stand-in computes in float32 but scales losses."""
    context = context_of("bert", tmp_path, dropout=True)
    with on_stand_in(context, monkeypatch) as (on_device, watched):
        trained(on_device, one_epoch(1, 2, **more), watched, monkeypatch)
    assert not watched.misplaced and not watched.reads["step"] and watched.operations["step"] > 50 * STEPS


@pytest.mark.parametrize("weights", [None, torch.tensor([1.0, 2.0, 0.5])])
def test_label_sets_read_nothing_either(tmp_path, monkeypatch, weights):
    context = context_of("bert", tmp_path, dropout=True)
    sets = np.eye(3, dtype=np.bool_)[context.problem.targets]
    problem = MultiLabelProblem.of(sets, context.problem.lengths, weights, "f1_micro")
    with on_stand_in(replace(context, problem=problem), monkeypatch) as (on_device, watched):
        trained(on_device, one_epoch(1, 2), watched, monkeypatch)
    assert not watched.misplaced and not watched.reads["step"] and watched.operations["step"] > 50 * STEPS


@pytest.mark.parametrize("every_token", [False, True])
@pytest.mark.parametrize("tune", [0, 1, "full"])
def test_tags_read_nothing_either(tmp_path, monkeypatch, tune, every_token):
    context = tags_context(tmp_path, every_token=every_token)
    with on_stand_in(context, monkeypatch) as (on_device, watched):
        results = trained(on_device, one_epoch(tune, 2), watched, monkeypatch)
    assert [result.record.cost.steps for result in results] == [STEPS] * 2
    assert not watched.misplaced and not watched.reads["step"] and watched.operations["step"] > 50 * STEPS


@pytest.mark.parametrize("of", [texts_context, tags_context])
def test_an_evaluation_reads_logits_and_which_runs_diverged(tmp_path, monkeypatch, of):
    runs = 3
    with on_stand_in(of(tmp_path), monkeypatch) as (on_device, watched):
        scored = loop._Evaluator.evaluate

        def evaluate(self, *args, **more):
            before = watched.reads.total()
            scored(self, *args, **more)
            reads.append(watched.reads.total() - before)

        reads = []
        monkeypatch.setattr(loop._Evaluator, "evaluate", evaluate)
        run_stacked([spec_of(1, seed) for seed in range(runs)], on_device)
    assert reads == [2 + runs] * EPOCHS  # divergence, validation logits, and each run's training batches


def test_divergence_is_read_every_few_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(updates, "READ_EVERY", 2)
    with on_stand_in(context_of("bert", tmp_path), monkeypatch) as (on_device, watched):
        trained(on_device, [spec_of(1)], watched, monkeypatch)
    assert watched.reads["step"] == EPOCHS * STEPS // 2


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("of", [texts_context, tags_context])
def test_the_forward_pass_over_frozen_layers_reads_nothing(tmp_path, monkeypatch, of, packed):
    context = of(tmp_path).with_worker(packed=packed)
    selection = replace(context.states.selection, pooled=(1, 2))
    with on_stand_in(context, monkeypatch) as (on_device, watched):
        whole = on_device.forward_pass(selection)
        batches = whole.batches(on_device.tokens.lengths, np.arange(40))
        states = list(whole.hidden_states(on_device.tokens, batches))
    assert not watched.misplaced and all(x.device == META for one in states for x in one.values())
    assert watched.reads.total() == (0 if packed else len(batches))


def on_host(x, device):
    return x


def without_lengths(monkeypatch):
    original = UpperModel.__call__
    monkeypatch.setattr(
        UpperModel,
        "__call__",
        lambda self, *args, lengths, **more: original(self, *args, **more),
    )


def item_in_the_loop(monkeypatch):
    original = updates.DeviceUpdates.step

    def step(self, number, losses):
        sum(loss.item() for loss in losses)
        original(self, number, losses)

    monkeypatch.setattr(updates.DeviceUpdates, "step", step)


def generator_of_the_host(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    monkeypatch.setattr(
        nn.Dropout, "forward", lambda self, x: x * torch.empty_like(x).bernoulli_(0.9, generator=generator)
    )


def dropout_masks_of_the_host(monkeypatch):
    monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: Dropout(0)(x, 0.1))


def optimizer_flag_on_the_host(monkeypatch):
    original = AdamW.step_unless
    monkeypatch.setattr(AdamW, "step_unless", lambda self, skip, *others: original(self, skip.cpu(), *others))


def mask_as_an_index(monkeypatch):
    def pack(self, x):
        return self.split_by_run(x.expand(self.batch_size, *x.shape[1:])[self.mask.to(META).bool()][None])

    monkeypatch.setattr(packed_layout.Layout, "pack", pack)


def clipping_on_the_host(monkeypatch):
    original = updates.DeviceUpdates.step

    def step(self, number, losses):
        for state in self.states:
            nn.utils.clip_grad_norm_(state.tensors, self.max_norm, error_if_nonfinite=True)
        original(self, number, losses)

    monkeypatch.setattr(updates.DeviceUpdates, "step", step)


def parameters_on_the_host(monkeypatch):
    original = stacking._Stack._add_batched
    monkeypatch.setattr(stacking._Stack, "_add_batched", lambda self, name, value: original(self, name, value.cpu()))


def logits_read_in_every_step(monkeypatch):
    original = LearnerState.add_batch
    monkeypatch.setattr(
        LearnerState, "add_batch", lambda self, rows, logits, step: original(self, rows, logits.cpu(), step)
    )


PLANTED = {
    "a random generator of the host": generator_of_the_host,
    "dropout masks of the host": dropout_masks_of_the_host,
    "losses and norms read in every step": lambda patch: patch.setattr(loop, "updates_of", updates.HostUpdates),
    "item in the loop": item_in_the_loop,
    "lengths read from the device": without_lengths,
    "transformers' mask": lambda patch: AttentionMaskInterface.register(packing.ATTENTION, sdpa_mask),
    "positions of tokens on the host": lambda patch: patch.setattr(packed_layout, "to_device", on_host),
    "targets on the host": lambda patch: patch.setattr(problem, "to_device", on_host),
    "inputs on the host": lambda patch: patch.setattr(forward, "to_device", on_host),
    "hidden states on the host": lambda patch: patch.setattr(readers, "to_device", on_host),
    "positions of hidden states on the host": lambda patch: patch.setattr(readers, "to_device", on_host),
    "the optimizer's flag on the host": optimizer_flag_on_the_host,
    "a mask as an index": mask_as_an_index,
    "clipping on the host": clipping_on_the_host,
    "parameters on the host": parameters_on_the_host,
    "logits read in every step": logits_read_in_every_step,
}


@pytest.mark.parametrize("error", PLANTED)
def test_planted_errors_are_found(tmp_path, monkeypatch, error):
    """In a stack of two runs that trains one layer, and once the whole model."""
    context = context_of("bert", tmp_path, dropout=True)
    context.worker.copies.keep_within(1 << 30 if "positions of hidden states" in error else 0)
    tune = "full" if error == "a mask as an index" else L - 1
    with on_stand_in(context, monkeypatch) as (on_device, watched):
        try:
            PLANTED[error](monkeypatch)
            trained(on_device, one_epoch(tune, 2), watched, monkeypatch)
        except (RuntimeError, AssertionError):
            pass  # after it was noted
        finally:
            AttentionMaskInterface.register(packing.ATTENTION, packing.padded_mask)
    assert watched.misplaced or watched.reads["step"]


def test_tags_on_the_host_are_found(tmp_path, monkeypatch):
    with on_stand_in(tags_context(tmp_path), monkeypatch) as (on_device, watched):
        monkeypatch.setattr(problem, "to_device", on_host)
        with pytest.raises(RuntimeError, match="index of"):
            trained(on_device, [spec_of(1)], watched, monkeypatch)


def test_the_forward_pass_finds_inputs_on_the_host(tmp_path, monkeypatch):
    monkeypatch.setattr(forward_pass, "to_device", on_host)
    with on_stand_in(context_of("bert", tmp_path), monkeypatch) as (on_device, _):
        whole = on_device.forward_pass(on_device.states.selection)
        batches = whole.batches(on_device.tokens.lengths, np.arange(40))
        with pytest.raises(RuntimeError, match="embedding of"):
            list(whole.hidden_states(on_device.tokens, batches))
