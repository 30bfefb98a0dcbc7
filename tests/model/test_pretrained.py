"""A pretrained model: its weights and digests, the initialization of new parameters, and restoring before each run."""

import json

import pytest
import torch
from transformers import BertForSequenceClassification

from frostline.fast.optimizer import gradient_of
from frostline.model.pretrained import _checksums
from frostline.model.terms import POOLER
from frostline.model.ways import Way
from small_models import edit_config, edit_weights, load, values, with_own_code


def equal(one, other):
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


def test_half_precision_weights_are_loaded_as_float32(folder):
    def halve(weights):
        weights.update({name: x.bfloat16() for name, x in weights.items()})

    edit_weights(folder, halve)
    edit_config(folder, dtype="bfloat16")
    assert {p.dtype for p in load(folder).model.parameters()} == {torch.float32}


def test_digests_depend_on_weights_configuration_and_tokenizer(folder):
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
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"truncation_side": "left"}))
    fifth = load(folder)
    assert fifth.vocabulary != fourth.vocabulary and fifth.weights == fourth.weights


def test_the_digest_of_an_encoder_depends_on_its_pooling(folder):
    """SetFit reads it with sentence-transformers, but only if modules.json says so."""
    digests = [load(folder).weights]
    modules = json.dumps([{"path": "1_Pooling", "type": "models.Pooling"}])
    pooling, elsewhere = "1_Pooling/config.json", "checkpoint-1/config.json"
    for name, text in ((pooling, "{}"), ("modules.json", modules), (pooling, "{ }"), (elsewhere, "{}")):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        digests.append(load(folder).weights)
    assert digests[0] == digests[1] and digests[3] == digests[4] and len({*digests}) == 3


def test_the_digest_of_a_model_with_code_of_its_own_depends_on_this_code(folder):
    with_own_code(folder)
    first = load(folder, trust_remote_code=True)
    with_own_code(folder, after="    scale = 2\n")
    second = load(folder, trust_remote_code=True)
    assert first.weights != second.weights and first.vocabulary == second.vocabulary


BUFFER = """    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("angles", torch.arange(1000.0), persistent=PERSISTENT)
"""


@pytest.mark.parametrize("persistent", [False, True])
def test_buffers_that_code_of_its_own_computes_have_their_values(folder, persistent):
    with_own_code(folder, before="import torch", after=BUFFER.replace("PERSISTENT", str(persistent)))
    assert torch.equal(load(folder, trust_remote_code=True).model.angles, torch.arange(1000.0))


class Refusing:
    """A hook whose state must not be copied."""

    def __call__(self, module, given, output):
        return output

    def __deepcopy__(self, memo):
        raise AssertionError("a hook was copied")


def test_what_hooks_hold_is_not_copied(tiny_bert):
    pretrained, other = load(tiny_bert), load(tiny_bert)
    for module in pretrained.model.modules():
        module.register_forward_hook(Refusing())
    one, two = (model.start_run(frozenset(), 7) for model in (pretrained, other))
    assert equal(one, two) and equal(values(pretrained), values(other))
    assert all(module._forward_hooks for module in pretrained.model.modules())


def test_the_head_is_initialized_as_transformers_does(tiny_bert):
    pretrained = load(tiny_bert)
    weights = []
    for seed in range(300):
        pretrained.start_run(Way(tune=0).parameters(pretrained.anatomy), seed)
        weights.append(pretrained.model.classifier.weight.detach().flatten().clone())
        assert not pretrained.model.classifier.bias.any()
    values_of_all = torch.cat(weights)
    assert values_of_all.std().item() == pytest.approx(pretrained.model.config.initializer_range, rel=0.02)
    assert values_of_all.mean().abs() < 0.01


