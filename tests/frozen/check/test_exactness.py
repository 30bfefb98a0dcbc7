"""The exactness check on small models of every type. Each passes, or is refused for the right reason."""

import pytest
import torch
from torch import nn
from transformers import AutoModelForTokenClassification

from frostline import FrostlineError
from frostline.frozen.exactness import Check, check
from frostline.statistics.recipe import Recipe
from model.test_anatomy import REFUSED as NO_LAYERS
from small_models import REASONS, TAG_TYPES, TYPES, small_batch, small_model

# Exact in padded batches only: they have their own attention, or other layers also mix tokens.
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
SAMPLE = [  # one or two for each kind of result and of architecture
    "albert",
    "bart",
    "bert",
    "big_bird",
    "bloom",
    "canine",
    "deberta-v2",
    "distilbert",
    "fnet",
    "funnel",
    "gemma3",
    "gpt2",
    "layoutlmv3",
    "lilt",
    "llama",
    "mixtral",
    "modernbert",
    "mpnet",
    "xlm",
    "xlnet",
    "zamba",
]


@pytest.mark.parametrize(
    "model_type", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.every) for name in ALL]
)
def test_every_type_is_exact_or_refused(model_type: str) -> None:
    model = small_model(model_type)
    rows = check(model, batch=small_batch(model))
    reason = (NO_LAYERS | RANDOM).get(model_type)
    if reason:
        (row,) = rows
        assert row.refused and reason in row.refused
        assert (row.tuned_layers, row.batches, row.max_logit_difference, row.max_gradient_difference) == (None,) * 4
        return
    assert [row.tuned_layers for row in rows] == ["head only", "last 1", "last 2", "last 3", "last 4", "full"]
    for row in rows:
        if model_type in REFUSED and row.tuned_layers in ("last 1", "last 2", "last 3"):
            assert row.batches is None and row.refused and REFUSED[model_type] in row.refused
        elif row.refused:
            assert model_type in REFUSED and row.tuned_layers == "head only" and REFUSED[model_type] in row.refused
        else:
            assert max(row.max_logit_difference, row.max_gradient_difference) < 1e-5
    batches = [row.batches for row in rows]
    if model_type not in REFUSED:
        assert batches == ["packed"] * 6 or (model_type in PADDED and batches[-1] == "padded")


TAGS_REFUSED = {
    **REFUSED,
    "funnel": DEPENDS_ON_PADDING,
    "mt5": OF_OTHER_INPUT,
    "t5": OF_OTHER_INPUT,
}
TAG_SAMPLE = ("albert", "bert", "fnet", "llama", "mpnet")


@pytest.mark.parametrize(
    "model_type",
    [
        name if name in TAG_SAMPLE else pytest.param(name, marks=pytest.mark.every)
        for name in TAG_TYPES
        if name not in REASONS
    ],
)
def test_every_type_with_a_head_for_tags_is_exact_or_refused(model_type: str) -> None:
    model = small_model(model_type, head=AutoModelForTokenClassification)
    rows = check(model, batch=small_batch(model))
    refused = [row.refused for row in rows if row.refused]
    reason = (NO_LAYERS | RANDOM | TAGS_REFUSED).get(model_type)
    assert bool(refused) == (reason is not None) and all(reason in sentence for sentence in refused)
    for row in rows:
        assert row.refused or max(row.max_logit_difference, row.max_gradient_difference) < 1e-5


def test_no_type_is_listed_twice() -> None:
    tables = [*NO_LAYERS, *RANDOM, *REFUSED, *PADDED]
    assert len(tables) == len(set(tables)) and set(tables) < set(ALL) and set(SAMPLE) < set(ALL)


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


@pytest.mark.parametrize(
    "model_type", ["bert", "gpt2", "lilt", "fnet", "xlm"]
)  # exact, or refused for one of three reasons
def test_the_check_does_not_change_the_model(model_type: str) -> None:
    model = small_model(model_type)
    for n, module in enumerate(model.modules()):
        module.training = n % 3 == 0
    for n, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(n % 2 == 0)
    before = state_of(model)
    check(model, tuned_layers=[0, 2, "full"])
    after = state_of(model)
    for name, value in before.items():
        assert after[name] == value, name


def test_only_the_given_ks_are_checked() -> None:
    rows = check(small_model("bert"), tuned_layers=["full", 2])
    assert [row.tuned_layers for row in rows] == ["full", "last 2"] and all(isinstance(row, Check) for row in rows)
    (row,) = check(small_model("bert"), tuned_layers=[9])
    assert row.refused and "the model has 4" in row.refused


@pytest.mark.parametrize("modules, layers", [(["layer.1", "pooler"], 3), (["pooler"], 0), (["embeddings"], "full")])
def test_named_parts_are_checked_too(modules: list[str], layers: int | str) -> None:
    *_, row = check(small_model("bert"), tuned_layers=[], tune_modules=modules)
    assert (row.tuned_layers, row.batches, row.refused) == (Recipe(layers), "packed", None)
    assert max(row.max_logit_difference, row.max_gradient_difference) < 1e-5


def test_a_named_part_that_does_not_exist_is_refused_with_similar_names() -> None:
    (row,) = check(small_model("bert"), tuned_layers=[], tune_modules=["layer.9"])
    assert "the nearest are layer." in row.refused


@pytest.mark.parametrize("lengths, shape", [(None, (4, 40)), ((9, 5), (2, 9))])
def test_examples_have_different_lengths_and_exceed_the_sliding_window(
    lengths: tuple[int, ...] | None, shape: tuple[int, int]
) -> None:
    model, seen = small_model("mistral"), []
    assert model.config.sliding_window < 40
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["attention_mask"]), with_kwargs=True
    )
    check(model, tuned_layers=[], lengths=lengths)
    assert seen[0].shape == shape and len(set(seen[0].sum(1).tolist())) == shape[0]
