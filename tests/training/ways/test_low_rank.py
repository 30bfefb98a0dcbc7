"""LoRA equals PEFT trained by itself, and starts from cached hidden states as the last k layers do."""

import copy

import peft
import pytest
import torch
from safetensors.torch import load_file

from frostline import FrostlineError
from frostline.data.kinds import CLASSIFICATION
from frostline.model.terms import layer_number
from frostline.model.ways import Way, way_named
from frostline.sweeps.prepare import require_suitable
from frostline.training.start import DOWN, UP, factors_of, matrix_of, rank_of
from frostline.training.train import restore, run
from small_models import small_model
from training.by_hand import gap, started, train_by_hand, way_spec
from training.runs import spec_of


@pytest.mark.parametrize("tune", [2, "full"])
def test_the_result_is_that_of_peft(even, tune):
    spec = way_spec(Way(tune=tune, low_rank=4, low_rank_scale=2.0), num_train_epochs=2)
    model, parameters = started(spec, even)
    names = parameters.keys()
    places = even.pretrained.anatomy.places
    matrices = [name for name in names if layer_number(places[name]) is not None]
    start = factors_of({name: parameters[name] for name in matrices}, frozenset(), 4, spec.seed_for("low rank"))
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=[name.removesuffix(".weight") for name in matrices])
    model = peft.inject_adapter_in_model(config, model)
    parameters = dict(model.named_parameters())
    trained = {}
    for name in matrices:
        for factor, suffix in (("lora_A", DOWN), ("lora_B", UP)):
            parameter = parameters[name.replace(".weight", f".{factor}.default.weight")]
            parameter.data.copy_(start[name + suffix])
            trained[name + suffix] = parameter
    trained |= {name: parameters[name] for name in names if name not in matrices}
    train_by_hand(model, trained, spec, even)
    with torch.no_grad():
        merged = {
            name: parameters[name.replace(".weight", ".base_layer.weight")]
            + 2.0 * trained[name + UP] @ trained[name + DOWN]
            for name in matrices
        }
    merged |= {name: p for name, p in trained.items() if matrix_of(name) == name}
    result = run(spec, even)
    assert gap(result, merged) < 2e-6
    audit = result.record.audit
    assert audit.trainable_parameters == sum(p.numel() for p in trained.values())
    assert set(audit.merged) == set(matrices) and len(audit.merged) == len(matrices)
    assert max(float(trained[name + UP].detach().abs().max()) for name in matrices) > 1e-3


def test_a_matrix_that_is_stored_transposed_gets_the_transposed_update():
    model = small_model("gpt2")
    name = "transformer.h.1.mlp.c_fc.weight"
    weight = dict(model.named_parameters())[name]
    up, down = factors_of({name: weight}, frozenset({name}), 3).values()
    assert up.shape == (weight.shape[1], 3) and down.shape == (3, weight.shape[0])
    config = peft.LoraConfig(r=3, target_modules=[name.removesuffix(".weight")], fan_in_fan_out=True)
    theirs = dict(peft.inject_adapter_in_model(config, copy.deepcopy(model)).named_parameters())
    assert theirs[name.replace("weight", "lora_A.default.weight")].shape == down.shape
    assert theirs[name.replace("weight", "lora_B.default.weight")].shape == up.shape


def test_scaled_losses_change_nothing(even):
    """The gradients of the factors come from those of the matrices. This machine computes in float32, so nothing is rounded."""
    spec = way_spec(Way(tune=2, low_rank=2))
    plain = {name: p.detach().clone() for name, p in run(spec, even).learned.items()}
    assert gap(run(spec.model_copy(update={"precision": "float16"}), even), plain) < 1e-6


def test_the_learned_matrices_are_stored_merged(even, tmp_path):
    spec = way_spec(Way(tune=1, low_rank=2), load_best_model_at_end=True, evaluations_per_epoch=2)
    result = run(spec, even)
    learned = {name: p.detach().clone() for name, p in result.learned.items()}
    even.pretrained.model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(saved[name], value) for name, value in learned.items())
    assert abs(restore(spec, even, learned) - result.logits["validation_best"]).max() < 1e-6


def test_a_rank_gives_as_many_parameters_as_the_last_layers(even):
    spec, pretrained = way_spec(way_named("lora-like-2", {})), even.pretrained
    rank = rank_of(spec, pretrained.model, pretrained.anatomy)
    result, last = run(spec, even), run(spec_of(2), even)
    counts = [one.record.audit.trainable_parameters for one in (result, last)]
    by_rank = sum(sum(p.shape) for name, p in result.learned.items() if ".layer." in name)
    assert rank > 1 and abs(counts[0] - counts[1]) <= by_rank / 2
    with pytest.raises(FrostlineError, match="lora-like-9: 9 layers were requested, but the model has 3"):
        require_suitable(spec_of("lora-like-9", way=way_named("lora-like-9", {})), pretrained, CLASSIFICATION)
