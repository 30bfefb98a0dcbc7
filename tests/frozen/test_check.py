"""The check on small models of every type: each is equal, packed or padded, or refused for a true reason."""

import math

import pytest
import torch
from model.test_anatomy import REFUSED as NO_LAYERS
from torch import nn

from frostline import FrostlineError
from frostline.frozen import check as checking
from frostline.frozen.check import Check, check, head_reads, need_for, stack_refusal
from frostline.frozen.forward_pass import Need, Pass
from frostline.model import stacking
from frostline.model.anatomy import find_layers
from small_models import REASONS, TYPES, small_batch, small_model

L = 4
# Equal in padded batches only: their attention is their own, or layers beside attention look along the text.
PADDED = [
    "axk2",
    "bloom",
    "deberta",
    "deberta-v2",
    "doge",
    "falcon",
    "gemma2",
    "gpt_neo",
    "gpt_oss",
    "gptj",
    "ibert",
    "jamba",
    "layoutlmv3",
    "luke",
    "markuplm",
    "megatron-bert",
    "minimax",
    "mpnet",
    "mpt",
    "mra",
    "openai-gpt",
    "qwen3_5",
    "qwen3_5_text",
    "qwen3_next",
    "rembert",
    "roformer",
    "tapas",
    "xmod",
]
NOT_ALONE = "What it computes for a text depends on the padding beside it"
REFUSED = {  # at every cut between two layers; with nothing cut there is nothing to refuse
    "convbert": NOT_ALONE,  # convolutions over the padding
    "fnet": NOT_ALONE,  # a Fourier transform of text and padding
    "nystromformer": NOT_ALONE,  # a convolution, and landmarks are means of neighbours
    "yoso": NOT_ALONE,  # hashes that padding is in
    "lilt": "The layers below the cut hand on more than hidden states",  # text and layout
}
ALL = [name for name in TYPES if name not in REASONS]
RANDOM = {"big_bird": "the same batch gives other logits"}  # which blocks attend to which is drawn anew
SAMPLE = [
    "albert",
    "bart",
    "bert",
    "big_bird",
    "bloom",
    "canine",
    "deberta-v2",
    "distilbert",
    "electra",
    "fnet",
    "funnel",
    "gemma3",
    "gpt2",
    "gpt_neo",
    "gpt_oss",
    "jamba",
    "layoutlmv3",
    "lilt",
    "llama",
    "mistral",
    "mixtral",
    "modernbert",
    "mpnet",
    "qwen2_moe",
    "qwen3_next",
    "roberta",
    "tapas",
    "xlm",
    "zamba",
]


@pytest.mark.parametrize(
    "model_type", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.every) for name in ALL]
)
def test_equal_or_refused(model_type):
    model = small_model(model_type)
    rows = check(model, batch=small_batch(model))
    reason = (NO_LAYERS | RANDOM).get(model_type)
    if reason:
        (row,) = rows
        assert row.refused and reason in row.refused
        assert (row.tuned_layers, row.path, row.max_logit_difference, row.max_gradient_difference) == (None,) * 4
        return
    assert [row.tuned_layers for row in rows] == [0, 1, 2, 3, 4, None]
    for row in rows:
        if model_type in REFUSED and row.tuned_layers in (1, 2, 3):
            assert row.path is None and row.refused and REFUSED[model_type] in row.refused
        elif row.refused:
            assert model_type in REFUSED and row.tuned_layers == 0 and REFUSED[model_type] in row.refused
        else:
            assert max(row.max_logit_difference, row.max_gradient_difference) < 1e-5
    paths = [row.path for row in rows]
    if model_type not in REFUSED:
        assert paths == ["packed"] * 6 or (model_type in PADDED and paths[-1] == "padded")


def test_the_tables_hold_every_type_once():
    tables = [*NO_LAYERS, *RANDOM, *REFUSED, *PADDED]
    assert len(tables) == len(set(tables)) and set(tables) < set(ALL) and set(SAMPLE) < set(ALL)


def refusals(model, ks=None):
    rows = check(model, tuned_layers=ks)
    return {row.tuned_layers: row.refused for row in rows}


SOMETHING_ELSE = "Something of the layers below the cut other than the hidden states reaches the logits"


def test_a_way_around_the_hidden_states_is_refused():
    """A pooler that adds what the first layer computed."""
    model, seen = small_model("bert"), {}
    model.bert.encoder.layer[0].register_forward_hook(lambda module, args, out: seen.update(hidden=out))
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + 0.01 * seen["hidden"][:, 0])
    found = refusals(model)
    assert found.pop(4) is None and found.pop(None) is None  # nothing is cut
    for k in range(4):
        assert found[k] and SOMETHING_ELSE in found[k], k


