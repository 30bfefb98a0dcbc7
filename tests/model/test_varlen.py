"""Attention for variable lengths: it gives the results of the padded grid, and is used where torch's kernel can compute a call.

No test machine has a GPU. A loop over the sequences stands in for the kernel.
"""

import sys
from collections import Counter
from functools import wraps

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from frostline.frozen.cut import cut_at
from frostline.model import packed_layout, varlen
from frostline.model.anatomy import find_layers
from frostline.model.masks import ALL, EARLIER
from frostline.model.packed_layout import Layout
from frostline.model.packing import packable
from frostline.training.run import run, run_stacked
from model.test_stacking import RUNS, context_of, furthest, spec_of
from small_models import small_batch, small_model
from training.stand_in import on_stand_in
from training.test_devices import trained


def by_sequence(
    query, key, value, starts, starts_again, longest, longest_again, *, scale, window_size, enable_gqa=False
):
    """What ``torch.nn.attention.varlen.varlen_attn`` computes, one sequence at a time."""
    assert torch.equal(starts, starts_again) and longest == longest_again and starts.dtype == torch.int32
    assert query.dtype == key.dtype == value.dtype and (enable_gqa or query.shape[1] == key.shape[1])
    lengths = starts.diff().tolist()
    assert starts[0] == 0 and starts[-1] == len(query) == len(key) and 0 < min(lengths) <= max(lengths) == longest
    parts = zip(*(x.transpose(0, 1).split(lengths, 1) for x in (query, key, value)), strict=True)
    out = []
    for one in parts:
        after = torch.arange(one[0].shape[1]) - torch.arange(one[0].shape[1])[:, None]  # of the key, after the query
        seen = (window_size[0] == -1) | (after >= -window_size[0])
        seen &= (window_size[1] == -1) | (after <= window_size[1])
        out.append(F.scaled_dot_product_attention(*one, attn_mask=seen, scale=scale, enable_gqa=True))
    return torch.cat(out, 1).transpose(0, 1)


@pytest.fixture
def calls(monkeypatch):
    """The stand-in for the kernel runs everywhere, also in float32. Counts its calls by window."""
    found = Counter()

    @wraps(by_sequence)
    def kernel(*args, **more):
        found[more["window_size"]] += 1
        return by_sequence(*args, **more)

    monkeypatch.setattr(varlen, "has_kernel", lambda device: True)
    monkeypatch.setattr(varlen, "torch_kernel", lambda: kernel)
    monkeypatch.setattr(varlen, "DTYPES", (torch.float32,))
    return found


def result_of(model, lengths, runs=1):
    """Hidden states after each layer, logits and gradients of a packed batch."""
    batch, anatomy, hidden = small_batch(model, lengths), find_layers(model), []
    with (
        packable(model) as packing,
        cut_at(model, anatomy, None, packing=packing, runs=runs, tap=lambda _, x: hidden.append(x)) as whole,
    ):
        logits = whole(batch)
    model.zero_grad()
    (logits * torch.arange(1.0, 1 + logits.numel()).view_as(logits).sqrt()).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    counts = Layout(batch["attention_mask"].sum(1), max(lengths), runs, tokens_multiple=16).is_real
    return [*(x[counts] for x in hidden), logits], gradients


def assert_close(one, other):
    for a, b in zip(one[0], other[0], strict=True):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()
    scale = max(x.abs().max() for x in other[1].values())
    assert one[1].keys() == other[1].keys()
    assert all((one[1][name] - x).abs().max() <= 1e-5 * scale for name, x in other[1].items())


MODELS = {
    "bert": {ALL: 4},
    "electra": {ALL: 4},
    "modernbert": {ALL: 2, (8, 8): 2},
    "gpt2": {EARLIER: 4},
    "llama": {EARLIER: 4},
    "qwen2": {EARLIER: 2, (15, 0): 2},
}
small = {model_type: small_model(model_type, layers=2) for model_type in ("bert", "qwen2")}


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("model_type", MODELS)
def test_hidden_states_logits_and_gradients_are_those_of_the_padded_grid(calls, monkeypatch, model_type, runs):
    """qwen2 has fewer key heads than query heads."""
    model = small_model(model_type)
    found = result_of(model, (40, 31, 7, 22), runs)
    assert calls == MODELS[model_type]
    monkeypatch.setattr(varlen, "has_kernel", lambda device: False)
    assert_close(found, result_of(model, (40, 31, 7, 22), runs))


