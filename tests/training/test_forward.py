"""The forward function of a run: in chunks, in bfloat16, and with dropout only in trained layers."""

import numpy as np
import pytest
import torch

from frostline.fast import optimizer as fast_tables
from frostline.fast.optimizer import SparseGradient
from frostline.frozen.readers import DeviceCopies, Reader
from frostline.training.experiment import Limits
from frostline.training.forward import ForwardFunction
from frostline.training.learner import Learner
from frostline.training.train import run
from frozen.passes import RecordedStream
from training.runs import (
    context_of,
    largest_difference,
    named_spec,
    outcome,
    spec_of,
    weights_of,
    with_states,
)


@pytest.mark.parametrize("k", [0, 2, "full"])
def test_when_memory_runs_out_smaller_chunks_are_scored(experiment, monkeypatch, k):
    """An allocator with memory to score 64 tokens. No step is repeated, and the next run scores smaller chunks at once."""
    spec, seen, real = spec_of(k), [], ForwardFunction._logits

    def short_of_memory(self, rows):
        tokens = rows.shape[1] * self.experiment.tokens.lengths[rows].max()
        fails = not torch.is_grad_enabled() and tokens > 64
        seen.append((torch.is_grad_enabled(), fails))
        if fails:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, rows)

    whole, short = run(spec, experiment), experiment.with_worker(limits=Limits())
    monkeypatch.setattr(ForwardFunction, "_logits", short_of_memory)
    for fails in (True, False):
        parts = run(spec, short)
        assert seen.count((True, False)) == whole.record.cost.steps and ((False, True) in seen) is fails
        for name, logits in whole.logits.items():
            np.testing.assert_allclose(parts.logits[name], logits, atol=1e-5)
        seen.clear()


