"""The optimizer, its parameter groups and its learning-rate schedule.

To add an optimizer setting, add a field to :class:`frostline.training.specification.TrainingSettings` and use it here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_scheduler

from frostline.fast.optimizer import AdamW, sparse_gradient
from frostline.model.anatomy import Anatomy
from frostline.model.terms import HEAD, POOLER
from frostline.training.checkpoint import State
from frostline.training.settings import TrainingSettings
from frostline.training.specification import RunSpec
from frostline.training.steps import StepPlan
from frostline.training.ways.low_rank import matrix_of
from frostline.training.ways.rates import adam_options, layer_factor

CHANGING = ("lr", "members")  # options of a group that steps change


def make_optimizer(groups: Sequence[Mapping[str, Any]], settings: TrainingSettings) -> AdamW:
    """AdamW on these parameter groups."""
    return AdamW(_merged(groups), betas=(settings.adam_beta1, settings.adam_beta2), eps=settings.adam_epsilon)


def make_schedule(optimizer: AdamW, settings: TrainingSettings, steps: StepPlan) -> LambdaLR:
    """The learning-rate schedule of transformers."""
    schedule: LambdaLR = get_scheduler(settings.lr_scheduler_type, optimizer, steps.warmup, steps.total)
    return schedule


def learning_rates(schedule: LambdaLR, steps: StepPlan) -> Tensor:
    """``[steps, G]``: the learning rate of each of G parameter groups in each step."""
    factors = [[factor(step) for factor in schedule.lr_lambdas] for step in range(steps.total)]
    return torch.tensor(factors) * torch.tensor(schedule.base_lrs)


def optimizer_groups(spec: RunSpec, anatomy: Anatomy, parameters: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """The parameter groups of a run. Head and pooler have a separate learning rate.

    Where the way of the run has other learning rates for some layers, these have groups of their own.
    """
    if spec.learning_rate is None:  # the run trains no parameter of the model
        return []
    places = {name: anatomy.places[matrix_of(name)] for name in parameters}
    head = frozenset(name for name, place in places.items() if place in (HEAD, POOLER))
    by_factor: dict[float, dict[str, Tensor]] = {}
    for name, p in parameters.items():
        by_factor.setdefault(layer_factor(spec.way, places[name], anatomy), {})[name] = p
    head_rate = spec.head_learning_rate or spec.learning_rate
    return [
        {**group, **adam_options(spec.way)}
        for factor, members in by_factor.items()
        for group in parameter_groups(members, head, spec, spec.learning_rate * factor, head_rate)
    ]


def parameter_groups(
    parameters: Mapping[str, Tensor],
    head: frozenset[str],
    settings: TrainingSettings,
    learning_rate: float,
    head_learning_rate: float | None = None,
) -> list[dict[str, Any]]:
    """At most four groups: layers and head, each with and without weight decay.

    Weight decay applies to matrices, not to parameters of one dimension, such as biases and norms.

    Args:
        parameters: The trained parameters by name.
        head: The names of the parameters that belong to the head.
        settings: Contains the weight decay.
        learning_rate: The learning rate of the layers.
        head_learning_rate: The learning rate of the head; None: the same as for the layers.
    """
    groups = []
    for is_head, rate in {False: learning_rate, True: head_learning_rate or learning_rate}.items():
        for decays in (True, False):
            members = [p for n, p in parameters.items() if (n in head) == is_head and (p.dim() > 1) == decays]
            if members:
                decay = settings.weight_decay if decays else 0.0
                groups.append({"params": members, "lr": rate, "weight_decay": decay})
    return groups


def optimizer_state(optimizer: AdamW, schedule: LambdaLR) -> State:
    """What steps change besides the parameters: moments, learning rates, deferred updates and the place in the schedule."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    tables = [sparse_gradient(p) for p in parameters]
    return {
        "moments": [dict(optimizer.state.get(p, {})) for p in parameters],
        "groups": [{name: group[name] for name in CHANGING if name in group} for group in optimizer.param_groups],
        "tables": [table.state() if table else None for table in tables],
        "schedule": schedule.state_dict(),
    }


def load_optimizer_state(optimizer: AdamW, schedule: LambdaLR, state: Mapping[str, Any]) -> None:
    """Continue from a state. The parameters must have the values that they had then."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for p, moments, deferred in zip(parameters, state["moments"], state["tables"], strict=True):
        if moments:
            optimizer.state[p] = {name: value.to(p.device) for name, value in moments.items()}
        if deferred:
            table = sparse_gradient(p)
            assert table is not None, "the state has deferred updates of a table that has none here"
            table.load_state(deferred)
    for group, values in zip(optimizer.param_groups, state["groups"], strict=True):
        group.update(values)
    schedule.load_state_dict(state["schedule"])


def _merged(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merge groups with equal settings, because every group costs the optimizer time."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for group in groups:
        settings = {name: value for name, value in group.items() if name != "params"}
        merged.setdefault(tuple(settings.items()), {**settings, "params": []})["params"] += group["params"]
    return list(merged.values())
