"""Gradient checkpointing changes no result, and keeps fewer tensors until the backward pass."""

import numpy as np
import pytest
import torch

from frostline.training.train import run, run_stacked, set_mode, training_session
from model.test_stacking import spec_of
from training.runs import largest_difference, outcome
from training.runs import small_context as context_of


def without_setting(result):
    facts, *logits = outcome(result)
    return facts.replace('"gradient_checkpointing": true', '"gradient_checkpointing": false'), logits


def same(one, other):
    """Whether all results but the digest are bitwise identical."""
    (facts, logits), (others, other_logits) = without_setting(one), without_setting(other)
    return facts.replace(one.record.digest, other.record.digest) == others and logits == other_logits


@pytest.mark.parametrize(
    "model_type, tune, packed",
    [("bert", 0, True), ("bert", 1, False), ("bert", "full", True), ("llama", 1, True), ("llama", "full", False)],
)
def test_results_are_bitwise_identical(tmp_path, model_type, tune, packed):
    """With dropout, whose masks are drawn again in the backward pass."""
    experiment = context_of(model_type, tmp_path, dropout=True, packed=packed)
    assert same(run(spec_of(tune, gradient_checkpointing=True), experiment), run(spec_of(tune), experiment))


def test_results_are_bitwise_identical_with_the_dropout_of_torch(tmp_path, monkeypatch):
    monkeypatch.setenv("FROSTLINE_PLAIN", "1")
    experiment = context_of("bert", tmp_path, dropout=True, packed=False)
    assert same(run(spec_of(1, gradient_checkpointing=True), experiment), run(spec_of(1), experiment))


@pytest.mark.parametrize("batched", [True, False])
def test_stacked_runs(tmp_path, batched):
    experiment = context_of("bert", tmp_path, dropout=True)
    with_setting, without = (
        run_stacked(
            [spec_of(1, seed, gradient_checkpointing=on) for seed in range(2)], experiment.with_worker(batched=batched)
        )
        for on in (True, False)
    )
    assert all(same(one, other) for one, other in zip(with_setting, without, strict=True))


def test_several_micro_batches(tmp_path):
    experiment = context_of("bert", tmp_path)
    divided = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    one = run(spec_of(1, gradient_checkpointing=True, **divided), experiment)
    assert same(one, run(spec_of(1, **divided), experiment))
    assert largest_difference(one, run(spec_of(1), experiment)) < 1e-4


def test_fewer_bytes_are_kept_until_the_backward_pass(tmp_path):
    experiment, kept = context_of("bert", tmp_path, dropout=True), []
    for on in (False, True):
        spec, storages = spec_of("full", gradient_checkpointing=on), {}

        def count(x, storages=storages):
            storages[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

        with training_session([spec], experiment) as (learners, forward):
            set_mode(experiment, spec, training=True)
            with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
                forward(np.stack([learners[0].rows[:8]]))
        kept.append(sum(storages.values()) - sum(p.nbytes for p in learners[0].parameters.values()))
    assert kept[1] < 0.6 * kept[0], kept
