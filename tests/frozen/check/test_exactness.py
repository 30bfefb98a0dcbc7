"""The check on small models of every type: each is equal, packed or padded, or refused for a true reason."""

import pytest
import torch
from torch import nn

from frostline import FrostlineError
from frostline.frozen.check.exactness import check
from frostline.frozen.check.trial import Check
from model.test_anatomy import REFUSED as NO_LAYERS
from small_models import REASONS, TYPES, small_batch, small_model

# Equal in padded batches only: they have their own attention, or layers beside attention look along the text.
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
REFUSED = {  # at every cut between two layers; with nothing cut there is nothing to refuse
    "convbert": DEPENDS_ON_PADDING,  # convolutions over the padding
    "mobilebert": DEPENDS_ON_PADDING,  # a token's input contains the embeddings of its neighbours, here those of padding
    "fnet": DEPENDS_ON_PADDING,  # a Fourier transform of text and padding
    "nystromformer": DEPENDS_ON_PADDING,  # a convolution, and landmarks are means of neighbours
    "yoso": DEPENDS_ON_PADDING,  # its hashes contain the padding
    "lilt": "Layers above the cut need more from the layers below than hidden states",  # text and layout
}
ALL = [name for name in TYPES if name not in REASONS]
RANDOM = {"big_bird": "the same batch gives different logits"}  # it draws anew which blocks attend to which
SAMPLE = [  # one or two of each kind of result and of architecture
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
def test_equal_or_refused(model_type: str) -> None:
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


def test_the_tables_hold_every_type_once() -> None:
    tables = [*NO_LAYERS, *RANDOM, *REFUSED, *PADDED]
    assert len(tables) == len(set(tables)) and set(tables) < set(ALL) and set(SAMPLE) < set(ALL)


@pytest.mark.parametrize("model_type", ["canine", "xlnet"])
def test_a_configuration_without_vocabulary_or_positions(model_type: str) -> None:
    """CANINE has characters and no vocabulary, XLNet no limit on positions; the check makes a batch for both."""
    (row,) = check(small_model(model_type))
    assert row.refused and NO_LAYERS[model_type] in row.refused


@pytest.mark.parametrize("chance", [False, True])
def test_a_forward_that_is_no_function_of_its_input_is_refused(chance: bool) -> None:
    """Its output depends on the batch before, or on chance."""
    model, seen = small_model("bert"), [0.0]

    def remember(module, args, out):
        out = out + (torch.rand(()) if chance else seen[0])
        seen[0] = out.shape[0] + float(out[0, 0]) * 0
        return out

    model.classifier.register_forward_hook(remember)
    (row,) = check(model)
    assert row.refused and "the same batch gives different logits" in row.refused


def test_no_model_of_transformers() -> None:
    with pytest.raises(FrostlineError, match="Linear is no model of transformers"):
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


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "lilt", "fnet", "xlm"])  # equal, and refused in three ways
def test_the_model_is_left_as_it_was(model_type: str) -> None:
    model = small_model(model_type)
    for n, module in enumerate(model.modules()):
        module.training = n % 3 == 0
    for n, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(n % 2 == 0)
    before = state_of(model)
    check(model, tuned_layers=[0, 2, None])
    after = state_of(model)
    for name, value in before.items():
        assert after[name] == value, name


def test_only_the_given_ks_are_checked() -> None:
    rows = check(small_model("bert"), tuned_layers=[None, 2])
    assert [row.tuned_layers for row in rows] == [None, 2] and all(isinstance(row, Check) for row in rows)
    (row,) = check(small_model("bert"), tuned_layers=[9])
    assert row.refused and "the model has 4" in row.refused


@pytest.mark.parametrize("modules, layers", [(["layer.1", "pooler"], 3), (["pooler"], 0), (["embeddings"], None)])
def test_named_parts_are_checked_too(modules: list[str], layers: int | None) -> None:
    *_, row = check(small_model("bert"), tuned_layers=[], tune_modules=modules)
    assert (row.tuned_layers, row.path, row.refused) == (layers, "packed", None)
    assert max(row.max_logit_difference, row.max_gradient_difference) < 1e-5


def test_a_part_that_does_not_exist() -> None:
    (row,) = check(small_model("bert"), tuned_layers=[], tune_modules=["layer.9"])
    assert "the nearest are layer." in row.refused


@pytest.mark.parametrize("lengths, shape", [(None, (4, 40)), ((9, 5), (2, 9))])
def test_examples_are_ragged_and_exceed_the_window(lengths: tuple[int, ...] | None, shape: tuple[int, int]) -> None:
    model, seen = small_model("mistral"), []
    assert model.config.sliding_window < 40
    model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["attention_mask"]), with_kwargs=True
    )
    check(model, tuned_layers=[], lengths=lengths)
    assert seen[0].shape == shape and len(set(seen[0].sum(1).tolist())) == shape[0]
