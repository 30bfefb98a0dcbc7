"""Anatomy: the layers of model types, the place of every parameter, reasons of refusals, and modules in train and eval mode."""

import re

import pytest
import torch
from torch import nn
from transformers import AutoModelForTokenClassification

from frostline import FrostlineError
from frostline.model.anatomy import count_parameters, find_layers, frozen_modules, probe_batch, set_train_mode
from frostline.model.model_files import layers_in_config
from frostline.model.terms import EMBEDDINGS, FINAL_NORM, HEAD, POOLER, layer_place
from frostline.model.ways import Way
from small_models import REASONS, SPECIAL, TAG_TYPES, TYPES, load, small, small_batch, small_model

ENCODER_DECODERS = ("bart", "bigbird_pegasus", "mbart", "mt5", "mvp", "plbart", "t5", "t5gemma", "t5gemma2", "umt5")
REFUSED = {
    **dict.fromkeys(("albert", "zamba", "zamba2"), "shares weights between layers"),
    **dict.fromkeys(ENCODER_DECODERS, "is an encoder-decoder"),
    **dict.fromkeys(("flaubert", "xlm"), "spread over parallel lists of modules (ffns, attentions, layer_norm1, "),
    **dict.fromkeys(("funnel", "squeezebert"), "no layers that are called as modules"),
    # for examples of 40 tokens, their layers get 10 molecules, 48 tokens (with padding) or 16 latent vectors
    "canine": "a batch of (4, 40) tokens they are given (4, 10, 64)",
    "longformer": "a batch of (4, 40) tokens they are given (4, 48, 64)",
    "perceiver": "a batch of (4, 40) tokens they are given (4, 16, 64)",
    "reformer": "return ReformerOutput",
    "xlnet": "are given (40, 4, 64)",  # the first dimension is that of tokens
}
FOUND = [name for name in TYPES if name not in REASONS and name not in REFUSED]
SAMPLE = (  # one or two for each kind of result of the exactness check and of architecture
    *("albert", "bart", "bert", "big_bird", "bloom", "canine", "deberta-v2", "distilbert", "fnet", "funnel", "gemma3", "gpt2"),
    *("layoutlmv3", "lilt", "llama", "mixtral", "modernbert", "mpnet", "xlm", "xlnet", "zamba"),
)  # fmt: skip


def sampled(names, sample=SAMPLE):
    """All model types. Those that are not in the sample are run with the mark ``every``."""
    return [name if name in sample else pytest.param(name, marks=pytest.mark.every) for name in names]


def test_small_models_are_of_types_that_transformers_has_and_only_one_is_missing():
    assert {*SAMPLE, *REASONS} <= {*TYPES} and {*SPECIAL} <= {*TYPES, *TAG_TYPES} and len(REASONS) <= 1


def parameters_at(model, anatomy, place):
    names = frozenset(name for name, where in anatomy.places.items() if where == place)
    return count_parameters(model, names)


@pytest.mark.parametrize("model_type", sampled(FOUND))
def test_each_parameter_is_in_one_place_and_k_trains_the_head_and_the_last_k_layers(model_type, tmp_path):
    model = small_model(model_type)
    model.config.save_pretrained(tmp_path)
    assert layers_in_config(tmp_path) == 4
    anatomy = find_layers(model, small_batch(model))
    assert set(anatomy.places) == {name for name, _ in model.named_parameters()}
    layers = anatomy.layers(model)
    assert anatomy.count == len(layers) == len(anatomy.calls) == 4
    other_places = {EMBEDDINGS, FINAL_NORM, POOLER, HEAD}
    assert set(anatomy.places.values()) <= other_places | {f"layer {n}" for n in range(4)}
    for number, layer in enumerate(layers):
        inside = {f"{anatomy.path}.{number}.{name}" for name, _ in layer.named_parameters()}
        assert inside and inside == {name for name, place in anatomy.places.items() if place == f"layer {number}"}
    assert {EMBEDDINGS, HEAD} <= set(anatomy.places.values())
    # A pooler is one matrix with a bias, and a final norm one or two vectors. With more parameters, a layer is misplaced.
    width = anatomy.width
    assert parameters_at(model, anatomy, POOLER) in (0, width * width + width)
    assert parameters_at(model, anatomy, FINAL_NORM) in (0, width, 2 * width)

    def at(*places):
        return {name for name, place in anatomy.places.items() if place in places}

    trained = [Way(tune=k).parameters(anatomy) for k in (0, 1, 2, 3, 4, "full")]
    assert trained[0] == at(HEAD, POOLER)
    for k in range(1, 5):
        assert trained[k] == trained[k - 1] | at(layer_place(4 - k), FINAL_NORM)
    assert trained[5] == set(anatomy.places) and trained[4] == trained[5] - at(EMBEDDINGS)
    assert [anatomy.depth(names) for names in trained] == [0, 1, 2, 3, 4, None]


