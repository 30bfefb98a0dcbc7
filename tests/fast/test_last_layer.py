"""The last layer computed for the head's token only, compared with the whole last layer."""

import pytest
import torch
import torch.nn.functional as F

from frostline.fast.last_layer import HeadTokenPart
from frostline.frozen.cut import cut_at
from frostline.frozen.exactness import check, find_head_reads, find_head_token_part
from frostline.model.anatomy import find_layers
from frostline.model.packing import packable
from frostline.model.ways import Way
from frozen.passes import largest_difference
from small_models import small_batch, small_model

L = 4
HEAD_TOKEN_MODULES = {
    "bert": {"attention.self.query", "attention.output", "intermediate", "output"},
    "distilbert": {"attention.q_lin", "attention.out_lin", "sa_layer_norm", "ffn", "output_layer_norm"},
    "deberta-v2": {"attention.output", "intermediate", "output"},
    "modernbert": {"attn.Wo", "attn.out_drop", "mlp_norm", "mlp"},
    "gpt2": {"attn.c_proj", "attn.resid_dropout", "ln_2", "mlp"},
    "llama": {"self_attn.q_proj", "self_attn.o_proj", "post_attention_layernorm", "mlp"},
}


@pytest.mark.parametrize(
    ("model_type", "cut", "path"),
    [
        *((model_type, *how) for model_type in HEAD_TOKEN_MODULES for how in ((None, "packed"), (L - 1, "padded"))),
        *((model_type, *how) for model_type in ("bert", "gpt2") for how in ((2, "padded"), (L - 1, "packed"))),
    ],
)
def test_modules_for_the_heads_token_give_the_logits_and_gradients_of_the_whole_layer(model_type, cut, path):
    model = small_model(model_type)
    batch = small_batch(model)
    anatomy = find_layers(model, batch)
    head_token = find_head_token_part(model, anatomy, batch, find_head_reads(model, anatomy, batch))
    assert set(head_token.modules) == HEAD_TOKEN_MODULES[model_type]
    names = Way(tune="full" if cut is None else L - cut).parameters(anatomy)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    trained = [p for p in model.parameters() if p.requires_grad]
    target = torch.arange(len(batch["input_ids"])) % 3
    seen = {}
    with torch.no_grad(), cut_at(model, anatomy, None, tap=seen.__setitem__) as whole:
        whole(batch)
    states = None if cut is None else seen[cut][batch["attention_mask"].bool()][None]
    truth = model(**batch).logits
    gradients = torch.autograd.grad(F.cross_entropy(truth, target), trained)
    with packable(model) as packing:
        if path == "packed" and packing is None:
            pytest.skip("a type that cannot be packed")
        with cut_at(model, anatomy, cut, packing=packing if path == "packed" else None, head_token=head_token) as upper:
            logits = upper(batch, states)
            head_token_gradients = torch.autograd.grad(F.cross_entropy(logits, target), trained)
            assert upper.at.head_index is None and (packing is None or packing.head_index is None)
    assert not any("forward" in vars(module) for module in model.modules())
    assert largest_difference([logits], [truth]) < 3e-6  # sums have another order, which depends on the processor
    assert largest_difference(head_token_gradients, gradients) < 3e-6


def test_a_module_takes_the_rows_of_the_module_before_it_unless_something_has_changed_them():
    layer, index = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Identity()), torch.tensor([0, 4])
    x = torch.randn(1, 6, 3)
    first, second = HeadTokenPart("first", ("0", "1"), None).forwards(layer, lambda: index, 1).values()
    whole = first(x)
    assert torch.equal(whole[0, index], x[0, index]) and whole.count_nonzero() == 6
    assert torch.equal(second(whole), whole)
    whole += 1
    assert torch.equal(second(whole)[0, index], x[0, index] + 1)
    index = torch.tensor([1, 2])
    assert torch.equal(second(whole)[0, index], whole[0, index])


def test_a_head_that_reads_every_token_needs_the_whole_layer():
    model = small_model("bert")
    batch = small_batch(model)
    assert find_head_token_part(model, find_layers(model, batch), batch, "full") is None


def test_the_exactness_check_rejects_a_wrong_list_of_modules(monkeypatch):
    """Keys for the head's token only would change the logits. The check then uses the whole layer."""
    wrong = HeadTokenPart("first", ("attention.self.key",), 0)
    model = small_model("bert")
    monkeypatch.setattr("frostline.frozen.exactness.find_head_token_part", lambda *given: wrong)
    rows = check(model, tune=[0, 1, "full"], batch=small_batch(model))
    assert [row.head_token for row in rows] == [None, None, None]  # at k = 0 the forward pass would run it
    assert all(row.batches == "packed" and row.max_logit_difference < 1e-6 for row in rows)
