"""Where a run starts: which layers get new values, what is trained, and what restrains it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from frostline.model.anatomy import Anatomy
from frostline.model.pretrained import Pretrained
from frostline.model.terms import FINAL_NORM, POOLER, layer_number, layer_place
from frostline.training.specification import RunSpec
from frostline.training.ways.low_rank import LowRank, factors_of, planned_factors
from frostline.training.ways.restraint import Mixout, Parameters, Restraint, TowardsPretrained


@dataclass(frozen=True)
class Start:
    """What a run trains.

    Attributes:
        trained: The parameters that the optimizer steps, by name.
        restraints: What else determines the model's parameters.
    """

    trained: Mapping[str, Tensor]
    restraints: Sequence[Restraint] = ()


def reinitialized(spec: RunSpec, anatomy: Anatomy) -> frozenset[str]:
    """Names of the pretrained parameters that this run starts from new values: top layers, final norm and pooler."""
    way, kept = spec.way, anatomy.count
    if way.reinitialized:
        kept = anatomy.count - way.reinitialized
    elif way.transferred is not None:
        kept = way.transferred
    if kept >= anatomy.count:
        return frozenset()

    def is_new(place: str) -> bool:
        number = layer_number(place)
        return place in (POOLER, FINAL_NORM) if number is None else number >= kept

    return frozenset(name for name, place in anatomy.places.items() if is_new(place)) & spec.to_train.parameters(
        anatomy
    )


def start_of(spec: RunSpec, pretrained: Pretrained, parameters: Mapping[str, Tensor]) -> Start:
    """What a run trains, given the ``parameters`` of the model that it changes."""
    way, new = spec.way, pretrained.new | reinitialized(spec, pretrained.anatomy)
    if way.low_rank:
        return _low_rank(spec, pretrained, parameters)
    before = {name: pretrained.pretrained_value(name) for name in parameters if name not in new}
    restraints: list[Restraint] = []
    if way.mixout:
        mixed = {name: parameters[name] for name in before.keys() & pretrained.anatomy.matrices}
        random = torch.Generator().manual_seed(spec.seed_for("mixout"))
        restraints.append(Mixout(dict(sorted(mixed.items())), before, way.mixout, random))
    if way.towards_pretrained:
        restraints.append(TowardsPretrained(parameters, before, way.towards_pretrained))
    return Start(parameters, restraints)


def _low_rank(spec: RunSpec, pretrained: Pretrained, parameters: Mapping[str, Tensor]) -> Start:
    """Low-rank updates of the layers' matrices; head and pooler are trained as they are."""
    weights, whole = _with_updates(parameters, pretrained.anatomy)
    transposed = transposed_in(pretrained.model, weights)
    new = reinitialized(spec, pretrained.anatomy)
    before = {
        name: weight.detach().clone() if name in new else pretrained.pretrained_value(name)
        for name, weight in weights.items()
    }
    rank = rank_of(spec, pretrained.model, pretrained.anatomy)
    factors = factors_of(weights, transposed, rank, spec.seed_for("low rank"))
    return Start({**factors, **whole}, [LowRank(weights, before, factors, transposed, scale=spec.way.low_rank_scale)])


def planned(spec: RunSpec, model: nn.Module, anatomy: Anatomy) -> dict[str, Tensor]:
    """What a run trains, by name, for a plan. Tensors that do not exist yet have shapes only."""
    names = spec.to_train.parameters(anatomy)
    parameters = {name: p for name, p in model.named_parameters() if name in names}
    if not spec.way.low_rank:
        return dict(parameters)
    weights, whole = _with_updates(parameters, anatomy)
    return {**dict(planned_factors(weights, transposed_in(model, weights), rank_of(spec, model, anatomy))), **whole}


def rank_of(spec: RunSpec, model: nn.Module, anatomy: Anatomy) -> int:
    """The rank of the updates. For ``last n``, their number of parameters is nearest to that of the last n layers."""
    rank = spec.way.low_rank
    if isinstance(rank, int):
        return rank
    last = {*map(layer_place, range(anatomy.count - spec.way.low_rank_like, anatomy.count))}
    parameters, names = dict(model.named_parameters()), spec.to_train.parameters(anatomy)
    wanted = sum(p.numel() for name, p in parameters.items() if anatomy.places[name] in last)
    weights, _ = _with_updates({name: p for name, p in parameters.items() if name in names}, anatomy)
    return max(1, round(wanted / sum(sum(weight.shape) for weight in weights.values())))


def _with_updates(parameters: Parameters, anatomy: Anatomy) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The matrices that get low-rank updates, and all other trained parameters."""
    weights = {name: p for name, p in parameters.items() if layer_number(anatomy.places[name]) is not None}
    return weights, {name: p for name, p in parameters.items() if name not in weights}


def transposed_in(model: nn.Module, names: Mapping[str, Tensor]) -> frozenset[str]:
    """The names of those matrices that the model keeps as ``[in, out]``."""
    return frozenset(name for name in names if not isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Linear))