def test_weights_of_a_lower_layer_in_the_head_are_refused():
    """Only the disturbance shows them: the cut leaves the weights where they are."""
    model = small_model("bert")
    weight = model.bert.encoder.layer[1].output.dense.weight
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + 0.01 * weight[:, 0])
    for k, refused in refusals(model).items():
        assert (refused is None) == (k in (3, 4, None)), k  # from 3 on that layer is not below the cut
        assert refused is None or SOMETHING_ELSE in refused


def test_what_is_taken_from_all_embeddings_is_refused_where_one_token_is_kept():
    """The table of words is not there below a cut, and at k = 0 the head is given one token."""
    model, seen = small_model("bert"), {}
    model.bert.embeddings.register_forward_hook(lambda module, args, out: seen.update(mean=out.mean(1)))
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + 0.01 * seen["mean"])
    assert refusals(model, [0])[0]


def test_uncut_the_gradients_of_the_last_layers_may_do(monkeypatch):
    model, compared = small_model("bert"), []
    prove = checking._Trial.check
    monkeypatch.setattr(
        checking._Trial, "check", lambda self, k, names: compared.append(names) or prove(self, k, names)
    )
    (row,) = check(model, tuned_layers=[None], uncut_trains=1)
    assert row.tuned_layers is None and row.path == "packed" and row.max_gradient_difference < 1e-5
    assert compared == [find_layers(model).tuned(1)]


def test_layers_that_mix_in_padding_are_refused():
    model = small_model("bert")
    for layer in model.bert.encoder.layer:
        layer.output.register_forward_hook(lambda module, args, out: out + 0.1 * out.mean(1, keepdim=True))
    found = refusals(model)
    for k in (1, 2, 3):
        assert found[k] and NOT_ALONE in found[k]


def test_a_gradient_that_is_not_a_number_is_not_equal():
    model = small_model("bert")
    bias = model.bert.pooler.dense.bias
    model.bert.pooler.register_forward_hook(lambda module, args, out: out + (bias * 0).sqrt().sum())
    for row in check(model, tuned_layers=[0, 2, None]):
        assert row.refused and row.path is None and math.isnan(row.max_gradient_difference)
        assert row.max_logit_difference < 1e-5


@pytest.mark.parametrize("memory", ["of the batch before", "of chance"])
def test_a_forward_that_is_no_function_of_its_input_is_refused(memory):
    model, seen = small_model("bert"), [0.0]

    def remember(module, args, out):
        out = out + (seen[0] if memory == "of the batch before" else torch.rand(()))
        seen[0] = out.shape[0] + float(out[0, 0]) * 0
        return out

    model.classifier.register_forward_hook(remember)
    (row,) = check(model)
    assert row.refused and "the same batch gives other logits" in row.refused


def test_no_model_of_transformers():
    with pytest.raises(FrostlineError, match="Linear is no model of transformers"):
        check(nn.Linear(2, 2))


def state_of(model):
    return {
        "weights": [p.detach().numpy().tobytes() for p in model.state_dict().values()],
        "modes": [module.training for module in model.modules()],
        "wants": [p.requires_grad for p in model.parameters()],
        "gradients": [p.grad for p in model.parameters()],
        "attention": model.config._attn_implementation,
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        "patched": ["forward" in vars(m) or hasattr(m, "frostline_packing") for m in model.modules()],
        "chance": torch.get_rng_state().tolist(),
    }


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "lilt", "fnet", "xlm"])  # equal, and refused in three ways
def test_the_model_is_left_as_it_was(model_type):
    model = small_model(model_type)
    for n, module in enumerate(model.modules()):
        module.training = n % 3 == 0
    for n, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(n % 2 == 0)
    before = state_of(model)
    check(model)
    after = state_of(model)
    for name, value in before.items():
        assert after[name] == value, name


def test_only_the_ks_that_are_asked_for():
    rows = check(small_model("bert"), tuned_layers=[None, 2])
    assert [row.tuned_layers for row in rows] == [None, 2] and all(isinstance(row, Check) for row in rows)
    (row,) = check(small_model("bert"), tuned_layers=[9])
    assert row.refused and "the model has 4" in row.refused


@pytest.mark.parametrize("modules, layers", [(["layer.1", "pooler"], 3), (["pooler"], 0), (["embeddings"], None)])
def test_named_parts_are_proven_too(modules, layers):
    *_, row = check(small_model("bert"), tuned_layers=[1], tune_modules=modules)
    assert (row.tuned_layers, row.path, row.refused) == (layers, "packed", None)
    assert max(row.max_logit_difference, row.max_gradient_difference) < 1e-5
    (wrong,) = check(small_model("bert"), tuned_layers=[], tune_modules=["layer.9"])
    assert "the nearest are layer." in wrong.refused