@settings(max_examples=8)
@given(
    st.sampled_from(sorted(small)),
    st.lists(st.integers(1, 12), min_size=2, max_size=6).filter(lambda x: len(set(x)) > 1),
)
def test_any_lengths(model_type, lengths):
    model = small[model_type]
    with pytest.MonkeyPatch.context() as patch:
        plain = result_of(model, lengths)
        patch.setattr(varlen, "has_kernel", lambda device: True)
        patch.setattr(varlen, "torch_kernel", lambda: by_sequence)
        patch.setattr(varlen, "DTYPES", (torch.float32,))
        assert_close(result_of(model, lengths), plain)


@given(st.lists(st.lists(st.integers(1, 9), min_size=2, max_size=2), min_size=1, max_size=4), st.integers(0, 90))
def test_sequences_are_the_examples_of_each_run_and_what_fills_it_up(runs, capacity):
    lengths = [length for run in runs for length in run]
    layout = Layout(torch.tensor(lengths), max(lengths), len(runs), capacity)
    found = layout.sequences.starts.tolist()
    assert found[0] == 0 and found[-1] == len(runs) * layout.tokens
    starts = [n * layout.tokens + start for n, run in enumerate(runs) for start in (0, run[0])]
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    assert {*starts, *ends} <= {*found}
    sizes = layout.sequences.starts.diff().tolist()
    assert min(sizes) > 0 and max(sizes) == layout.sequences.longest == max(lengths)


@pytest.mark.parametrize(("model_type", "tune"), [("bert", 2), ("qwen2", 2)])
def test_training_scoring_and_stacks_give_the_same_results(tmp_path, calls, monkeypatch, model_type, tune):
    """With the cached hidden states of the forward pass over the frozen layers."""
    found = context_of(model_type, tmp_path / "variable")
    in_pass = calls.total()
    specs = [spec_of(tune, *run_values, num_train_epochs=1) for run_values in RUNS[:2]]
    with_kernel = [*run_stacked(specs, found, batched=True), run(specs[0], found)]
    assert in_pass and calls.total() > in_pass
    monkeypatch.setattr(varlen, "has_kernel", lambda device: False)
    plain = context_of(model_type, tmp_path / "plain")
    expected = [run(spec, plain) for spec in specs]
    for one, other in zip(with_kernel, [*expected, expected[0]], strict=True):
        assert furthest(one, other) < 2e-4


def on_a_gpu(monkeypatch, *, capability=(8, 0)):
    """What torch says on a GPU of NVIDIA."""
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    varlen.has_kernel.cache_clear()


@pytest.fixture(autouse=True)
def devices_are_asked_again():
    yield
    for asked in (varlen.has_kernel, varlen.torch_kernel):
        if hasattr(asked, "cache_clear"):
            asked.cache_clear()


def is_possible(dtype=torch.bfloat16, device="cuda", *, heads=4, key_heads=4, size=32, window=ALL, **more):
    layout = Layout(torch.tensor([3, 5]), 5, device=torch.device(device))
    assert layout.tokens == 8
    with FakeTensorMode():
        query, key = (torch.empty(1, n, 8, size, dtype=dtype, device=device) for n in (heads, key_heads))
        mask = torch.empty(2, 1, 5, 5, dtype=torch.bool, device=device)
        mask.frostline_window = window
        return varlen.is_possible(layout, mask, query, key, key, **more)


POSSIBLE = [{}, {"dtype": torch.float16}, {"key_heads": 2}, {"window": EARLIER}, {"size": 256}, {"dropout": 0.0}]
IMPOSSIBLE = [
    {"dtype": torch.float32},
    {"device": "cpu"},
    {"dropout": 0.1},
    {"size": 20},
    {"size": 264},
    {"key_heads": 3},
    {"window": None},
    {"position_bias": 1},
    {"softcap": 50.0},
    {"s_aux": 1},
]


def test_the_kernel_is_used_where_it_can_compute_a_call(monkeypatch):
    on_a_gpu(monkeypatch)
    assert [one for one in POSSIBLE if not is_possible(**one)] == []
    assert [one for one in IMPOSSIBLE if is_possible(**one)] == []


