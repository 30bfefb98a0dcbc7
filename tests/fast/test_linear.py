"""Linear layers on weights kept ready, against torch's own."""

import mmap
import os
import platform

import numpy as np
import pytest
import torch
from torch import nn

from frostline.fast import linear, mapped_pages
from frostline.fast.linear import _lays_out, prepared_weights
from frostline.fast.optimizer import AdamW, clear_gradients, gradient_of
from frostline.model.device import Machine

BF16 = Machine(torch.device("cpu"), "bfloat16")


def outputs_and_gradients(module, x):
    x = x.clone().requires_grad_()
    with BF16.autocast():
        out = module(x)
    out.float().square().sum().backward()
    gradients = [x.grad, *(gradient for p in module.parameters() if (gradient := gradient_of(p)) is not None)]
    clear_gradients(module.parameters())
    return out.detach(), gradients


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_what_autocast_gives(bias):
    torch.manual_seed(0)
    module, x = nn.Linear(24, 40, bias=bias), torch.randn(2, 7, 24)
    out, gradients = outputs_and_gradients(module, x)
    with prepared_weights(module, BF16.dtype):
        cast, cast_gradients = outputs_and_gradients(module, x)
    assert cast.dtype == out.dtype == torch.bfloat16
    assert torch.equal(cast, out)
    for mine, theirs in zip(cast_gradients, gradients, strict=True):
        assert mine.dtype == theirs.dtype == torch.float32
        assert torch.equal(mine, theirs)


def test_an_input_of_several_layers_is_cast_once_and_anew_when_it_changes():
    torch.manual_seed(0)
    three, x = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), torch.randn(5, 8, requires_grad=True)
    with prepared_weights(three, BF16.dtype), BF16.autocast():
        seen = [module(x).grad_fn.saved_tensors[0] for module in three]
        assert len({short.data_ptr() for short in seen}) == 1 and torch.equal(seen[0], x.detach().bfloat16())
        with torch.no_grad():
            x *= 2
        assert torch.equal(three[0](x).grad_fn.saved_tensors[0], x.detach().bfloat16())


def test_what_is_frozen_gets_no_gradient():
    module, x = nn.Linear(4, 4), torch.randn(3, 4)
    module.weight.requires_grad_(False)
    with prepared_weights(module, BF16.dtype):
        outputs_and_gradients(module, x)  # backward through it
        with BF16.autocast():
            module(x).float().sum().backward()
    assert gradient_of(module.weight) is None
    assert torch.equal(module.bias.grad, torch.full((4,), 3.0))


def test_a_weight_that_is_made_of_others_hands_its_gradient_on():
    module, x, own = nn.Linear(8, 8), torch.randn(3, 8), torch.randn(8, 8, requires_grad=True)
    del module.weight
    with prepared_weights(module, BF16.dtype), BF16.autocast():
        module.weight = own * 2
        module(x).float().sum().backward()
    assert own.grad is not None and own.grad.dtype == torch.float32 and own.grad.any()


@pytest.mark.parametrize("change", ["step", "copy"])
def test_a_copy_is_as_new_as_its_weight(change):
    torch.manual_seed(0)
    module, x = nn.Linear(8, 8), torch.randn(3, 8)
    with prepared_weights(module, BF16.dtype), BF16.autocast():
        before = module(x).detach()
        if change == "step":
            module(x).float().sum().backward()
            AdamW([{"params": [*module.parameters()], "lr": 0.5}], betas=(0.9, 0.999), eps=1e-8).step()
        else:
            with torch.no_grad():
                module.weight.copy_(-module.weight)
        after = module(x).detach()
    with BF16.autocast():
        assert torch.equal(after, module(x))
    assert not torch.equal(after, before)


