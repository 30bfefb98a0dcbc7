"""Train and eval mode of trained and frozen modules."""

import pytest
import torch

from frostline.model.anatomy import find_layers, frozen_modules, set_train_mode
from frostline.model.trainable import Trainable
from frostline.statistics.recipe import Recipe
from small_models import load, small_batch, small_model


@pytest.mark.parametrize("tune_pooler", [True, False])
@pytest.mark.parametrize("k", [0, 1, 3, "full"])
def test_frozen_modules_are_in_eval_mode(tiny_bert, k, tune_pooler):
    pretrained = load(tiny_bert)
    model, anatomy = pretrained.model, pretrained.anatomy
    names = Trainable(Recipe(k), pooler=tune_pooler).parameters(anatomy)
    set_train_mode(model.train(), anatomy, names)
    for path, module in model.named_modules():
        own = {f"{path}.{name}".removeprefix(".") for name, _ in module.named_parameters(recurse=False)}
        assert not own or module.training == bool(own & names), path
    for number, layer in enumerate(anatomy.layers(model)):
        tuned = k == "full" or number >= 3 - k
        assert all(module.training == tuned for module in layer.modules())
    assert model.dropout.training  # the dropout of the classifier head
    assert model.bert.embeddings.dropout.training == (k == "full")


@pytest.mark.parametrize("modules", [["layer.1"], ["layer.0.output", "pooler"], ["embeddings"], ["query", "LayerNorm"]])
def test_with_named_modules_all_modules_without_trained_parameters_are_in_eval_mode(tiny_bert, modules):
    pretrained = load(tiny_bert)
    model, anatomy = pretrained.model, pretrained.anatomy
    names = Trainable(Recipe("named"), modules).parameters(anatomy)
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
    assert model.dropout.training  # the dropout of the classifier head


def layer_of(anatomy, model, layer):
    return next(n for n, other in enumerate(anatomy.layers(model)) if other is layer)


@pytest.mark.parametrize("model_type", ["gpt2", "roberta", "electra", "deberta-v2", "opt", "mpnet", "distilbert"])
def test_no_dropout_below_the_first_tuned_layer(model_type):
    model = small_model(model_type)
    anatomy = find_layers(model, small_batch(model))
    first = anatomy.layers(model)[3]
    set_train_mode(model, anatomy, Trainable(Recipe(1)).parameters(anatomy))
    inputs = []
    hook = first.register_forward_pre_hook(lambda m, args, kwargs: inputs.append(args[0]), with_kwargs=True)
    if not any(True for _ in first.parameters()):
        raise AssertionError
    with torch.no_grad():
        try:
            outputs = [model(**small_batch(model)).logits for _ in range(2)]
        finally:
            hook.remove()
    assert torch.equal(inputs[0], inputs[1])
    assert not torch.equal(*outputs)


def test_a_module_that_shares_a_trained_parameter_is_not_frozen():
    """torch names a shared parameter once, after the first module that has it."""
    model = torch.nn.ModuleDict(
        {"one": torch.nn.Linear(2, 2), "other": torch.nn.Linear(2, 2), "own": torch.nn.Linear(2, 2)}
    )
    model["other"].weight = model["one"].weight
    assert set(frozen_modules(model, {"one.weight"})) == {model["own"]}
