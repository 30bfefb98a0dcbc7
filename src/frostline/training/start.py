"""Where a run starts: layers with new values, what is trained, and what restrains it.

The loop calls a restraint around each step, for ways that do more than follow the gradients of the model's parameters."""

import importlib.util
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from frostline import FrostlineError
from frostline.data.wording import model_name
from frostline.model.anatomy import Anatomy, module_of
from frostline.model.pretrained import Pretrained
from frostline.model.terms import FINAL_NORM, POOLER, layer_number, layer_place
from frostline.model.ways import Way
from frostline.training.run import Run, State


class Restraint:
    """Determines the model's parameters in a forward pass, or changes their gradients. Subclasses override what they need.

    The loop calls ``before_forward``, runs the model forward and backward, calls ``after_backward``, clips and steps, and calls
    ``after_step``. After ``after_step`` the model has the parameters that are scored and saved.
    """

    def before_forward(self) -> None:
        """Set the model's parameters for a forward pass of training."""

    def after_backward(self) -> None:
        """Set the gradients of the trained parameters from those of the model's parameters."""

    def after_step(self) -> None:
        """Set the model's parameters to those that the trained ones stand for."""

    def state(self) -> State:
        """What steps have changed, besides the trained parameters."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. The trained parameters must have the values that they had then."""
        self.after_step()


Parameters = Mapping[str, Tensor]  # by name


