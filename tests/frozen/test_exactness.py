"""The exactness check on small models of every type. Each passes, or is refused for the right reason.

``tests/fast/test_last_layer.py`` tests the modules that run for the token only that the head reads.
"""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForTokenClassification

from frostline import FrostlineError
from frostline.frozen.exactness import (
    Check,
    check,
    check_lengths,
    find_head_reads,
    packed_pass_is_exact,
    stack_refusal,
    wrong_below,
)
from frostline.model.anatomy import find_layers
from frostline.model.ways import Way
from frostline.statistics.recipe import Recipe
from model.test_anatomy import REFUSED as NO_LAYERS
from model.test_anatomy import sampled
from small_models import REASONS, TAG_TYPES, TYPES, small, small_batch, small_model

PADDED = (  # exact in padded batches only: they have their own attention, or other layers also mix tokens
    *("axk2", "bloom", "deberta", "deberta-v2", "doge", "falcon", "gemma2", "gpt_neo", "gpt_oss", "gptj", "ibert"),
    *("jamba", "layoutlmv3", "luke", "markuplm", "megatron-bert", "minimax", "mpnet", "mpt", "mra", "openai-gpt"),
    *("qwen3_5", "qwen3_5_text", "qwen3_next", "rembert", "roformer", "tapas", "xmod"),
)
DEPENDS_ON_PADDING = "Its output for an example depends on the padding in the batch"
OF_OTHER_INPUT = "Something other than the hidden states passes from below the cut to the logits"  # position biases
REFUSED = {  # at every cut between two layers
    "convbert": DEPENDS_ON_PADDING,  # convolutions over the padding
    "mobilebert": DEPENDS_ON_PADDING,  # a token's input contains the embeddings of its neighbours, here those of padding
    "fnet": DEPENDS_ON_PADDING,  # a Fourier transform over text and padding
    "nystromformer": DEPENDS_ON_PADDING,  # a convolution, and landmarks that are means over neighbouring tokens
    "yoso": DEPENDS_ON_PADDING,  # its hashes contain the padding
    "lilt": "Layers above the cut need more from the layers below than hidden states",  # text and layout
}
ALL = [name for name in TYPES if name not in REASONS]
RANDOM = {"big_bird": "the same batch gives different logits"}  # its block attention is random


@pytest.mark.parametrize("model_type", sampled(ALL))
def test_every_type_is_exact_or_refused(model_type: str) -> None:
    model = small_model(model_type)
    rows = check(model, batch=small_batch(model))
    reason = (NO_LAYERS | RANDOM).get(model_type)
    if reason:
        (row,) = rows
        assert row.refused and reason in row.refused
        assert (row.recipe, row.batches, row.max_logit_difference, row.max_gradient_difference) == (None,) * 4
        return
    assert [row.recipe for row in rows] == [*map(Recipe, range(5)), "full"]
    for row in rows:
        if model_type in REFUSED and row.recipe in ("last 1", "last 2", "last 3"):
            assert row.batches is None and row.refused and REFUSED[model_type] in row.refused
        elif row.refused:
            assert model_type in REFUSED and row.recipe == "head only" and REFUSED[model_type] in row.refused
        else:
            assert max(row.max_logit_difference, row.max_gradient_difference) < 1e-5
    batches = [row.batches for row in rows]
    if model_type not in REFUSED:
        assert batches == ["packed"] * 6 or (model_type in PADDED and batches[-1] == "padded")


TAGS_REFUSED = {**REFUSED, "funnel": DEPENDS_ON_PADDING, "mt5": OF_OTHER_INPUT, "t5": OF_OTHER_INPUT}


@pytest.mark.parametrize(
    "model_type", sampled([name for name in TAG_TYPES if name not in REASONS], ("albert", "fnet", "llama", "mpnet"))
)
def test_every_type_with_a_head_for_tags_is_exact_or_refused(model_type: str) -> None:
    model = small_model(model_type, head=AutoModelForTokenClassification)
    rows = check(model, batch=small_batch(model))
    refused = [row.refused for row in rows if row.refused]
    reason = (NO_LAYERS | RANDOM | TAGS_REFUSED).get(model_type)
    assert bool(refused) == (reason is not None) and all(reason in sentence for sentence in refused)
    for row in rows:
        assert row.refused or max(row.max_logit_difference, row.max_gradient_difference) < 1e-5


@pytest.mark.parametrize("model_type", ["canine", "xlnet"])
def test_a_configuration_without_vocabulary_or_positions(model_type: str) -> None:
    """CANINE reads characters and has no vocabulary, and XLNet has no limit on positions. The check makes a batch for both."""
    (row,) = check(small_model(model_type))
    assert row.refused and NO_LAYERS[model_type] in row.refused