@pytest.mark.parametrize("model_type, path", [("gpt2", "transformer.ln_f"), ("llama", "model.norm")])
def test_the_final_norm_is_found(model_type, path):
    model = small_model(model_type)
    norm = {f"{path}.{name}" for name, _ in model.get_submodule(path).named_parameters()}
    assert norm and norm == {name for name, place in find_layers(model).places.items() if place == FINAL_NORM}


@pytest.mark.parametrize(
    "model_type, name",
    [
        ("mpnet", "mpnet.encoder.relative_attention_bias.weight"),
        ("deberta", "deberta.encoder.rel_embeddings.weight"),
        ("deberta-v2", "deberta.encoder.rel_embeddings.weight"),
        ("deberta-v2", "deberta.encoder.LayerNorm.weight"),  # the norm of rel_embeddings
        ("layoutlmv3", "layoutlmv3.encoder.rel_pos_bias.weight"),
    ],
)
def test_parameters_that_all_layers_share_are_in_the_embeddings(model_type, name):
    _, _, anatomy = small(model_type)
    assert anatomy.places[name] == EMBEDDINGS
    assert name not in Way(tune=4).parameters(anatomy) and name in Way(tune="full").parameters(anatomy)


def test_the_layers_of_an_image_encoder_are_not_the_layers_of_the_model():
    """Even if they have the most parameters, because no text runs through them."""
    model = small_model("ultravbert")
    image_layers = model.model.vision_model.encoder.layers
    image_layers.extend([nn.Linear(64, 64 * 100) for _ in range(4)])
    anatomy = find_layers(model)
    assert anatomy.path == "model.text_model.layers"
    assert EMBEDDINGS in {place for name, place in anatomy.places.items() if ".vision_model." in name}


@pytest.mark.parametrize("model_type", sampled(REFUSED, (*SAMPLE, "longformer", "reformer")))
def test_refused_with_the_reason(model_type):
    model = small_model(model_type)
    with pytest.raises(FrostlineError) as refusal:
        find_layers(model, small_batch(model))
    message = str(refusal.value)
    assert REFUSED[model_type] in message and repr(model_type) in message
    assert re.fullmatch(r"A model of type '\w+' cannot be cut: .+\. Choose .+\.", message)


def test_a_model_without_a_list_of_layers_is_refused():
    model = small_model("bert")
    model.bert.encoder.layer = model.bert.encoder.layer[0]
    with pytest.raises(FrostlineError, match="it has no list of layers"):
        find_layers(model)


class Backwards(nn.ModuleList):
    """A list whose slices are reversed. Llama iterates over a slice of its layers, so it runs them in reverse order."""

    def __getitem__(self, index):
        return list(self)[index][::-1] if isinstance(index, slice) else super().__getitem__(index)


def test_layers_out_of_order_are_refused():
    model = small_model("llama")
    model.model.layers = Backwards(model.model.layers)
    with pytest.raises(FrostlineError, match=re.escape("but in the order [3, 2, 1, 0]")):
        find_layers(model)


