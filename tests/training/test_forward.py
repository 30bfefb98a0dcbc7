"""The forward function of a run: in chunks, in bfloat16, and with dropout only in trained layers."""

import numpy as np
import pytest
import torch

from frostline.fast import optimizer as fast_tables
from frostline.frozen.readers import DeviceCopies, Reader
from frostline.training.forward import ForwardFunction
from frostline.training.train import run
from frozen.passes import RecordedStream
from training.runs import context_of, largest_difference, outcome, spec_of, weights_of, with_states


@pytest.mark.parametrize("k", [0, "full"])
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

    whole, short = run(spec, experiment), experiment.with_worker(scoring_tokens={})
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


@pytest.mark.parametrize("tune", [2, "full"])
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


@pytest.mark.parametrize("evaluations", [0, 1])
def test_deferred_weight_decay_of_embedding_rows_changes_no_result(uncached, monkeypatch, evaluations):
    """Embeddings that only validation examples read get their deferred decay before they are read."""
    spec = spec_of("full", train_size=8, num_train_epochs=4, weight_decay=2.0, evaluations_per_epoch=evaluations)
    whole, after = run(spec, uncached), weights_of(uncached)
    monkeypatch.setattr(fast_tables, "LARGE", 8)
    few = run(spec, uncached)
    for name, logits in whole.logits.items():
        np.testing.assert_allclose(few.logits[name], logits, atol=2e-5)
    for name, value in weights_of(uncached).items():
        torch.testing.assert_close(value, after[name], rtol=1e-4, atol=1e-5)
    for name, value in few.learned.items():
        torch.testing.assert_close(value, whole.learned[name], rtol=1e-4, atol=1e-5)


@pytest.fixture
def read_ahead(monkeypatch):
    """A function after which runs read ahead, as on a GPU. It returns the streams that copy batches."""

    def start(kind=RecordedStream):
        streams = []

        def reader(states, name, device, copies):
            streams.append(kind())
            return Reader(states, name, device, streams[-1])

        monkeypatch.setattr("frostline.training.forward.reader_of", reader)
        return streams

    return start


def test_reading_ahead_and_copies_on_the_device_give_the_same_results(experiment, read_ahead):
    """The memory of this machine stands in for that of a GPU."""
    parts = {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    specs = [spec_of(0), spec_of(2), spec_of(2, **parts)]
    expected = [outcome(run(spec, experiment)) for spec in specs]
    with_copies = experiment.with_worker(copies=DeviceCopies())
    with_copies.worker.copies.keep_within(1 << 30)
    assert [outcome(run(spec, with_copies)) for spec in specs] == expected
    assert set(with_copies.worker.copies._copies) == {"head", f"tokens-{experiment.cut(specs[1])}"}
    streams = read_ahead()
    assert [outcome(run(spec, experiment)) for spec in specs] == expected
    for stream in streams:
        assert stream.sent and not stream.in_flight and stream.events[-1][0] == "finish"


class Stopping(RecordedStream):
    """Ctrl-C at the worst moment: when a batch was sent, but not read."""

    def receive(self, sent):
        if len(self.sent) > 3:
            assert self.in_flight
            raise KeyboardInterrupt
        return super().receive(sent)


def test_a_stopped_run_leaves_no_copy_in_flight(experiment, read_ahead):
    streams = read_ahead(Stopping)
    with pytest.raises(KeyboardInterrupt):
        run(spec_of(2), experiment)
    assert not streams[0].in_flight and streams[0].events[-1][0] == "finish"