@dataclass(frozen=True)
class Mixout(Restraint):
    """Mixes the weights of some matrices with their pretrained values.

    Attributes:
        weights: The trained matrices, by name.
        pretrained: Their pretrained values, by name.
        share: The probability p that an element is replaced.
        random: Draws the masks.
    """

    weights: Parameters
    pretrained: Parameters
    share: float
    random: torch.Generator
    # by name, between forward and backward pass: (1 - m) / (1 - p), and w
    _kept: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)

    @torch.no_grad()
    def before_forward(self) -> None:
        """Mix the matrices."""
        for name, weight in self.weights.items():
            own = torch.rand(weight.shape, generator=self.random, device=self.random.device) >= self.share
            factor = own.to(weight.device, weight.dtype) / (1 - self.share)
            self._kept[name] = factor, weight.detach().clone()
            # with f = (1 - m) / (1 - p), equation 5 is u + f * (w - u)
            target = self.pretrained[name]
            weight.copy_(torch.addcmul(target, factor, weight - target))

    @torch.no_grad()
    def after_backward(self) -> None:
        """Restore the matrices, and set the gradients with respect to them."""
        for name, (factor, value) in self._kept.items():
            weight = self.weights[name]
            weight.copy_(value)
            if weight.grad is not None:
                weight.grad.mul_(factor)
        self._kept.clear()

    def state(self) -> State:
        """The state of the generator that draws the masks."""
        return {"random": self.random.get_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Draw the masks that follow on this state."""
        self.random.set_state(state["random"])


@dataclass(frozen=True)
class TowardsPretrained(Restraint):
    """Adds the gradient of the penalty.

    Attributes:
        parameters: The trained parameters, by name.
        pretrained: The pretrained values of those that are not new, by name.
        strength: The factor of the penalty.
    """

    parameters: Parameters
    pretrained: Parameters
    strength: float

    @torch.no_grad()
    def after_backward(self) -> None:
        """Add the penalty's gradient to that of the loss. A parameter that the loss does not depend on is pulled too."""
        for name, parameter in self.parameters.items():
            distance = parameter - self.pretrained[name] if name in self.pretrained else parameter
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.add_(distance, alpha=self.strength)


UP, DOWN = ".up", ".down"  # after the name of the matrix


@dataclass(frozen=True)
class LowRank(Restraint):
    """The low-rank updates of some weight matrices.

    Attributes:
        weights: The matrices in the model, by name.
        start: Their values without updates, by name.
        factors: The trained factors; their names are those of the matrices, with ``UP`` and ``DOWN``.
        transposed: The names of the matrices that are stored as ``[in, out]``.
        scale: The factor of the updates.
    """

    weights: Parameters
    start: Parameters
    factors: Parameters
    transposed: frozenset[str]
    scale: float

    def after_backward(self) -> None:
        """Set the gradients of the factors, and delete those of the matrices."""
        for name, weight in self.weights.items():
            up, down, gradient = self.factors[name + UP], self.factors[name + DOWN], weight.grad
            if gradient is None:
                continue
            if name in self.transposed:
                gradient = gradient.T
            up.grad, down.grad = self.scale * gradient @ down.T.detach(), self.scale * up.T.detach() @ gradient
            weight.grad = None

    @torch.no_grad()
    def after_step(self) -> None:
        """Add the updates to the matrices."""
        for name, weight in self.weights.items():
            up, down = self.factors[name + UP], self.factors[name + DOWN]
            if name in self.transposed:
                up, down = down.T, up.T
            torch.addmm(self.start[name], up, down, alpha=self.scale, out=weight.data)


def factors_of(
    weights: Parameters, transposed: frozenset[str], rank: int, seed: int | None = None
) -> dict[str, Tensor]:
    """New factors for these matrices: ``up`` is zero, ``down`` is uniform as PEFT's, so that training starts at W0.

    Without a seed, they have shapes only, for a plan.
    """
    random = None if seed is None else torch.Generator().manual_seed(seed)
    factors: dict[str, Tensor] = {}
    for name, weight in weights.items():
        out, width = reversed(weight.shape) if name in transposed else weight.shape
        device = torch.device("meta") if random is None else weight.device
        up, down = torch.zeros(out, rank, device=device), torch.empty(rank, width, device=device)
        if random is not None:
            limit = 1 / math.sqrt(width)  # nn.init.kaiming_uniform_ with a = sqrt(5)
            down.copy_(torch.empty(rank, width).uniform_(-limit, limit, generator=random))
        factors |= {name + UP: nn.Parameter(up), name + DOWN: nn.Parameter(down)}
    return factors


def matrix_of(name: str) -> str:
    """The name of the matrix that a factor belongs to; the name of any other parameter itself."""
    return name.removesuffix(UP).removesuffix(DOWN)


NORMAL_RANGE = 1.349  # the interquartile range of a normal distribution, in standard deviations


def with_modules(ways: Mapping[str, Way], model: nn.Module, anatomy: Anatomy) -> dict[str, Way]:
    """The ways that choose modules by their weights, with the modules that they choose in this pretrained model."""
    chosen = {name: way for name, way in ways.items() if way.chooses_by_weights}
    if not chosen:
        return {}
    ratios = {
        name: signal_to_noise(p)
        for name, p in model.named_parameters()
        if name in anatomy.matrices and layer_number(anatomy.places[name]) is not None
    }
    return {name: way.model_copy(update={"modules": _top(ratios, way.signal_share)}) for name, way in chosen.items()}


@torch.no_grad()
def signal_to_noise(matrix: Tensor) -> float:
    """The ratio by which matrices are ranked; infinite if all singular values are signal."""
    values = torch.linalg.svdvals(matrix.float())
    lower, upper = torch.quantile(values, torch.tensor([0.25, 0.75], device=values.device)).tolist()
    small, large = sorted(matrix.shape)
    limit = (upper - lower) / NORMAL_RANGE * (1 + math.sqrt(small / large))
    signal, noise = float(values[values > limit].sum()), float(values[values <= limit].sum())
    return signal / noise / float(values[0]) if noise else math.inf


def _top(ratios: Mapping[str, float], share: float) -> tuple[str, ...]:
    """The modules of this share of the matrices of each kind, at least one, with the highest ratios."""
    kinds: dict[str, list[str]] = {}
    for name in ratios:
        kinds.setdefault(re.sub(r"\.\d+\.", ".N.", name), []).append(name)
    chosen: list[str] = []
    for alike in kinds.values():
        ranked = sorted(alike, key=lambda name: -ratios[name])
        chosen += ranked[: max(1, round(share * len(ranked)))]
    return tuple(sorted(map(module_of, chosen)))


def reinitialized(spec: Run, anatomy: Anatomy) -> frozenset[str]:
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

    return frozenset(name for name, place in anatomy.places.items() if is_new(place)) & spec.parameters(anatomy)


def start_of(
    spec: Run, pretrained: Pretrained, parameters: Parameters
) -> tuple[Mapping[str, Tensor], Sequence[Restraint]]:
    """What a run trains, given the ``parameters`` of the model that it changes.

    Returns:
        The parameters that the optimizer steps, by name, and what else determines those of the model.
    """
    way, anatomy, new = spec.way, pretrained.anatomy, reinitialized(spec, pretrained.anatomy)
    if way.low_rank:  # head and pooler are trained as they are
        weights, whole = _with_updates(parameters, anatomy)
        transposed = transposed_in(pretrained.model, weights)
        before = {
            name: weight.detach().clone() if name in new else pretrained.pretrained_value(name)
            for name, weight in weights.items()
        }
        rank = rank_of(spec, pretrained.model, anatomy)
        factors = factors_of(weights, transposed, rank, spec.seed_for("low rank"))
        return {**factors, **whole}, [LowRank(weights, before, factors, transposed, way.low_rank_scale)]
    before = {name: pretrained.pretrained_value(name) for name in parameters if name not in pretrained.new | new}
    restraints: list[Restraint] = []
    if way.mixout:
        mixed = {name: parameters[name] for name in before.keys() & anatomy.matrices}
        random = torch.Generator().manual_seed(spec.seed_for("mixout"))
        restraints.append(Mixout(dict(sorted(mixed.items())), before, way.mixout, random))
    if way.towards_pretrained:
        restraints.append(TowardsPretrained(parameters, before, way.towards_pretrained))
    return parameters, restraints


def planned(spec: Run, model: nn.Module, anatomy: Anatomy) -> dict[str, Tensor]:
    """What a run trains, by name, for a plan. Tensors that do not exist yet have shapes only."""
    names = spec.parameters(anatomy)
    parameters = {name: p for name, p in model.named_parameters() if name in names}
    if not spec.way.low_rank:
        return dict(parameters)
    weights, whole = _with_updates(parameters, anatomy)
    return {**factors_of(weights, transposed_in(model, weights), rank_of(spec, model, anatomy)), **whole}


def rank_of(spec: Run, model: nn.Module, anatomy: Anatomy) -> int:
    """The rank of the updates. For ``last n``, their number of parameters is nearest to that of the last n layers."""
    rank = spec.way.low_rank
    if isinstance(rank, int):
        return rank
    last = {*map(layer_place, range(anatomy.count - spec.way.low_rank_like, anatomy.count))}
    parameters, names = dict(model.named_parameters()), spec.parameters(anatomy)
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


PREFIX = "base_model.model."  # before the name of each parameter in an adapter's file


def require_peft() -> None:
    """Refuse to keep an adapter without PEFT.

    Raises:
        FrostlineError: PEFT is not installed.
    """
    if importlib.util.find_spec("peft") is None:
        raise FrostlineError("--keep-adapter needs PEFT: install it with `pip install peft`, or leave it out.")


@torch.no_grad()
def write_adapter(folder: Path, spec: Run, pretrained: Pretrained) -> None:
    """Write the updates that the model holds since the run ``spec``, as ``adapter_config.json`` and safetensors.

    The factors are computed from the merged matrices by a singular value decomposition, so their product equals the trained
    update except for rounding. Head and pooler are saved as they are. The adapter has no type of task, because PEFT would then
    look for a head of one module.
    """
    from peft import LoraConfig

    model, places = pretrained.model, pretrained.anatomy.places
    changed = {n: p for n, p in model.named_parameters() if n in spec.parameters(pretrained.anatomy)}
    matrices = {name: p for name, p in changed.items() if layer_number(places[name]) is not None}
    transposed, scale = transposed_in(model, matrices), spec.way.low_rank_scale
    rank = rank_of(spec, model, pretrained.anatomy)
    tensors: dict[str, Tensor] = {}
    for name, weight in matrices.items():
        update = weight - pretrained.pretrained_value(name)
        update = (update.T if name in transposed else update) / scale
        left, values, right = torch.linalg.svd(update.float(), full_matrices=False)
        root, path = values[:rank].sqrt(), PREFIX + module_of(name)
        up, down = left[:, :rank] * root, root[:, None] * right[:rank]
        tensors |= {f"{path}.lora_A.weight": down, f"{path}.lora_B.weight": up}
    tensors |= {PREFIX + name: p for name, p in changed.items() if name not in matrices}
    config = LoraConfig(
        r=rank,
        lora_alpha=scale * rank,
        target_modules=sorted(map(module_of, matrices)),
        modules_to_save=sorted({module_of(name) for name in changed if name not in matrices}),
        fan_in_fan_out=bool(transposed),
        base_model_name_or_path=model_name(pretrained.name),
        revision=pretrained.revision,
        inference_mode=True,
    )
    config.save_pretrained(folder)
    save_file(
        {name: x.detach().cpu().contiguous() for name, x in tensors.items()}, folder / "adapter_model.safetensors"
    )
