"""One forward pass, traced: in which order a model calls its modules, and what its layers take and return."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

Batch = Mapping[str, Tensor]  # the model's inputs, [B, S] each, padded on the right


@dataclass(frozen=True)
class Call:
    """How the model calls one of its layers."""

    hidden: int | str  # the argument that carries the hidden states: a position or a name
    per_token: tuple[int | str, ...]  # other arguments with one entry per token (positions, rotary tables)
    wrap: type | None  # what a layer returns: None for a bare tensor, else tuple or list
    length: int  # how many items it has, hidden states first

    def output(self, hidden: Tensor) -> Any:
        """Hidden states in the form in which the layer returns them, with no other outputs."""
        return hidden if self.wrap is None else self.wrap([hidden, *[None] * (self.length - 1)])


class Trace:
    """What one forward pass shows: the order of calls, and each layer's inputs and outputs."""

    def __init__(self, model: PreTrainedModel, stack: nn.ModuleList) -> None:
        self.model, self.stack = model, stack
        self.clock = 0
        self.owners: dict[str, int] = {}  # module path -> when it was first entered
        self.order: list[int] = []  # layer numbers, in the order of calls
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
        """Which other lists hold modules that run between the first and the last layer; empty if none."""
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
