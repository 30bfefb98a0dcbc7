"""Trace one forward pass: the order in which a model calls its modules, and the inputs and outputs of its layers."""

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
    """How the model calls one of its layers.

    Attributes:
        hidden: The argument that carries the hidden states: its position or its name.
        per_token: Other arguments with one entry per token (positions, rotary tables): their positions or names.
        wrap: The type that the layer returns: ``tuple`` or ``list``; None for a bare tensor.
        length: The number of returned items, of which the hidden states are the first.
    """

    hidden: int | str
    per_token: tuple[int | str, ...]
    wrap: type | None
    length: int

    def output(self, hidden: Tensor) -> Any:
        """``hidden`` as the layer would return it: wrapped like its own output, with None for all other outputs."""
        return hidden if self.wrap is None else self.wrap([hidden, *[None] * (self.length - 1)])


class Trace:
    """Records one forward pass: the order of module calls, and the inputs and outputs of each layer.

    Attributes:
        calls_so_far: How many module calls have begun.
        first_called: By module path: the number of the module's first call.
        order: The numbers of the layers, in the order of their calls.
        after_layer: For each layer call: ``calls_so_far`` when it returned.
        calls: How each layer is called.
        width: The width of the hidden states.
        reached: Whether a module of the list gets a floating-point tensor with three dimensions, like hidden states.
        problem: Why some layer cannot be cut; empty if all can.
    """

    def __init__(self, model: PreTrainedModel, layers: nn.ModuleList) -> None:
        self.model, self.layers = model, layers
        self.calls_so_far = 0
        self.first_called: dict[str, int] = {}
        self.order: list[int] = []
        self.after_layer: list[int] = []
        self.calls: list[Call] = []
        self.width = 0
        self.reached = False
        self.problem = ""

    def run(self, batch: Batch) -> None:
        """Trace the forward pass of ``batch`` in eval mode; the model is left as it was."""
        grid = batch["input_ids"].shape
        mode = self.model.training
        self.model.eval()
        try:
            with ExitStack() as hooks, torch.no_grad():
                for name, module in self.model.named_modules():
                    hooks.callback(module.register_forward_pre_hook(self._count_call(name)).remove)
                for number, layer in enumerate(self.layers):
                    enter, leave = self._layer_hooks(number, grid)
                    hooks.callback(layer.register_forward_pre_hook(enter, with_kwargs=True).remove)
                    hooks.callback(layer.register_forward_hook(leave, with_kwargs=True).remove)
                self.model(**batch)
        finally:
            self.model.train(mode)

    def _count_call(self, name: str) -> Any:
        """A hook that runs before the module at path ``name``."""

        def hook(module: nn.Module, args: Any) -> None:
            self.calls_so_far += 1
            self.first_called.setdefault(name, self.calls_so_far)

        return hook

    def _layer_hooks(self, number: int, grid: torch.Size) -> tuple[Any, Any]:
        """Hooks that run before and after layer ``number``; ``grid`` is the shape ``[B, S]`` of the batch."""

        def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.order.append(number)
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            self.reached |= any(x.is_floating_point() and x.dim() == 3 for x in given)

        def leave(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            self.after_layer.append(self.calls_so_far)
            named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
            hidden = next((key for key, x in named if _is_hidden(x, grid)), None)
            wrap = next((kind for kind in (tuple, list) if type(out) is kind), None)
            first = out[0] if wrap else out
            if hidden is None or not _is_hidden(first, grid):
                given = next((tuple(x.shape) for _, x in named if isinstance(x, Tensor)), "no tensor")
                self.problem = (
                    f"its layers do not take and return one vector per token (for a batch of {tuple(grid)} tokens they "
                    f"are given {given} and return {_shape(out)})"
                )
                return
            if dict(named)[hidden].shape != first.shape:
                self.problem = "the width of its hidden states changes from layer to layer"
            self.width = first.shape[-1]
            per_token = tuple(key for key, x in named if key != hidden and _is_per_token(x, grid))
            self.calls.append(Call(hidden, per_token, wrap, len(out) if wrap else 1))

        return enter, leave

    def refusal(self) -> str:
        """Why the modules are not layers that run one after the other; empty if they are."""
        if len(self.order) > len(set(self.order)) or self._layers_share_weights():
            return "it shares weights between layers, so no layer is tuned alone"
        if self.order != list(range(len(self.layers))):
            return f"its layers are not called one after the other, but in the order {self.order}"
        return self.problem

    def parallel_lists(self, path: str, others: Sequence[str]) -> str:
        """Why the list at ``path`` does not hold whole layers; empty if it does.

        Each layer is then spread over several lists: modules of ``others`` run between the first and the last module of this
        list.
        """
        start, end = self.first_called[f"{path}.0"], self.after_layer[-1]
        calls = {
            other: [n for name, n in self.first_called.items() if name.startswith(f"{other}.")] for other in others
        }
        parallel = [other.rpartition(".")[2] for other in others if any(start < n <= end for n in calls[other])]
        names = ", ".join([path.rpartition(".")[2], *parallel])
        return f"its layers are spread over parallel lists of modules ({names})" if parallel else ""

    def _layers_share_weights(self) -> bool:
        parameters = [id(p) for layer in self.layers for p in set(layer.parameters())]
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