def test_without_autocast_it_is_fp32():
    module, x = nn.Linear(4, 4), torch.randn(3, 4)
    with prepared_weights(module, BF16.dtype):
        assert torch.equal(module(x), nn.functional.linear(x, module.weight, module.bias))


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 24), (7, 24), (2, 7, 24)])
def test_scoring_is_what_torch_gives(precision, bias, shape):
    torch.manual_seed(0)
    machine = Machine(torch.device("cpu"), precision)
    module, x = nn.Linear(24, 40, bias=bias), torch.randn(shape)
    with torch.no_grad(), machine.autocast():
        wanted = module(x)
        with prepared_weights(module, machine.dtype):
            given = module(x)
    assert given.dtype == wanted.dtype == machine.dtype and given.shape == wanted.shape
    torch.testing.assert_close(given, wanted)


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_scoring_takes_rows_that_are_not_side_by_side(precision):
    """As poolers do, of the first tokens."""
    torch.manual_seed(0)
    machine = Machine(torch.device("cpu"), precision)
    module, x = nn.Linear(24, 40), torch.randn(5, 7, 24)
    rtol, atol = (0.016, 2e-3) if precision == "bfloat16" else (1.3e-6, 1e-6)  # sums of terms near 1
    with torch.no_grad(), machine.autocast(), prepared_weights(module, machine.dtype):
        torch.testing.assert_close(module(x[:, 0]), module(x[:, 0].contiguous()), rtol=rtol, atol=atol)
        torch.testing.assert_close(module(x.transpose(0, 1)), module(x).transpose(0, 1), rtol=rtol, atol=atol)


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_training_and_scoring_take_turns_and_see_the_same_weights(precision):
    torch.manual_seed(0)
    machine = Machine(torch.device("cpu"), precision)
    module, x = nn.Linear(24, 40), torch.randn(7, 24)
    with prepared_weights(module, machine.dtype), machine.autocast():
        for _ in range(3):
            learned = module(x)
            learned.float().sum().backward()
            with torch.no_grad():
                torch.testing.assert_close(module(x), learned)
                module.weight.sub_(gradient_of(module.weight))
                module.bias.sub_(0.1)
                scored = module(x)
            torch.testing.assert_close(module(x), scored)
            assert not torch.equal(scored, learned)


@pytest.mark.skipif(not _lays_out(torch.bfloat16), reason="oneDNN has no products in bf16 on this processor")
def test_only_one_form_of_a_weight_is_held():
    module, x = nn.Linear(24, 40), torch.randn(7, 24)
    with prepared_weights(module, BF16.dtype), BF16.autocast():
        kept = module.forward
        module(x)
        copy = kept.cached[0].numbers
        with torch.no_grad():
            module(x)
        assert kept.laid_out and kept.cached[0].numbers.layout != copy.layout
        module(x)
        assert not kept.laid_out and len(kept.cached) == 2


def test_a_torch_without_the_layouts_scores_all_the_same(monkeypatch):
    monkeypatch.setattr(linear, "_lays_out", lambda dtype: False)
    module, x = nn.Linear(24, 40), torch.randn(7, 24)
    with torch.no_grad(), BF16.autocast():
        wanted = module(x)
        with prepared_weights(module, BF16.dtype):
            assert torch.equal(module(x), wanted)


def test_a_processor_without_products_in_bf16_lays_none_out(monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    linear._lays_out.cache_clear()
    try:
        assert not linear._lays_out(torch.bfloat16) and linear._lays_out(torch.float32)
    finally:
        linear._lays_out.cache_clear()


def test_in_fp32_training_is_torchs_own():
    module, x = nn.Linear(4, 4), torch.randn(3, 4)
    with prepared_weights(module, torch.float32):
        assert torch.equal(module(x), nn.functional.linear(x, module.weight, module.bias))
        assert module.forward.cached == []
    assert "forward" not in vars(module)


@pytest.mark.skipif(
    not _lays_out(torch.float32) or platform.libc_ver()[0] != "glibc" or not os.access(mapped_pages.PAGEMAP, os.R_OK),
    reason="oneDNN lays no weights out, or the system is not asked",
)
def test_what_is_mapped_from_a_file_is_let_go_while_there_is_a_copy_of_it(tmp_path):
    """Values that were written to are no longer the file's, and stay."""
    np.save(tmp_path / "weight.npy", np.random.default_rng(0).standard_normal((256, 256), np.float32))
    module, x = nn.Linear(256, 256), torch.randn(5, 256)
    module.weight.data = torch.from_numpy(np.load(tmp_path / "weight.npy", mmap_mode="c"))
    with torch.no_grad():
        module.weight[0] = 1.0
        before = module(x)
        with (
            mapped_pages.PAGEMAP.open("rb", buffering=0) as pages,
            prepared_weights(module, torch.float32),
        ):
            first = module.weight.data_ptr() // mmap.PAGESIZE
            last = (module.weight.data_ptr() + module.weight.nbytes) // mmap.PAGESIZE
            assert mapped_pages.mapped_ranges(pages, first, last)
            torch.testing.assert_close(module(x), before, rtol=1e-4, atol=1e-4)
            assert not mapped_pages.mapped_ranges(pages, first, last)
    assert (module.weight[0] == 1).all() and torch.equal(module(x), before)
