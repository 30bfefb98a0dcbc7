"""Parameter groups, schedules, and the settings of the optimizer."""

import pytest
import torch
from torch import nn

from frostline.model.places import HEAD, POOLER
from frostline.training.optimizer import make_schedule, optimizer_groups, parameter_groups
from frostline.training.run import run
from frostline.training.seeds import generator_seed
from frostline.training.specification import Settings
from frostline.training.steps import StepPlan
from frostline.training.ways.way import Way
from training.by_hand import context_without_dropout, gap, parameters_of, started, train_by_hand, way_spec
from training.lines import Line, fit
from training.runs import spec_of, weights_of


def test_parameter_groups():
    parameters = {
        "layer.weight": nn.Parameter(torch.ones(2, 2)),
        "layer.bias": nn.Parameter(torch.ones(2)),
        "norm.weight": nn.Parameter(torch.ones(2)),
        "head.weight": nn.Parameter(torch.ones(3, 2)),
        "head.bias": nn.Parameter(torch.ones(3)),
    }
    head = frozenset({"head.weight", "head.bias"})
    groups = parameter_groups(parameters, head, Settings(weight_decay=0.1), 0.2, 0.5)
    names = {id(p): name for name, p in parameters.items()}
    found = {tuple(names[id(p)] for p in g["params"]): (g["lr"], g["weight_decay"]) for g in groups}
    assert found == {
        ("layer.weight",): (0.2, 0.1),
        ("layer.bias", "norm.weight"): (0.2, 0.0),
        ("head.weight",): (0.5, 0.1),
        ("head.bias",): (0.5, 0.0),
    }
    assert {g["lr"] for g in parameter_groups(parameters, head, Settings(), 0.2)} == {0.2}
    only_head = {name: p for name, p in parameters.items() if name in head}
    assert len(parameter_groups(only_head, head, Settings(), 0.2)) == 2


@pytest.mark.parametrize(
    "field, value", [("max_grad_norm", 0.0), ("weight_decay", 0.5), ("warmup_steps", 3), ("adam_beta1", 0.5)]
)
def test_every_setting_changes_the_result(field, value):
    base = {"num_train_epochs": 2, "per_device_train_batch_size": 8, "max_grad_norm": 0.1, "warmup_steps": 0}
    results = []
    for settings in (Settings(**base), Settings(**base | {field: value})):
        line = Line()
        fit(line, settings)
        results.append(line.values())
    assert not torch.equal(results[0]["weight"], results[1]["weight"])


def test_head_and_pooler_have_a_separate_learning_rate(context):
    spec = spec_of(1, learning_rate=1e-12, head_learning_rate=1e-2)
    context.pretrained.start_run(frozenset(), generator_seed(spec.seed, "head"))
    before = weights_of(context)
    run(spec, context)
    places = context.pretrained.anatomy.places
    for name, value in weights_of(context).items():
        if (value - before[name]).abs().max() > 1e-6:
            assert places[name] in (HEAD, POOLER)


def test_the_learning_rate_decays_from_each_layer_to_the_one_below(context):
    anatomy = context.pretrained.anatomy
    parameters = dict(context.pretrained.model.named_parameters())
    spec = spec_of("llrd", way=Way(layer_decay=0.5), learning_rate=0.08, head_learning_rate=0.3)
    names = {id(p): name for name, p in parameters.items()}
    rates = {
        anatomy.places[names[id(p)]]: group["lr"]
        for group in optimizer_groups(spec, anatomy, parameters)
        for p in group["params"]
    }
    layers = {"layer 2": 0.08, "layer 1": 0.04, "layer 0": 0.02, "embeddings": 0.01}
    assert rates == pytest.approx({**layers, "pooler": 0.3, "head": 0.3})


def test_a_run_with_decay_equals_adamw_with_groups_made_by_hand(tmp_path):
    context = context_without_dropout(tmp_path)
    spec = way_spec(Way(layer_decay=0.5), learning_rate=8e-3)
    model, names = started(spec, context)
    trained = parameters_of(model, names)
    layers = {f"bert.encoder.layer.{n}.": rate for n, rate in enumerate((2e-3, 4e-3, 8e-3))}
    rates = {**layers, "bert.embeddings.": 1e-3, "bert.pooler.": 3e-3, "classifier.": 3e-3}
    groups = [
        {
            "params": [p],
            "lr": next(rate for beginning, rate in rates.items() if name.startswith(beginning)),
            "weight_decay": 0.0 if name.endswith(".bias") or "LayerNorm" in name else spec.weight_decay,
        }
        for name, p in trained.items()
    ]
    train_by_hand(model, trained, spec, context, groups=groups)
    assert gap(run(spec, context), trained) < 1e-5
    assert gap(run(way_spec(Way(), learning_rate=8e-3), context), trained) > 1e-3


def test_every_group_of_an_uncorrected_optimizer_says_so(context):
    parameters = dict(context.pretrained.model.named_parameters())
    spec = spec_of("uncorrected", way=Way(bias_correction=False))
    groups = optimizer_groups(spec, context.pretrained.anatomy, parameters)
    assert len(groups) == 4 and all(group["bias_correction"] is False for group in groups)


def test_every_accepted_schedule_works():
    for name in Settings.model_fields["lr_scheduler_type"].annotation.__args__:
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=1e-3)
        settings = Settings(lr_scheduler_type=name, num_train_epochs=1, per_device_train_batch_size=1)
        schedule = make_schedule(optimizer, settings, StepPlan.of(settings, 10))
        optimizer.step()
        schedule.step()
        assert 0 <= schedule.get_last_lr()[0] <= 1e-3, name