def test_a_model_that_needs_more_than_tokens_is_refused():
    with pytest.raises(
        FrostlineError, match=r"tokens and their mask alone \(ValueError: You have to specify bbox\)\. Choose"
    ):
        find_layers(small_model("bros", head=AutoModelForTokenClassification))


def test_more_tuned_layers_than_the_model_has_are_an_error():
    k, anatomy = 5, find_layers(small_model("bert"))
    with pytest.raises(
        FrostlineError, match=f"^{k} tuned layers .* the model has 4: give numbers from 0 to 4, or `full`"
    ):
        Way(tune=k).parameters(anatomy)


def test_probe_batch_holds_ordinary_tokens_padded_on_the_right():
    assert probe_batch(small_model("funnel"))["input_ids"].shape == (3, 23)  # its configuration lacks special tokens
    model = small_model("gpt2")
    batch = probe_batch(model, (120, 90))
    assert batch["attention_mask"].tolist() == [[1] * 120, [1] * 90 + [0] * 30]
    assert (batch["input_ids"][1, 90:] == model.config.pad_token_id).all()
    assert not torch.equal(batch["input_ids"], probe_batch(model, (120, 90), seed=1)["input_ids"])
    config = model.config
    special = {config.pad_token_id, config.bos_token_id, config.eos_token_id}
    for seed in range(20):
        batch = probe_batch(model, (120, 90), seed=seed)
        ids = set(batch["input_ids"][batch["attention_mask"].bool()].tolist())
        assert not special & ids and len(ids) > 100


@pytest.mark.parametrize(
    "way, pooler",
    [
        *((Way(tune=k), pooler) for k, pooler in ((0, True), (1, False), (3, True), ("full", False))),
        *(
            (Way(modules=names), True)
            for names in (("layer.0.output", "pooler"), ("embeddings",), ("query", "LayerNorm"))
        ),
    ],
)
def test_frozen_modules_are_in_eval_mode(tiny_bert, way, pooler):
    pretrained = load(tiny_bert)
    model, anatomy = pretrained.model, pretrained.anatomy
    names = way.parameters(anatomy, pooler=pooler)
    set_train_mode(model.train(), anatomy, names)
    for path, module in model.named_modules():
        inside, own = (
            {f"{path}.{name}".removeprefix(".") for name, _ in module.named_parameters(recurse=recurse)}
            for recurse in (True, False)
        )
        assert not own or module.training == bool(own & names), path
        assert not inside or inside & names or not any(part.training for part in module.modules()), path
    for number, layer in enumerate(anatomy.layers(model)):
        inside = {name for name, place in anatomy.places.items() if place == layer_place(number)}
        assert inside - names or all(module.training for module in layer.modules())
        assert layer.output.dropout.training == any(f"{anatomy.path}.{number}.output." in name for name in names)
    assert model.dropout.training  # the dropout of the classifier head
    assert model.bert.embeddings.dropout.training == any(".embeddings." in name for name in names)


@pytest.mark.parametrize("model_type", ["gpt2", "deberta-v2", "distilbert"])
def test_no_dropout_below_the_first_tuned_layer(model_type):
    model, batch, anatomy = small(model_type)
    set_train_mode(model, anatomy, Way(tune=1).parameters(anatomy))
    inputs = []
    anatomy.layers(model)[3].register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    with torch.no_grad():
        outputs = [model(**batch).logits for _ in range(2)]
    assert torch.equal(*inputs) and not torch.equal(*outputs)


def test_a_module_that_shares_a_trained_parameter_is_not_frozen():
    """torch names a shared parameter once, after the first module that has it."""
    model = torch.nn.ModuleDict(
        {"one": torch.nn.Linear(2, 2), "other": torch.nn.Linear(2, 2), "own": torch.nn.Linear(2, 2)}
    )
    model["other"].weight = model["one"].weight
    assert set(frozen_modules(model, {"one.weight"})) == {model["own"]}