@pytest.mark.parametrize("random", [False, True])
def test_a_model_whose_output_depends_on_more_than_its_input_is_refused(random: bool) -> None:
    """The output depends on the previous batch, or is random."""
    model, seen = small_model("bert"), [0.0]

    def remember(module, args, out):
        out = out + (torch.rand(()) if random else seen[0])
        seen[0] = out.shape[0] + float(out[0, 0]) * 0
        return out

    model.classifier.register_forward_hook(remember)
    (row,) = check(model)
    assert row.refused and "the same batch gives different logits" in row.refused


def test_a_model_that_is_not_of_transformers_is_an_error() -> None:
    with pytest.raises(FrostlineError, match="Linear is not a model of transformers"):
        check(nn.Linear(2, 2))


def state_of(model):
    return {
        "weights": [p.detach().numpy().tobytes() for p in model.state_dict().values()],
        "modes": [module.training for module in model.modules()],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "gradients": [p.grad for p in model.parameters()],
        "attention": model.config._attn_implementation,
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        "patched": ["forward" in vars(m) or hasattr(m, "frostline_packing") for m in model.modules()],
        "random state": torch.get_rng_state().tolist(),
    }


@pytest.mark.parametrize("model_type", ["gpt2", "lilt", "fnet", "xlm"])  # exact, or refused for one of three reasons
def test_the_check_does_not_change_the_model(model_type: str) -> None:
    model = small_model(model_type)
    for n, module in enumerate(model.modules()):
        module.training = n % 3 == 0
    for n, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(n % 2 == 0)
    before = state_of(model)
    check(model, tune=[0, 2, "full"])
    after = state_of(model)
    for name, value in before.items():
        assert after[name] == value, name


def test_only_the_given_ks_are_checked() -> None:
    rows = check(small_model("bert"), tune=["full", 2])
    assert [row.recipe for row in rows] == ["full", "last 2"] and all(isinstance(row, Check) for row in rows)
    (row,) = check(small_model("bert"), tune=[9])
    assert row.refused and "the model has 4" in row.refused


@pytest.mark.parametrize("modules, layers", [(["layer.1", "pooler"], 3), (["pooler"], 0), (["embeddings"], "full")])
def test_named_parts_are_checked_too(modules: list[str], layers: int | str) -> None:
    *_, row = check(small_model("bert"), tune=[], tune_modules=modules)
    assert (row.recipe, row.batches, row.refused) == (Recipe(layers), "packed", None)
    assert max(row.max_logit_difference, row.max_gradient_difference) < 1e-5


def test_a_named_part_that_does_not_exist_is_refused_with_similar_names() -> None:
    (row,) = check(small_model("bert"), tune=[], tune_modules=["layer.9"])
    assert "the nearest are layer." in row.refused


def test_examples_have_different_lengths_and_exceed_the_sliding_window() -> None:
    model = small_model("mistral")
    lengths = check_lengths(model)
    assert lengths[0] > model.config.sliding_window and len(set(lengths)) == 4


def refusals(model: Any, ks: Sequence[int | str] | None = None) -> dict[int | str, str | None]:
    """By k, or ``full``."""
    checks = check(model, tune=ks)
    return {("full" if row.recipe == "full" else row.recipe.k): row.refused for row in checks}


def skip_connection(model: Any, seen: dict[str, Any]) -> None:
    """The pooler adds the output of the first layer."""
    model.bert.encoder.layer[0].register_forward_hook(lambda module, args, out: seen.update(hidden=out))
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + 0.01 * seen["hidden"][:, 0])


def lower_weights(model: Any, seen: dict[str, Any]) -> None:
    """The pooler reads a weight of the second layer. Only NaN in the lower weights reveals this."""
    weight = model.bert.encoder.layer[1].output.dense.weight
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + 0.01 * weight[:, 0])


def mean_of_embeddings(model: Any, seen: dict[str, Any]) -> None:
    """At k = 0 the head gets one token per example, and the embeddings of the other tokens are missing."""
    model.bert.embeddings.register_forward_hook(lambda module, args, out: seen.update(mean=out.mean(1)))
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + 0.01 * seen["mean"])


@pytest.mark.parametrize(
    "change, wrong", [(skip_connection, (0, 1, 2, 3)), (lower_weights, (0, 1, 2)), (mean_of_embeddings, (0, 1, 2, 3))]
)
def test_what_passes_around_the_cut_is_found(change: Any, wrong: tuple[int, ...]) -> None:
    model = small_model("bert")
    change(model, {})
    found = refusals(model)
    assert [k for k, refused in found.items() if refused] == list(wrong)
    assert change is mean_of_embeddings or all(
        OF_OTHER_INPUT in (found[k] or "") for k in wrong
    )  # that is of padding, too


def test_layers_whose_output_depends_on_padding_are_refused() -> None:
    model = small_model("bert")
    for layer in model.bert.encoder.layer:
        layer.output.register_forward_hook(lambda module, args, out: out + 0.1 * out.mean(1, keepdim=True))
    for k, refused in refusals(model, [1, 2, 3]).items():
        assert DEPENDS_ON_PADDING in (refused or ""), k