@pytest.mark.parametrize("lengths, shape", [(None, (4, 40)), ((9, 5), (2, 9))])
def test_texts_are_ragged_and_go_beyond_the_window(lengths, shape):
    model, seen = small_model("mistral"), []
    assert model.config.sliding_window < 40
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["attention_mask"]), with_kwargs=True
    )
    check(model, tuned_layers=[1], lengths=lengths)
    assert seen[0].shape == shape and len(set(seen[0].sum(1).tolist())) == shape[0]


@pytest.mark.parametrize(
    "model_type, reads",
    [
        ("bert", "first"),
        ("roberta", "first"),
        ("distilbert", "first"),
        ("deberta-v2", "first"),
        ("modernbert", "first"),
        ("gpt2", "last"),
        ("llama", "last"),
        ("opt", "last"),
        ("gte", "first"),
    ],
)
def test_head_reads(model_type, reads):
    model = small_model(model_type)
    batch = small_batch(model)
    assert head_reads(model, find_layers(model, batch), batch) == reads


def test_a_head_that_takes_the_mean_reads_all():
    model = small_model("modernbert")
    model.config.classifier_pooling = "mean"
    batch = small_batch(model)
    assert head_reads(model, find_layers(model, batch), batch) == "all"
    rows = check(model, tuned_layers=[0, 1])
    assert [row.refused for row in rows] == [None, None]


@pytest.mark.parametrize(
    "cuts, reads, need",
    [
        ((4, 2, 0), "first", Need((0, 2), head=True)),
        ((4, 2, 2), "last", Need((2,), head=True)),
        ((4, 2), "all", Need((2, 4), head=False)),
        ((3, 1), "first", Need((1, 3), head=False)),
        ((4,), "first", Need((), head=True)),
        ((), "first", Need((), head=False)),
    ],
)
def test_need_for(cuts, reads, need):
    assert need_for(cuts, find_layers(small_model("bert")), reads) == need


def refusal_of(model_type, k, **how):
    model = small_model(model_type)
    batches = [small_batch(model), small_batch(model, (11, 36, 5, 29), seed=1)]
    anatomy = find_layers(model, batches[0])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    how = {"packed": False, "as_one": True, **how}
    cut = None if k is None else anatomy.count - k
    said = stack_refusal(model, anatomy, anatomy.tuned(k), cut, batches=batches, **how)
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in model.named_parameters())
    assert not any("forward" in vars(module) for module in model.modules())
    return said


@pytest.mark.parametrize("model_type", ["mixtral", "opt", "gemma2", "qwen3_next", "gpt_oss"])
def test_runs_of_most_types_can_be_trained_as_one(model_type):
    """Experts, norms that add one to their weights, parameters that a module reads from another, or of a whole attention."""
    assert [refusal_of(model_type, k) for k in (0, 2)] == [None, None]


def test_types_whose_runs_cannot_be_trained_as_one():
    assert refusal_of("deberta-v2", 0) is None
    assert refusal_of("deberta-v2", 1).startswith("Its modules do not take the rows of several runs (RuntimeError: ")
    assert refusal_of("biogpt", None, packed=True).startswith("Its modules do not take")
    assert refusal_of("mpnet", 2) is None  # positions that all layers share lie with the embeddings
    assert refusal_of("mpnet", None).startswith("Stacked, logits differ by ")


def test_runs_that_share_a_weight_are_found_out(monkeypatch):
    assert refusal_of("bert", 1, packed=True) is None

    def of_the_first(module, whole, x):
        return right(module, {leaf: p[:1].expand_as(p) for leaf, p in whole.items()}, x)

    right = stacking._product
    monkeypatch.setattr(stacking, "_product", of_the_first)
    assert refusal_of("bert", 1, packed=True).startswith("Stacked, logits differ by ")
    assert refusal_of("bert", 1, packed=True, as_one=False) is None
    own = stacking._Stack.parameter
    monkeypatch.setattr(stacking._Stack, "parameter", lambda self, run, name: own(self, run, name).detach())
    assert refusal_of("bert", 1, as_one=False) is not None


def test_a_stack_is_tried_on_texts_of_its_own_making():
    model = small_model("llama")
    anatomy = find_layers(model)
    for cut in (1, 2):  # and with a frozen layer that runs
        assert stack_refusal(model, anatomy, anatomy.tuned(2), cut, packed=True, as_one=True) is None


@pytest.mark.parametrize("name", ["bert", "deberta"])
def test_the_proof_computes_few_texts_and_little_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, batches = [], Pass.batches
    monkeypatch.setattr(
        Pass, "batches", lambda self, *given: seen.extend(batches(self, *given)) or batches(self, *given)
    )
    assert not check(small_model(name), tuned_layers=[1], lengths=[23, 17, 9])[0].refused
    assert seen and max(batch.room or batch.texts * batch.padded[0] for batch in seen) <= 2 * (23 + 17 + 9 + 3 * 8)
    assert all(batch.texts > len(batch.rows) for batch in seen)  # something is filled up