def test_an_older_gpu_uses_the_padded_grid(monkeypatch):
    on_a_gpu(monkeypatch, capability=(7, 5))
    assert not is_possible()


@pytest.mark.parametrize("module", [None, type(sys)("varlen")])
def test_a_torch_without_the_kernel_uses_the_padded_grid(monkeypatch, module):
    on_a_gpu(monkeypatch)
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", module)
    varlen.torch_kernel.cache_clear()
    assert varlen.torch_kernel() is None and not is_possible()


def test_a_torch_without_an_argument_uses_the_padded_grid(monkeypatch):
    import torch.nn.attention.varlen as module

    monkeypatch.setattr(module, "varlen_attn", lambda query, key, value, starts, *, scale: query)
    varlen.torch_kernel.cache_clear()
    assert varlen.torch_kernel() is None


def test_a_torch_whose_key_heads_serve_one_query_head_uses_the_padded_grid_for_others(monkeypatch):
    """As torch 2.11 does."""
    import torch.nn.attention.varlen as module

    def kernel(query, key, value, starts, more_starts, longest, more_longest, *, scale, window_size):
        return query

    on_a_gpu(monkeypatch)
    monkeypatch.setattr(module, "varlen_attn", kernel)
    varlen.torch_kernel.cache_clear()
    assert is_possible() and not is_possible(key_heads=2)
    mask = torch.empty(2, 1, 5, 5, dtype=torch.bool)
    mask.frostline_window = ALL
    heads = [torch.ones(1, 4, 8, 32) for _ in range(3)]
    assert varlen.attention(Layout(torch.tensor([3, 5]), 5), mask, *heads, scale=None).shape == (1, 8, 4, 32)


def record_calls(monkeypatch, given):
    """Append the arguments of each call of torch's kernel to a list."""
    kernel = varlen.torch_kernel()

    @wraps(kernel)
    def recorded(*args, **more):
        given.append(args)
        return kernel(*args, **more)

    monkeypatch.setattr(varlen, "torch_kernel", lambda: recorded)


def on_fake(mode, x, device):
    with mode:
        return torch.empty(x.shape, dtype=x.dtype, device=device)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_the_kernel_gets_half_precision_on_the_device(monkeypatch, dtype):
    """Rotary positions return float32 for queries and keys. Fake tensors have the device of a GPU and no data."""
    on_a_gpu(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *args: True)
    fake, layout, given = FakeTensorMode(), Layout(torch.tensor([3, 5]), 5, device=torch.device("cuda")), []
    with monkeypatch.context() as patch:
        patch.setattr(packed_layout, "to_device", lambda x, device: on_fake(fake, x, device))
        assert layout.sequences.starts.device.type == "cuda"
    record_calls(monkeypatch, given)
    with fake, torch.autocast("cuda", dtype):
        query, key, value = (torch.empty(1, heads, 8, 32, device="cuda") for heads in (4, 2, 2))
        mask = torch.empty(2, 1, 5, 5, dtype=torch.bool, device="cuda")
        mask.frostline_window = ALL
        assert varlen.is_possible(layout, mask, query, key, value.to(dtype))
        out = varlen.attention(layout, mask, query, key, value.to(dtype), scale=None)
    tensors = [x for x in given[0] if isinstance(x, torch.Tensor)]
    assert len(tensors) == 5 and {x.device.type for x in tensors} == {"cuda"}
    assert {x.dtype for x in tensors[:3]} == {dtype} and out.dtype == dtype and out.shape == (1, 8, 4, 32)


@pytest.mark.parametrize(("model_type", "tune", "runs"), [("bert", 2, 2), ("llama", "full", 1)])
def test_a_step_reads_nothing_and_mixes_no_devices(tmp_path, monkeypatch, model_type, tune, runs):
    """On torch's device ``meta``. It has no autocast, so the path takes float32 here."""
    context, given = context_of(model_type, tmp_path), []
    record_calls(monkeypatch, given)
    monkeypatch.setattr(varlen, "has_kernel", lambda device: True)
    monkeypatch.setattr(varlen, "DTYPES", (torch.float32,))
    with on_stand_in(context, monkeypatch) as (on_device, watched):
        trained(on_device, [spec_of(tune, seed) for seed in range(runs)], watched, monkeypatch)
    assert given and not watched.misplaced and not watched.reads["step"]
