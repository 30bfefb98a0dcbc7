"""Loading a pretrained model: what is drawn anew, what is put back, and one sentence for every unusable folder."""

import json
import re
import shutil

import huggingface_hub.constants
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from frostline import FrostlineError
from frostline.fast.bf16_gradients import hold_bf16_gradient
from frostline.fast.optimizer import gradient_of
from frostline.model.anatomy import EMBEDDINGS, HEAD, POOLER, find_layers
from frostline.model.loading import load_pretrained, most_tokens
from frostline.model.modes import set_train_mode
from frostline.model.tokens import encode
from frostline.model.trainable import Trainable
from frostline.sweep.inputs import length_limit
from frostline.sweep.specification import make_spec
from small_models import small_batch, small_model
from tiny import tiny_bert_folder

CLASSES = {"labels": ("no", "yes"), "problem_type": "single_label_classification"}


def load(folder, **more):
    return load_pretrained(str(folder), **(CLASSES | more))


def values(pretrained, names=None):
    return {n: p.detach().clone() for n, p in pretrained.model.named_parameters() if names is None or n in names}


def equal(one, other):
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def folder(tiny_bert, tmp_path):
    return shutil.copytree(tiny_bert, tmp_path / "model")


def edit_config(folder, **values):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def edit_weights(folder, edit):
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def bare_tokenizer(folder, **more):
    """Whole words, and nothing for padding, as GPT-2's tokenizer has it."""
    words = Tokenizer(models.WordLevel({"<end>": 0, "<unknown>": 1, "good": 2, "film": 3}, unk_token="<unknown>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unknown>", eos_token="<end>", **more)
    fast.save_pretrained(folder)


@pytest.fixture
def gpt2(tmp_path):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 2,
            "n_positions": 32,
            "vocab_size": 4,
            "bos_token_id": 0,
            "eos_token_id": 0,
        }
        GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.2)).save_pretrained(tmp_path / "gpt2")
    bare_tokenizer(tmp_path / "gpt2")
    return tmp_path / "gpt2"


def no_config(folder):
    (folder / "config.json").unlink()
    return "is not a model: it has no config.json. Give a folder"


def no_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    return "has no tokenizer: tokenizer.json or a vocabulary file belongs beside config.json. Copy those"