@pytest.mark.parametrize("classes", [2, 5])
def test_the_head_of_a_checkpoint_is_not_used(folder, classes):
    """It was trained for another task, even if it has the same number of labels."""
    pretrained = load(folder)
    BertForSequenceClassification.from_pretrained(folder, num_labels=classes).save_pretrained(folder)
    edit_weights(folder, lambda weights: weights["classifier.weight"].fill_(7))
    again = load(folder)
    assert again.new == {"classifier.weight", "classifier.bias"}
    for either in (pretrained, again):
        either.start_run(Way(tune=1).parameters(either.anatomy), 3)
    assert equal(values(again), values(pretrained))


def test_a_pooler_that_the_checkpoint_lacks_is_initialized_like_the_head(folder):
    edit_weights(folder, lambda weights: [weights.pop(f"pooler.dense.{n}") for n in ("weight", "bias")])
    pretrained = load(folder)
    pooler = {name for name, place in pretrained.anatomy.places.items() if place == POOLER}
    assert pooler < pretrained.new
    weights = []
    for seed in (1, 1, 2):
        pretrained.start_run(Way(tune=0).parameters(pretrained.anatomy), seed)
        weights.append(pretrained.model.bert.pooler.dense.weight.detach().clone())
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_start_run_and_restore_give_pretrained_values_back(tiny_bert):
    pretrained = load(tiny_bert)
    anatomy, loaded = pretrained.anatomy, values(pretrained)
    body = loaded.keys() - pretrained.new
    pretrained.start_run(Way(tune=0).parameters(anatomy), 4)
    truth = values(pretrained)
    assert equal({name: truth[name] for name in body}, {name: loaded[name] for name in body})
    for k in (1, "full", 0, 3, 2, "full", 1):
        names = Way(tune=k).parameters(anatomy)
        trained = pretrained.start_run(names, 4)
        assert equal(values(pretrained), truth) and set(trained) == names
        assert pretrained._pretrained.keys() == names - pretrained.new  # no other parameter has a copy
        for name, parameter in pretrained.model.named_parameters():
            assert parameter.requires_grad == (name in trained) and gradient_of(parameter) is None
        with torch.no_grad():
            for parameter in trained.values():
                parameter.add_(1.0)
                parameter.grad = torch.ones_like(parameter)
    pretrained.restore()
    assert all(gradient_of(parameter) is None for parameter in pretrained.model.parameters())
    assert equal(values(pretrained, body), {name: loaded[name] for name in body})


def test_a_failed_allocation_of_a_copy_changes_no_weights(tiny_bert, monkeypatch):
    pretrained = load(tiny_bert)
    names = Way(tune=1).parameters(pretrained.anatomy)
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


@pytest.mark.parametrize("on_gpu", [False, True])
def test_frozen_digest_depends_on_every_frozen_parameter(tiny_bert, monkeypatch, on_gpu):
    """A CPU can compute a GPU's checksums, too. Weight decay changes all weights of a norm alike, because they are all ones."""
    if on_gpu:
        monkeypatch.setattr("frostline.model.pretrained.HASHED_HERE", ())
    pretrained = load(tiny_bert)
    trained = Way(tune=1).parameters(pretrained.anatomy)
    before = pretrained.frozen_digest(trained)
    for name, parameter in pretrained.model.named_parameters():
        bits = parameter.detach().view(torch.uint8).flatten()
        bits[-1] ^= 1
        assert (pretrained.frozen_digest(trained) == before) == (name in trained), name
        bits[-1] ^= 1
    assert pretrained.frozen_digest(trained) == before
    ones = pretrained.model.bert.embeddings.LayerNorm.weight.data
    assert len(ones.unique()) == 1 and not len(ones) % 2
    ones *= 0.99
    assert pretrained.frozen_digest(trained) != before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_checksums_notice_a_change_of_any_bit(dtype):
    x = torch.randn(3, 5, dtype=dtype)
    before = torch.stack(_checksums(x)).tolist()
    bits = x.view(torch.uint8).flatten()
    for number in range(len(bits)):
        bits[number] ^= 1
        sum_, exclusive_or = torch.stack(_checksums(x)).tolist()
        assert sum_ != before[0] and exclusive_or != before[1]
        bits[number] ^= 1
    assert torch.stack(_checksums(x)).tolist() == before