def test_bfloat16(tiny_bert, experiment, tmp_path):
    abilities = torch.cpu.get_capabilities()
    if not (abilities.get("avx512_bf16") or abilities.get("amx_bf16")):
        pytest.skip("this processor has no bfloat16 instructions")
    without = context_of(tiny_bert, precision="bfloat16")
    cached = with_states(without, tmp_path)
    for k in (0, 2):
        spec = spec_of(k, precision="bfloat16")
        one = run(spec, cached)
        assert outcome(run(spec, cached)) == outcome(one)
        assert largest_difference(one, run(spec, without)) < 0.05
        assert outcome(one)[1] != outcome(run(spec_of(k), experiment))[1]
        assert {p.dtype for p in cached.pretrained.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("tune", [0, 2, "full"])
def test_float16_has_the_losses_of_float32_within_rounding(tiny_bert, experiment, uncached, tmp_path, tune):
    """Losses are scaled, so that small gradients do not become zero."""
    half = context_of(tiny_bert, precision="float16")
    half = half if tune == "full" else with_states(half, tmp_path)
    spec = spec_of(tune, precision="float16", learning_rate=3e-4)
    one = run(spec, half)
    assert one.record.outcome == "ok" and outcome(run(spec, half)) == outcome(one)
    exact = run(spec_of(tune, learning_rate=3e-4), uncached if tune == "full" else experiment)
    assert 0 < largest_difference(one, exact) < 0.01
    assert {p.dtype for p in half.pretrained.model.parameters()} == {torch.float32}


def test_with_frozen_dropout_nothing_is_cached_and_frozen_layers_have_dropout(experiment, uncached):
    modes = []
    embeddings = experiment.pretrained.model.bert.embeddings
    hook = embeddings.register_forward_hook(lambda module, args, out: modes.append(module.dropout.training))
    try:
        one = run(spec_of(1, frozen_dropout=True), experiment)
    finally:
        hook.remove()
    assert one.record.provenance.cut is None
    assert modes.count(True) == one.record.cost.steps
    assert one.record.audit.checks["frozen_in_eval_mode"] is False
    assert one.record.audit.checks["frozen_bytes_unchanged"] is True
    assert outcome(one)[1] != outcome(run(spec_of(1), uncached))[1]


def test_a_frozen_layer_above_a_named_module_has_no_dropout(experiment):
    modes = {}
    layers = experiment.pretrained.anatomy.layers(experiment.pretrained.model)
    hooks = [
        layer.register_forward_hook(
            lambda layer, args, out, n=n: modes.setdefault(n, set()).add(layer.output.dropout.training)
        )
        for n, layer in enumerate(layers)
    ]
    try:
        run(named_spec("layer.1"), experiment)
    finally:
        for hook in hooks:
            hook.remove()
    assert modes == {0: {False}, 1: {True, False}, 2: {False}}  # in training and in evaluation


@pytest.mark.parametrize("evaluations", [0, 1])
def test_deferred_weight_decay_of_embedding_rows_changes_no_result(uncached, monkeypatch, evaluations):
    """Embeddings that only validation examples read get their deferred decay before they are read."""
    spec = spec_of("full", train_size=8, num_train_epochs=4, weight_decay=2.0, evaluations_per_epoch=evaluations)
    whole, after = run(spec, uncached), weights_of(uncached)
    monkeypatch.setattr(fast_tables, "LARGE", 8)
    seen, read = [], SparseGradient.read
    monkeypatch.setattr(
        SparseGradient, "read", lambda self, ids: [read(self, ids), seen.append((self, len(self.rows)))]
    )
    few = run(spec, uncached)
    words, known = max((len(table.index), rows) for table, rows in seen)
    assert 0 < known < words  # the decay of the other rows is deferred
    for name, logits in whole.logits.items():
        np.testing.assert_allclose(few.logits[name], logits, atol=2e-5)
    for name, value in weights_of(uncached).items():
        torch.testing.assert_close(value, after[name], rtol=1e-4, atol=1e-5)
    for name, value in few.learned.items():
        torch.testing.assert_close(value, whole.learned[name], rtol=1e-4, atol=1e-5)


READERS = "frostline.training.forward.reader_of"


@pytest.fixture
def streams(monkeypatch):
    """Runs read ahead, as on a GPU. The streams that copy batches are recorded."""
    found = []

    def reader(states, name, device, copies):
        found.append(RecordedStream())
        return Reader(states, name, device, found[-1])

    monkeypatch.setattr(READERS, reader)
    return found


@pytest.mark.parametrize("more", [{}, {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}])
@pytest.mark.parametrize("tune", [0, 2])
def test_reading_ahead_gives_the_same_results(experiment, monkeypatch, tune, more):
    spec, stream = spec_of(tune, **more), RecordedStream()
    expected = run(spec, experiment)
    monkeypatch.setattr(READERS, lambda states, name, device, _: Reader(states, name, device, stream))
    assert outcome(run(spec, experiment)) == outcome(expected)
    assert stream.sent and not stream.in_flight and stream.events[-1][0] == "finish"


def test_copies_on_the_device_give_the_same_results(experiment):
    """The memory of this machine stands in for that of a GPU."""
    expected = [run(spec_of(tune), experiment) for tune in (0, 2)]
    with_copies = experiment.with_worker(copies=DeviceCopies())
    with_copies.worker.copies.keep_within(1 << 30)
    for tune, one in zip((0, 2), expected, strict=True):
        assert outcome(run(spec_of(tune), with_copies)) == outcome(one)
    assert set(with_copies.worker.copies._copies) == {"head", f"tokens-{experiment.cut(spec_of(2))}"}


def test_a_stopped_run_leaves_no_copy_in_flight(experiment, streams, monkeypatch):
    """Ctrl-C at the worst moment: when the next batch was sent, but not read."""
    next_rows, flying = Learner.next_rows, []

    def stop(self, batch):
        if streams[0].in_flight:
            flying.extend(streams[0].in_flight)
            raise KeyboardInterrupt
        return next_rows(self, batch)

    monkeypatch.setattr(Learner, "next_rows", stop)
    with pytest.raises(KeyboardInterrupt):
        run(spec_of(2), experiment)
    assert flying and not streams[0].in_flight and streams[0].events[-1][0] == "finish"