def a_pickle(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return "has no weights in safetensors (only pytorch_model.bin), and frostline reads no other format: convert them"


def no_weights(folder):
    (folder / "model.safetensors").unlink()
    return "has no weights in safetensors (no weights at all)"


def corrupt_weights(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    return "transformers cannot load it for classification (SafetensorError"


def no_safetensors_at_all(folder):
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    return "transformers cannot load it for classification (SafetensorError"


def garbage_for_a_config(folder):
    (folder / "config.json").write_text("{garbage")
    return "its config.json cannot be used"


def a_list_for_a_config(folder):
    (folder / "config.json").write_text("[1]")
    return "its config.json cannot be used"


def an_unknown_type(folder):
    edit_config(folder, model_type="frosty")
    return "its config.json cannot be used (ValueError"


def a_type_that_cannot_classify(folder):
    edit_config(folder, model_type="vit")
    return "transformers cannot load it for classification (ValueError"


def a_garbled_tokenizer(folder):
    (folder / "tokenizer.json").write_text("{}")
    return "its tokenizer cannot be loaded"


def code_from_elsewhere(folder):
    edit_config(folder, model_type="own", auto_map={"AutoConfig": "own.OwnConfig"})
    return "its config.json cannot be used"


def too_few_weights(folder):
    edit_weights(folder, lambda weights: [weights.pop(n) for n in list(weights) if "layer.1." in n])
    return "The model's weights lack 16 parameters of its body (bert.encoder.layer.1."


def weights_of_another_shape(folder):
    edit_config(folder, intermediate_size=48)
    return "The model's weights lack 9 parameters of its body (bert.encoder.layer.0."


def layers_that_are_shared(folder):
    small_model("albert").save_pretrained(folder)
    return "A model of type 'albert' cannot be cut: it shares weights between layers"


SPOILED = [
    no_config,
    no_tokenizer,
    a_pickle,
    no_weights,
    corrupt_weights,
    no_safetensors_at_all,
    garbage_for_a_config,
    a_list_for_a_config,
    an_unknown_type,
    a_type_that_cannot_classify,
    a_garbled_tokenizer,
    code_from_elsewhere,
    too_few_weights,
    weights_of_another_shape,
    layers_that_are_shared,
]


@pytest.mark.parametrize("spoil", SPOILED)
def test_an_unusable_folder(folder, spoil):
    expected = spoil(folder)
    with pytest.raises(FrostlineError) as error:
        load(folder)
    sentence = str(error.value)
    assert expected in sentence and "\n" not in sentence and sentence.endswith(".")
    assert str(folder) in sentence or "parameters of its body" in sentence or "albert" in sentence
    assert re.search(r"[.:] (Give|Get|Copy|convert|Download|Choose|add) ", sentence)


@pytest.mark.parametrize("name", ["nowhere/at/all", "./nowhere", "/nowhere", "~nobody/model"])
def test_a_missing_folder(name):
    with pytest.raises(FrostlineError, match=re.escape(f"There is no model folder {name}: check the path")):
        load(name)


def test_a_file_is_no_folder(tiny_bert):
    with pytest.raises(FrostlineError, match="There is no model folder"):
        load(tiny_bert / "config.json")


@pytest.mark.parametrize("name", ["org/model", "model-that-nobody-has", "not a hub name!"])
def test_a_hub_name_without_a_network(name):
    with pytest.raises(FrostlineError) as error:
        load(name, revision="v1")
    assert f"The model '{name}' (revision v1) is neither a folder here nor available from the hub" in str(error.value)
    assert "give its folder" in str(error.value)


def test_code_of_the_hub_wants_a_revision_and_a_folder_has_none(folder):
    with pytest.raises(FrostlineError, match="pin it with --revision COMMIT"):
        load("org/model", trust_remote_code=True)
    assert load(folder, trust_remote_code=True).anatomy.count == 3
    with pytest.raises(FrostlineError, match="a folder has no revision 'c0ffee': leave --revision out"):
        load(folder, revision="c0ffee")


def test_a_hub_name_from_the_hubs_cache(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "c0ffee" * 6 + "c0de"
    place = tmp_path / "models--org--tiny"
    shutil.copytree(tiny_bert, place / "snapshots" / commit)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    here, local = load("org/tiny"), load(tiny_bert)
    assert (here.revision, local.revision) == (commit, None)
    assert (here.weights, here.vocabulary) == (local.weights, local.vocabulary)


def test_labels_are_in_the_config(tiny_bert):
    config = load(tiny_bert, labels=("a", "b", "c")).model.config
    assert config.num_labels == 3 and config.problem_type == "single_label_classification"
    assert config.id2label == {0: "a", 1: "b", 2: "c"} and config.label2id == {"a": 0, "b": 1, "c": 2}
    number = load(tiny_bert, labels=(), problem_type="regression").model
    assert number.config.num_labels == 1 and number.config.problem_type == "regression"
    assert number.classifier.weight.shape == (1, 32)


def test_weights_are_the_checkpoints_in_fp32(tiny_bert):
    pretrained = load(tiny_bert)
    stored = load_file(tiny_bert / "model.safetensors")
    body = {name.removeprefix("bert."): p for name, p in values(pretrained).items() if name not in pretrained.new}
    assert equal(body, {name: stored[name] for name in body}) and len(body) == len(stored)
    assert {p.dtype for p in pretrained.model.parameters()} == {torch.float32}
    assert not pretrained.model.training


def test_half_precision_weights_are_read_as_fp32(folder):
    def halve(weights):
        weights.update({name: x.bfloat16() for name, x in weights.items()})

    edit_weights(folder, halve)
    edit_config(folder, dtype="bfloat16")
    assert {p.dtype for p in load(folder).model.parameters()} == {torch.float32}


def test_digests_know_weights_configuration_and_tokenizer(folder):
    first = load(folder)
    edit_config(folder, layer_norm_eps=1e-6)
    second = load(folder)
    edit_weights(folder, lambda weights: weights["pooler.dense.bias"].add_(1))
    third = load(folder)
    assert len({first.weights, second.weights, third.weights}) == 3
    assert first.vocabulary == second.vocabulary == third.vocabulary
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text.replace('"good"', '"swell"'))
    fourth = load(folder)
    assert fourth.vocabulary != third.vocabulary and fourth.weights == third.weights


def test_what_was_let_go_comes_back_as_it_was(tiny_bert):
    pretrained = load(tiny_bert)
    before, layers = values(pretrained), pretrained.anatomy.count
    for cut in (1, 0, layers, None):
        pretrained.release_weights(cut)
        there = {name for name, value in values(pretrained).items() if not value.isnan().any()}
        assert (there == set(before)) == (cut is None and not pretrained._absent)
        assert equal(values(pretrained, there), {name: before[name] for name in there})
        pretrained.load_weights(1)
        lower = [
            pretrained.model.get_parameter(name) for name, p in pretrained.anatomy.places.items() if p == "layer 0"
        ]
        assert all(p.isnan().all() == (cut is not None and cut > 0) for p in lower)
        assert not any(
            value.isnan().any()
            for value in values(pretrained, Trainable.last(layers - 1).parameters(pretrained.anatomy)).values()
        )
        pretrained.load_weights(None)
        assert equal(values(pretrained), before)


def test_what_was_trained_and_let_go_comes_back_as_the_checkpoint_has_it(tiny_bert):
    pretrained = load(tiny_bert)
    pretrained.restore()
    before, names = values(pretrained), Trainable("all").parameters(pretrained.anatomy)
    with torch.no_grad():
        for parameter in pretrained.start_run(names, 0).values():
            parameter.add_(1)
    pretrained.release_weights(1)
    pretrained.load_weights(None)
    pretrained.restore()
    assert equal(values(pretrained, names - pretrained.new), {name: before[name] for name in names - pretrained.new})


def test_the_digest_of_the_frozen_is_of_what_is_there(tiny_bert):
    pretrained = load(tiny_bert)
    names = Trainable(1).parameters(pretrained.anatomy)
    whole = pretrained.frozen_digest(names)
    pretrained.release_weights(pretrained.anatomy.count - 1)
    less = pretrained.frozen_digest(names)
    assert less != whole and pretrained.frozen_digest(names) == less
    with torch.no_grad():
        pretrained.model.get_parameter("bert.embeddings.LayerNorm.bias").add_(1)
    assert pretrained.frozen_digest(names) != less


def test_the_head_is_drawn_from_the_seed_alone(tiny_bert):
    pretrained = load(tiny_bert)
    head = {name for name, place in pretrained.anatomy.places.items() if place == HEAD}
    assert pretrained.new == head

    def drawn(k, seed):
        torch.rand(7)  # whatever was drawn before
        pretrained.start_run(Trainable.last(k).parameters(pretrained.anatomy), seed)
        return values(pretrained, head)

    with torch.random.fork_rng():
        first = drawn(0, 5)
        assert first["classifier.weight"].std() > 0
        for k in (0, 1, 3, None, 0):
            assert equal(drawn(k, 5), first)
        assert not torch.equal(drawn(0, 6)["classifier.weight"], first["classifier.weight"])
        state = torch.get_rng_state()
        drawn_without = pretrained.start_run(Trainable(0).parameters(pretrained.anatomy), 7)
        assert torch.equal(torch.get_rng_state(), state) and drawn_without
    other = load(tiny_bert)
    other.start_run(Trainable(2).parameters(other.anatomy), 5)
    assert equal(values(other, head), first)


def test_the_head_is_drawn_as_transformers_draws_it(tiny_bert):
    pretrained = load(tiny_bert)
    weights = []
    for seed in range(300):
        pretrained.start_run(Trainable(0).parameters(pretrained.anatomy), seed)
        weights.append(pretrained.model.classifier.weight.detach().flatten().clone())
        assert not pretrained.model.classifier.bias.any()
    drawn = torch.cat(weights)
    assert drawn.std().item() == pytest.approx(pretrained.model.config.initializer_range, rel=0.02)
    assert drawn.mean().abs() < 0.01


@pytest.mark.parametrize("classes", [2, 5])
def test_a_checkpoint_with_a_head_of_its_own(folder, classes):
    """Its head answers another question, even where it has as many labels."""
    pretrained = load(folder)
    BertForSequenceClassification.from_pretrained(folder, num_labels=classes).save_pretrained(folder)
    edit_weights(folder, lambda weights: weights["classifier.weight"].fill_(7))
    again = load(folder)
    assert again.new == {"classifier.weight", "classifier.bias"}
    for either in (pretrained, again):
        either.start_run(Trainable(1).parameters(either.anatomy), 3)
    assert equal(values(again), values(pretrained))


def test_the_pretrained_pooler_is_kept(tiny_bert):
    pretrained = load(tiny_bert)
    stored = load_file(tiny_bert / "model.safetensors")
    for k in (0, 2, None):
        pretrained.start_run(Trainable.last(k).parameters(pretrained.anatomy), 1)
        assert torch.equal(pretrained.model.bert.pooler.dense.weight, stored["pooler.dense.weight"])


def test_a_pooler_that_the_checkpoint_lacks_is_drawn_like_the_head(folder):
    edit_weights(folder, lambda weights: [weights.pop(f"pooler.dense.{n}") for n in ("weight", "bias")])
    pretrained = load(folder)
    pooler = {name for name, place in pretrained.anatomy.places.items() if place == POOLER}
    assert pooler < pretrained.new
    drawn = []
    for seed in (1, 1, 2):
        pretrained.start_run(Trainable(0).parameters(pretrained.anatomy), seed)
        drawn.append(pretrained.model.bert.pooler.dense.weight.detach().clone())
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_start_puts_pretrained_values_back(tiny_bert):
    pretrained = load(tiny_bert)
    anatomy = pretrained.anatomy
    pretrained.start_run(Trainable(0).parameters(anatomy), 4)
    truth = values(pretrained)
    for k in (1, None, 0, 3, 2, None, 1):
        trained = pretrained.start_run(Trainable.last(k).parameters(anatomy), 4)
        assert equal(values(pretrained), truth)
        assert set(trained) == Trainable.last(k).parameters(anatomy)
        assert (
            pretrained._changed.keys() == Trainable.last(k).parameters(anatomy) - pretrained.new
        )  # nothing else is there twice
        for name, parameter in pretrained.model.named_parameters():
            assert parameter.requires_grad == (name in trained) and gradient_of(parameter) is None
        with torch.no_grad():
            for parameter in trained.values():
                parameter.add_(1.0)
                parameter.grad = torch.ones_like(parameter)
                hold_bf16_gradient(parameter, torch.ones_like(parameter))
    pretrained.restore()
    assert all(gradient_of(parameter) is None for parameter in pretrained.model.parameters())


def test_where_there_is_no_memory_for_a_copy_nothing_has_changed(tiny_bert, monkeypatch):
    pretrained = load(tiny_bert)
    names = Trainable(1).parameters(pretrained.anatomy)
    pretrained.start_run(names, 4)
    truth = values(pretrained)
    pretrained.restore()
    copied = []

    def clone(tensor):
        copied.append(tensor)
        if len(copied) == 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return tensor + 0

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "clone", clone)
        with pytest.raises(RuntimeError):
            pretrained.start_run(names, 4)
    with torch.no_grad():
        for parameter in pretrained.start_run(names, 4).values():
            parameter.add_(1.0)
    pretrained.start_run(names, 4)
    assert equal(values(pretrained), truth)


def test_release_undoes_a_training(tiny_bert):
    pretrained = load(tiny_bert)
    pretrained.start_run(Trainable(1).parameters(pretrained.anatomy), 4)
    truth = values(pretrained)
    with torch.no_grad():
        for parameter in pretrained.start_run(Trainable("all").parameters(pretrained.anatomy), 4).values():
            parameter.add_(1.0)
    pretrained.restore()
    body = truth.keys() - pretrained.new
    assert body and equal(values(pretrained, body), {name: truth[name] for name in body})


def test_frozen_digest_knows_every_frozen_byte(tiny_bert):
    pretrained = load(tiny_bert)
    trained = Trainable(1).parameters(pretrained.anatomy)
    before = pretrained.frozen_digest(trained)
    for name, parameter in pretrained.model.named_parameters():
        bits = parameter.detach().view(torch.uint8).flatten()
        bits[-1] ^= 1
        assert (pretrained.frozen_digest(trained) == before) == (name in trained), name
        bits[-1] ^= 1
    assert pretrained.frozen_digest(trained) == before


@pytest.mark.parametrize("tune_pooler", [True, False])
@pytest.mark.parametrize("k", [0, 1, 3, None])
def test_what_is_frozen_is_in_eval_mode(tiny_bert, k, tune_pooler):
    pretrained = load(tiny_bert)
    model, anatomy = pretrained.model, pretrained.anatomy
    names = Trainable.last(k, pooler=tune_pooler).parameters(anatomy)
    set_train_mode(model.train(), anatomy, names)
    for path, module in model.named_modules():
        own = {f"{path}.{name}".removeprefix(".") for name, _ in module.named_parameters(recurse=False)}
        assert not own or module.training == bool(own & names), path
    for number, layer in enumerate(anatomy.layers(model)):
        tuned = k is None or number >= 3 - k
        assert all(module.training == tuned for module in layer.modules())
    assert model.dropout.training  # of the head
    assert model.bert.embeddings.dropout.training == (k is None)


@pytest.mark.parametrize("modules", [["layer.1"], ["layer.0.output", "pooler"], ["embeddings"], ["query", "LayerNorm"]])
def test_of_named_parts_whatever_holds_nothing_trained_is_in_eval_mode(tiny_bert, modules):
    pretrained = load(tiny_bert)
    model, anatomy = pretrained.model, pretrained.anatomy
    names = Trainable("named", modules).parameters(anatomy)
    set_train_mode(model.train(), anatomy, names)
    for path, module in model.named_modules():
        inside = {f"{path}.{name}".removeprefix(".") for name, _ in module.named_parameters()}
        own = {f"{path}.{name}".removeprefix(".") for name, _ in module.named_parameters(recurse=False)}
        if inside and not inside & names:
            assert not any(part.training for part in module.modules()), path
        assert module.training or not own & names, path
    for layer in anatomy.layers(model):
        trained = any(f"{anatomy.path}.{layer_of(anatomy, model, layer)}.output." in name for name in names)
        assert layer.output.dropout.training == trained
    assert model.dropout.training  # of the head


def layer_of(anatomy, model, layer):
    return next(n for n, other in enumerate(anatomy.layers(model)) if other is layer)


@pytest.mark.parametrize("model_type", ["gpt2", "roberta", "electra", "deberta-v2", "opt", "mpnet", "distilbert"])
def test_no_dropout_below_the_first_tuned_layer(model_type):
    model = small_model(model_type)
    anatomy = find_layers(model, small_batch(model))
    first = anatomy.layers(model)[3]
    set_train_mode(model, anatomy, Trainable(1).parameters(anatomy))
    seen = []
    hook = first.register_forward_pre_hook(lambda m, args, kwargs: seen.append(args[0]), with_kwargs=True)
    if not any(True for _ in first.parameters()):
        raise AssertionError
    with torch.no_grad():
        try:
            outputs = [model(**small_batch(model)).logits for _ in range(2)]
        finally:
            hook.remove()
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(*outputs)


def test_a_tokenizer_without_padding_gets_the_end_of_text(gpt2):
    pretrained = load(gpt2)
    assert pretrained.tokenizer.pad_token == "<end>" and pretrained.tokenizer.padding_side == "right"
    assert pretrained.model.config.pad_token_id == 0 and pretrained.max_length == 32
    tokens = encode(pretrained.tokenizer, ["good film good", "film", ""], None, 32)
    with torch.no_grad():
        together = pretrained.model(**tokens.batch(np.arange(3))).logits
        alone = torch.cat([pretrained.model(**tokens.batch(np.array([n]))).logits for n in range(3)])
    assert (together - alone).abs().max() < 1e-5


@pytest.mark.parametrize("limit, expected", [(20, 20), (1000, 30)])
def test_max_length_is_what_positions_and_tokenizer_allow(tmp_path, limit, expected):
    """RoBERTa numbers positions from 2 on: 32 of them are for 30 tokens."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = RobertaConfig(vocab_size=8, max_position_embeddings=32, pad_token_id=1, **sizes)
    RobertaModel(config).save_pretrained(tmp_path)
    bare_tokenizer(tmp_path, pad_token="<unknown>", model_max_length=limit)
    pretrained = load(tmp_path)
    assert pretrained.max_length == expected and most_tokens(pretrained.model) == 30
    tokens = encode(pretrained.tokenizer, ["good " * 50], None, pretrained.max_length)
    assert pretrained.model(**tokens.batch(np.array([0]))).logits.isfinite().all()
    spec = {"model": str(tmp_path), "train": "t.csv", "tune": "0", "out": "o"}
    assert length_limit(make_spec({**spec, "max_length": 30}), pretrained) == 30
    with pytest.raises(FrostlineError, match=r"max_length = 31 does not suit .*: give a number from 1 to 30"):
        length_limit(make_spec({**spec, "max_length": 31}), pretrained)


def test_max_length_of_a_model_with_many_positions(tiny_bert, minilm, tmp_path):
    assert load(tiny_bert).max_length == 32
    assert load(minilm).max_length == 512
    folder = tiny_bert_folder(tmp_path / "long")
    assert EMBEDDINGS in load(folder).anatomy.places.values()
