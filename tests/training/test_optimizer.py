"""Parameter groups, schedules, and the settings of the optimizer."""

import pytest
import torch
from torch import nn

from frostline.model.terms import HEAD, POOLER
from frostline.training.run import StepPlan, generator_seed
from frostline.training.settings import TrainingSettings
from frostline.training.train import run
from frostline.training.updates import make_schedule, parameter_groups
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
    groups = parameter_groups(parameters, head, TrainingSettings(weight_decay=0.1), 0.2, 0.5)
    names = {id(p): name for name, p in parameters.items()}
    found = {tuple(names[id(p)] for p in g["params"]): (g["lr"], g["weight_decay"]) for g in groups}
    assert found == {
        ("layer.weight",): (0.2, 0.1),
        ("layer.bias", "norm.weight"): (0.2, 0.0),
        ("head.weight",): (0.5, 0.1),
        ("head.bias",): (0.5, 0.0),
    }
    assert {g["lr"] for g in parameter_groups(parameters, head, TrainingSettings(), 0.2)} == {0.2}
    only_head = {name: p for name, p in parameters.items() if name in head}
    assert len(parameter_groups(only_head, head, TrainingSettings(), 0.2)) == 2


@pytest.mark.parametrize(
    "field, value", [("max_grad_norm", 0.0), ("weight_decay", 0.5), ("warmup_steps", 3), ("adam_beta1", 0.5)]
)
def test_every_setting_changes_the_result(field, value):
    base = {"num_train_epochs": 2, "per_device_train_batch_size": 8, "max_grad_norm": 0.1, "warmup_steps": 0}
    results = []
    for settings in (TrainingSettings(**base), TrainingSettings(**base | {field: value})):
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


def test_every_accepted_schedule_works():
    for name in TrainingSettings.model_fields["lr_scheduler_type"].annotation.__args__:
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=1e-3)
        settings = TrainingSettings(lr_scheduler_type=name, num_train_epochs=1, per_device_train_batch_size=1)
        schedule = make_schedule(optimizer, settings, StepPlan.of(settings, 10))
        optimizer.step()
        schedule.step()
        assert 0 <= schedule.get_last_lr()[0] <= 1e-3, name
