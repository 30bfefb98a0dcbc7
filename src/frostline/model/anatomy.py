"""Where the layers of a model are, what belongs to them, and what k tuned layers train.

Nothing here knows a single architecture by name. The layers are the ``ModuleList`` that holds most
parameters; one traced forward shows that each is called once, in order, with one vector per token going
in and coming out, and what runs before them and after them. What does not fit is refused with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline import FrostlineError

Batch = Mapping[str, Tensor]  # the model's inputs, [B, S] each, padded on the right

EMBEDDINGS, FINAL_NORM, POOLER, HEAD = "embeddings", "final norm", "pooler", "head"
LAYER = "layer "  # and its number: the place of what is in a layer


@dataclass(frozen=True)
class Call:
    """How the model calls its layers, seen in the traced forward."""

    hidden: int | str  # the argument that carries the hidden states: a position or a name
    per_token: tuple[int | str, ...]  # other arguments with one entry per token (positions, rotary tables)
    wrap: type | None  # what a layer returns: None for a bare tensor, else tuple or list
    length: int  # and how many things are in it, hidden states first

    def hand_on(self, hidden: Tensor) -> Any:
        """Hidden states as a layer returns them, and nothing beside them."""
        return hidden if self.wrap is None else self.wrap([hidden, *[None] * (self.length - 1)])


@dataclass(frozen=True)
class Anatomy:
    """The layers of a model and the place of every parameter.

    ``places`` gives each parameter's name exactly one place: ``embeddings`` (with them what all layers
    share), ``layer 0`` .. ``layer L-1``, ``final norm``, ``pooler`` or ``head``.
    """

    path: str  # of the ModuleList
    count: int  # L
    places: Mapping[str, str]
    calls: tuple[Call, ...]  # one a layer
    width: int  # D
    idle: frozenset[str] = frozenset()  # parameters of modules that do not run

    def layers(self, model: nn.Module) -> list[nn.Module]:
        stack = model.get_submodule(self.path)
        assert isinstance(stack, nn.ModuleList)
        return list(stack)

    def depth(self, names: Set[str]) -> int | None:
        """How many layers there are from the lowest one that holds any of ``names`` to the top.

        None: the embeddings hold one. A run that trains ``names`` may take up hidden states below so many layers.
        """
        places = {self.places[name] for name in names}
        if EMBEDDINGS in places:
            return None
        return max(
            (self.count - int(place.removeprefix(LAYER)) for place in places if place.startswith(LAYER)), default=0
        )


def probe_batch(model: PreTrainedModel, lengths: Sequence[int] = (23, 17, 9), *, seed: int = 0) -> dict[str, Tensor]:
    """A batch of random tokens of these ``lengths``, for models that need no more than tokens."""
    config = model.config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None) or max(lengths)
    lengths = [min(length, positions) for length in lengths]
    pad = config.pad_token_id if config.pad_token_id is not None else 0
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(0, config.vocab_size, mask.shape, generator=generator)
    special = {pad, config.bos_token_id, config.eos_token_id, getattr(config, "sep_token_id", None)}
    plain = next(i for i in range(config.vocab_size) if i not in special)
    for token in special - {None}:
        ids[ids == token] = plain
    batch = {"input_ids": torch.where(mask.bool(), ids, pad), "attention_mask": mask}
    return {name: x.to(model.device) for name, x in batch.items()}


def find_layers(model: PreTrainedModel, batch: Batch | None = None) -> Anatomy:
    """Find the layers of ``model`` by a traced forward of ``batch`` (random tokens by default).

    Raises:
        FrostlineError: the type cannot be cut, with the reason.
    """
    kind = model.config.model_type
    if model.config.is_encoder_decoder:
        raise FrostlineError(
            f"A model of type {kind!r} cannot be cut: it is an encoder-decoder, whose later layers read the "
            "encoder's output beside the hidden states. Choose an encoder or a decoder."
        )
    batch = probe_batch(model) if batch is None else batch
    stacks = _stacks(model)
    problem = (
        "its largest list of modules holds no layers that are called as modules"
        if stacks
        else "it has no list of layers"
    )
    for path, stack in stacks:
        trace = _Trace(model, stack)
        trace.run(batch)
        if not trace.reached:  # a part for images, or a list of embeddings
            continue
        problem = trace.complaint() or trace.parallel(path, [other for other, _ in stacks if other != path])
        if problem:
            break
        return Anatomy(
            path=path,
            count=len(stack),
            places=dict(_places(model, path, trace.owners, trace.left[-1])),
            calls=tuple(trace.calls),
            width=trace.width,
            idle=frozenset(n for n, _ in model.named_parameters() if n.rpartition(".")[0] not in trace.owners),
        )
    raise FrostlineError(f"A model of type {kind!r} cannot be cut: {problem}. Choose another model.")


def _stacks(model: nn.Module) -> list[tuple[str, nn.ModuleList]]:
    """Lists of modules that stand in no other list, the one with most parameters first."""
    lists = {name: m for name, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m)}
    outer = {name: m for name, m in lists.items() if not any(name.startswith(f"{other}.") for other in lists)}
    return sorted(outer.items(), key=lambda pair: -sum(p.numel() for p in pair[1].parameters()))


class _Trace:
    """What one forward shows: the order of calls, and each layer's inputs and outputs."""

    def __init__(self, model: PreTrainedModel, stack: nn.ModuleList) -> None:
        self.model, self.stack = model, stack
        self.clock = 0
        self.owners: dict[str, int] = {}  # module path -> when it was first entered
        self.order: list[int] = []  # layer numbers, as they were called
        self.left: list[int] = []
        self.calls: list[Call] = []
        self.width = 0
        self.reached = False  # whether hidden states of any shape go into the modules of this list
        self.problem = ""

    def run(self, batch: Batch) -> None:
        grid = batch["input_ids"].shape
        mode = self.model.training
        self.model.eval()
        try:
            with ExitStack() as hooks, torch.no_grad():
                for name, module in self.model.named_modules():
                    hooks.callback(module.register_forward_pre_hook(self._clock(name)).remove)
                for number, layer in enumerate(self.stack):
                    enter, leave = self._layer(number, grid)
                    hooks.callback(layer.register_forward_pre_hook(enter, with_kwargs=True).remove)
                    hooks.callback(layer.register_forward_hook(leave, with_kwargs=True).remove)
                self.model(**batch)
        finally:
            self.model.train(mode)

    def _clock(self, name: str) -> Any:
        def tick(module: nn.Module, args: Any) -> None:
            self.clock += 1
            self.owners.setdefault(name, self.clock)

        return tick

    def _layer(self, number: int, grid: torch.Size) -> tuple[Any, Any]:
        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.order.append(number)
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            self.reached |= any(x.is_floating_point() and x.dim() == 3 for x in given)

        def leave(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            self.left.append(self.clock)
            named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
            hidden = next((key for key, x in named if _is_hidden(x, grid)), None)
            wrap = next((kind for kind in (tuple, list) if type(out) is kind), None)
            first = out[0] if wrap else out
            if hidden is None or not _is_hidden(first, grid):
                seen = next((tuple(x.shape) for _, x in named if isinstance(x, Tensor)), "no tensor")
                self.problem = (
                    f"its layers do not take and return one vector per token (for a batch of {tuple(grid)} tokens they "
                    f"are given {seen} and return {_shape(out)})"
                )
                return
            if dict(named)[hidden].shape != first.shape:
                self.problem = "the width of its hidden states changes from layer to layer"
            self.width = first.shape[-1]
            per_token = tuple(key for key, x in named if key != hidden and _is_per_token(x, grid))
            self.calls.append(Call(hidden, per_token, wrap, len(out) if wrap else 1))

        return enter, leave

    def complaint(self) -> str:
        """Why this is not a plain chain of layers; empty if it is one."""
        if len(self.order) > len(set(self.order)) or self._tied():
            return "it shares weights between layers, so no layer is tuned alone"
        if self.order != list(range(len(self.stack))):
            return f"its layers are not called one after the other, but in the order {self.order}"
        return self.problem

    def parallel(self, path: str, others: Sequence[str]) -> str:
        """What runs between the first and the last layer but stands in other lists; empty if nothing does."""
        start, end = self.owners[f"{path}.0"], self.left[-1]
        when = {other: [t for name, t in self.owners.items() if name.startswith(f"{other}.")] for other in others}
        beside = [other.rpartition(".")[2] for other in others if any(start < t <= end for t in when[other])]
        names = ", ".join([path.rpartition(".")[2], *beside])
        return f"its layers are spread over parallel lists of modules ({names})" if beside else ""

    def _tied(self) -> bool:
        parameters = [id(p) for layer in self.stack for p in set(layer.parameters())]
        return len(parameters) > len(set(parameters))


def _shape(out: Any) -> Any:
    if isinstance(out, Tensor):
        return tuple(out.shape)
    return f"{type(out).__name__} of {len(out)}" if isinstance(out, tuple | list) else type(out).__name__


def _is_hidden(x: Any, grid: torch.Size) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.dim() == 3 and x.shape[:2] == grid


def _is_per_token(x: Any, grid: torch.Size) -> bool:
    if isinstance(x, tuple):
        return bool(x) and all(_is_per_token(item, grid) for item in x)
    return isinstance(x, Tensor) and x.dim() in (2, 3, 4) and x.shape[0] in (1, grid[0]) and x.shape[1] == grid[1]


def _places(model: PreTrainedModel, path: str, owners: Mapping[str, int], last: int) -> Iterator[tuple[str, str]]:
    """The place of each parameter, by its module: in a layer, outside the base model, or by when it ran."""
    prefix = model.base_model_prefix
    base = f"{prefix}." if prefix and hasattr(model, prefix) else ""
    for name, _ in model.named_parameters():
        owner, _, _ = name.rpartition(".")
        if name.startswith(f"{path}."):
            yield name, f"{LAYER}{name.removeprefix(f'{path}.').split('.')[0]}"
        elif not name.startswith(base):
            yield name, HEAD
        elif owners.get(owner, 0) <= last:
            yield name, EMBEDDINGS
        elif "norm" in type(model.get_submodule(owner)).__name__.lower() and "pool" not in owner:
            yield name, FINAL_NORM
        else:
            yield name, POOLER if base else HEAD


def count_parameters(model: nn.Module, names: frozenset[str] | None = None) -> int:
    """Parameters of ``model``, or of those named."""
    return sum(p.numel() for name, p in model.named_parameters() if names is None or name in names)