def test_a_gradient_that_is_nan_is_refused() -> None:
    model = small_model("bert")
    bias = model.bert.pooler.dense.bias
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + (bias * 0).sqrt().sum())
    for row in check(model, tune=[0, 2, "full"]):
        assert row.refused and row.batches is None and math.isnan(row.max_gradient_difference or 0.0)
        assert row.max_logit_difference is not None and row.max_logit_difference < 1e-5


def test_max_uncut_layers_limits_the_compared_gradients() -> None:
    model = small_model("bert")
    compared = Way(tune=1).parameters(find_layers(model))
    model.register_forward_pre_hook(
        lambda module, args: seen.add(frozenset(n for n, p in module.named_parameters() if p.requires_grad))
    )
    seen = set[frozenset[str]]()
    (row,) = check(model, tune=["full"], max_uncut_layers=1)
    assert row.recipe == "full" and row.batches == "packed" and (row.max_gradient_difference or 0.0) < 1e-5
    assert compared in seen and seen <= {compared, frozenset(dict(model.named_parameters()))}


@pytest.mark.parametrize(
    "model_type, reads",
    [("distilbert", "first"), ("deberta-v2", "first"), ("gpt2", "last"), ("opt", "last"), ("gte", "first")],
)
def test_the_token_that_the_head_reads(model_type: str, reads: str) -> None:
    model, batch, anatomy = small(model_type)
    assert find_head_reads(model, anatomy, batch) == reads


def test_a_head_with_mean_pooling_reads_all_tokens() -> None:
    model = small_model("modernbert")
    model.config.classifier_pooling = "mean"
    batch = small_batch(model)
    assert find_head_reads(model, find_layers(model, batch), batch) == "all"
    rows = check(model, tune=[0, 1])
    assert [row.refused for row in rows] == [None, None]


def test_a_model_that_cannot_be_packed_is_found() -> None:
    model = small_model("bert")
    anatomy = find_layers(model)
    assert packed_pass_is_exact(model, anatomy)
    dense = model.bert.encoder.layer[1].output.dense
    dense.register_forward_pre_hook(lambda module, args: (args[0] + args[0].mean(1, keepdim=True),))
    assert not packed_pass_is_exact(model, anatomy)  # the module mixes tokens
    dense._forward_pre_hooks.clear()
    model.set_attn_implementation("eager")
    assert not packed_pass_is_exact(model, anatomy)


DIFFER = "In a stack, logits differ by "


def refusal_of(model_type: str, k: Recipe, **options: Any) -> str | None:
    model, batch, anatomy = small(model_type)
    batches = [batch, small_batch(model, (11, 36, 5, 29), seed=1)]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    options = {"packed": False, "batched": True, **options}
    cut = anatomy.count - k if isinstance(k, int) else None
    refusal = stack_refusal(model, anatomy, Way(tune=k).parameters(anatomy), cut, batches=batches, **options)
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in model.named_parameters())
    assert not any("forward" in vars(module) for module in model.modules())
    return refusal


@pytest.mark.parametrize("model_type", ["mixtral", "opt", "gemma2"])
def test_runs_of_most_types_can_be_stacked(model_type: str) -> None:
    """With experts, with norms that add one to their weights, and with parameters that other modules read."""
    assert [refusal_of(model_type, k) for k in (0, 2)] == [None, None]


def test_types_whose_runs_cannot_be_stacked() -> None:
    together = "Its modules cannot compute the examples of several runs together"
    assert refusal_of("bert", 1, packed=True) is refusal_of("deberta-v2", 0) is None
    assert (refusal_of("deberta-v2", 1) or "").startswith(f"{together} (RuntimeError: ")
    assert (refusal_of("biogpt", "full", packed=True) or "").startswith(together)
    assert refusal_of("mpnet", 2) is None  # position biases that all layers share belong to the embeddings
    assert (refusal_of("mpnet", "full") or "").startswith(DIFFER)


def test_the_check_makes_its_own_examples() -> None:
    model = small_model("llama")
    anatomy = find_layers(model)
    for cut in (1, 2):  # cut 1: one frozen layer runs
        assert stack_refusal(model, anatomy, Way(tune=2).parameters(anatomy), cut, packed=True, batched=True) is None


def test_weights_below_the_cut_are_nan_and_restored() -> None:
    model = small_model("llama", layers=4)
    anatomy, table = find_layers(model), model.get_input_embeddings().weight
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with pytest.raises(ZeroDivisionError), wrong_below(model, anatomy, 2):
        lower = {name for name, place in anatomy.places.items() if place in ("layer 0", "layer 1")}
        for name, p in model.named_parameters():
            assert bool(p.isnan().all()) == (name in lower or p is table), name
        raise ZeroDivisionError
    assert all(p.requires_grad and torch.equal(p, before[name]) for name, p in model.named_parameters())
