"""Several runs trained in one model: trained parameters exist K times, and one forward pass computes the examples of all runs.

No architecture's forward is rewritten, and none is known by name. A batch holds the examples of all runs, run after run, so a
leading batch dimension splits into K equal parts. A module with trained parameters processes each part with that run's own
parameters. Frozen modules process the whole batch.

There are two ways. Run by run: the module's own forward once per run, with that run's parameters. Batched: one batched
product (``Linear``, ``Conv1D``), lookup (``Embedding``) or broadcast (norms). Batched pays where launching an operation takes
longer than computing it. Run by run costs little more on a CPU and gives exactly the numbers of the run alone.

Some types of model cannot be stacked. :func:`frostline.frozen.exactness.stack_refusal` tests a given model.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

Start = Callable[
    [int], Mapping[str, nn.Parameter]
]  # a run's number -> the model's parameters with the run's first values
# Arguments: a module, its parameters of all runs, [K, ...], and its input for all runs, [K, n, ...].
BatchedForward = Callable[[nn.Module, Mapping[str, Tensor], Tensor], Tensor]


@contextmanager
def stacked(
    model: PreTrainedModel, names: Set[str], runs: int, start: Start, *, batched: bool
) -> Iterator[list[dict[str, Tensor]]]:
    """While the context is open, ``model`` takes the examples of K runs, each with its own trained parameters.

    Args:
        model: A classifier of transformers. Its own parameters stay as ``start`` left them, and get no gradients.
        names: The trained parameters.
        runs: K.
        start: Sets the model's parameters to the first values of a run and returns them.
        batched: Compute the runs together in those modules for which a batched forward is known, otherwise run by run.

    Yields:
        Each run's own trained parameters by name, for an optimizer. Their gradients come from the run's own examples only.
    """
    locations = {name: ParameterLocation.of(model, name) for name in names}
    modules = {name.rpartition(".")[0]: location.module for name, location in locations.items()}
    forwards = {path: _batched_forward(module) if batched else None for path, module in modules.items()}
    transposed = {name for name in names if name.endswith(".weight") and isinstance(locations[name].module, nn.Linear)}
    stack = _Stack(runs, {name for name in names if forwards[name.rpartition(".")[0]] is not None}, transposed)
    hook = model.register_forward_pre_hook(stack._begin, with_kwargs=True)
    try:
        for run in range(runs):
            values = start(run)
            stack.add_run(run, values)
        for parameter in values.values():
            parameter.requires_grad_(False)
        for path, module in modules.items():
            module.forward = stack.forward(module, path, locations, forwards[path])
        yield stack.own
    finally:
        hook.remove()
        for module in modules.values():
            vars(module).pop("forward", None)


@dataclass(frozen=True, eq=False)
class ParameterLocation:
    """The module that holds a parameter, and the parameter's name in this module."""

    module: nn.Module
    leaf: str

    @classmethod
    def of(cls, model: nn.Module, name: str) -> "ParameterLocation":
        path, _, leaf = name.rpartition(".")
        return cls(model.get_submodule(path), leaf)

    @contextmanager
    def replaced(self, value: Tensor) -> Iterator[None]:
        """While the context is open, the module's attribute is ``value`` instead of the parameter.

        Python looks an attribute up in the instance before it asks the module for its parameters.
        """
        instance = vars(self.module)
        before = instance.get(self.leaf)  # set if the forward of an enclosing module has replaced it already
        instance[self.leaf] = value
        try:
            yield
        finally:
            del instance[self.leaf]
            if before is not None:
                instance[self.leaf] = before


class _Stack:
    """The parameters of K runs, and the forwards of the modules that hold them.

    Attributes:
        runs: K.
        own: Each run's own parameters by name.
        batched: The parameters of modules with a batched forward, by name: ``[K, ...]``. Those of each run are views of them.
        examples_per_run: Examples of each run in the current batch.
        current_run: The run that an enclosing module is computing; None outside of such modules.
    """

    def __init__(self, runs: int, batched_names: Set[str], transposed: Set[str]) -> None:
        self.runs = runs
        self.own: list[dict[str, Tensor]] = [{} for _ in range(runs)]
        self.batched: dict[str, Tensor] = {}
        self.examples_per_run = 0
        self.current_run: int | None = None
        self._batched_names, self._transposed = batched_names, transposed

    def add_run(self, run: int, values: Mapping[str, Tensor]) -> None:
        """Set the first values of a run's parameters. Their order is the order in which gradient norms are summed."""
        for name, parameter in values.items():
            value = parameter.detach()
            if name not in self._batched_names:
                self.own[run][name] = nn.Parameter(value.clone())
                continue
            if run == 0:
                self.batched[name] = self._empty(name, value)
            self.own[run][name] = self.batched[name][run].copy_(value).requires_grad_()

    def _empty(self, name: str, value: Tensor) -> Tensor:
        """Memory for a parameter of all runs, ``[K, ...]``.

        On devices other than CPUs, matrices are stored as products return their gradients, which torch would copy otherwise.
        """
        if name in self._transposed and value.device.type != "cpu":
            return value.new_empty(self.runs, *value.T.shape).transpose(1, 2)
        return value.new_empty(self.runs, *value.shape)

    def _begin(self, model: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        """A hook before each forward of the model."""
        self.examples_per_run = len(kwargs["input_ids"]) // self.runs
        if self.batched and torch.is_grad_enabled():
            own = [parameters[name] for name in self.batched for parameters in self.own]
            joined = _Joined.apply(list(self.batched.values()), *own)  # type: ignore[no-untyped-call]
            self.batched = dict(zip(self.batched, joined, strict=True))

    def forward(
        self,
        module: nn.Module,
        path: str,
        locations: Mapping[str, ParameterLocation],
        batched_forward: BatchedForward | None,
    ) -> Callable[..., Any]:
        """The forward for the examples of all runs of the module at ``path``, all at once if ``batched_forward`` is known."""
        original = module.forward
        prefix = f"{path}.".removeprefix(".")
        inside = {name: location for name, location in locations.items() if name.startswith(prefix)}
        own = {location.leaf: name for name, location in inside.items() if location.module is module}

        def of_run(run: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            with ExitStack() as stack:
                for name, location in inside.items():
                    stack.enter_context(location.replaced(self.parameter(run, name)))
                return original(*args, **kwargs)

        def run_by_run(*args: Any, **kwargs: Any) -> Any:
            if self.current_run is not None:
                return of_run(self.current_run, args, kwargs)
            outputs = []
            try:
                for run in range(self.runs):
                    self.current_run = run
                    own_kwargs = {name: self._part(x, run) for name, x in kwargs.items()}
                    outputs.append(of_run(run, [self._part(x, run) for x in args], own_kwargs))
            finally:
                self.current_run = None
            return self._concatenated(outputs, shared=all(_is_shared(x) for x in (*args, *kwargs.values())))

        def batched(x: Tensor, *args: Any, **kwargs: Any) -> Any:
            if batched_forward is None or self.current_run is not None or args or kwargs:
                return run_by_run(x, *args, **kwargs)
            parameters = {leaf: self.batched[name] for leaf, name in own.items()}
            if not _is_shared(x):
                return batched_forward(module, parameters, self._split(x)).flatten(0, 1)
            out = batched_forward(module, parameters, x.expand(self.runs, *x.shape))  # [K, 1, ...]
            return out.expand(self.runs, self.examples_per_run, *out.shape[2:]).flatten(0, 1)

        return run_by_run if batched_forward is None else batched

    def parameter(self, run: int, name: str) -> Tensor:
        """A run's parameter. If it is batched, the result is a view of the run's part, so that gradients flow back."""
        return self.batched[name][run] if name in self.batched else self.own[run][name]

    def _split(self, x: Tensor) -> Tensor:  # [K * n, ...] -> [K, n, ...]
        return x.view(self.runs, len(x) // self.runs, *x.shape[1:])

    def _part(self, x: Any, run: int) -> Any:
        """The part of an input that belongs to a run."""
        return x if _is_shared(x) else self._split(x)[run]

    def _concatenated(self, outputs: Sequence[Any], *, shared: bool) -> Any:
        """The outputs of all runs, run after run. With ``shared`` inputs, that of a run is repeated for its examples."""
        if isinstance(outputs[0], tuple):
            return tuple(self._concatenated(items, shared=shared) for items in zip(*outputs, strict=True))
        if outputs[0] is None:
            return None
        return torch.cat([x.expand(self.examples_per_run, *x.shape[1:]) for x in outputs] if shared else list(outputs))


class _Joined(torch.autograd.Function):
    """Parameters of all runs, ``[K, ...]`` each, without a copy. Each run's own parameters get its parts of their gradients."""

    @staticmethod
    def forward(ctx: Any, batched: Sequence[Tensor], *own: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.runs = len(own) // len(batched)
        return tuple(x.detach() for x in batched)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        nothing = [None] * ctx.runs  # the gradients of parameters that this batch did not use
        return None, *(part for whole in gradients for part in (nothing if whole is None else whole))


def _is_shared(x: Any) -> bool:
    """Whether all runs get the whole input: it is no tensor, or its leading dimension is 1 (for example positions)."""
    return not isinstance(x, Tensor) or not x.dim() or len(x) == 1


def _batched_forward(module: nn.Module) -> BatchedForward | None:
    """The function that computes a module for all runs together; None if none is known."""
    if type(module) in (nn.Linear, Conv1D):
        return _product
    if type(module) in (nn.LayerNorm, nn.RMSNorm):
        return _scaled_norm
    if type(module) is nn.Embedding and module.max_norm is None and not (module.scale_grad_by_freq or module.sparse):
        return _lookup
    elementwise = not list(module.children()) and all(p.dim() == 1 for p in module.parameters())
    is_other_norm = "norm" in type(module).__name__.lower() and not isinstance(module, (nn.LayerNorm, nn.RMSNorm))
    return _broadcast if elementwise and is_other_norm else None


def _product(module: nn.Module, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
    flat = x.flatten(1, -2)  # [K, n, in]
    weight = (
        parameters["weight"].transpose(1, 2) if isinstance(module, nn.Linear) else parameters["weight"]
    )  # [K, in, out]
    bias = parameters.get("bias")
    out = torch.bmm(flat, weight) if bias is None else torch.baddbmm(bias[:, None], flat, weight)
    return out.view(*x.shape[:-1], -1)


def _scaled_norm(module: nn.Module, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
    if isinstance(module, nn.LayerNorm):
        out = F.layer_norm(x, module.normalized_shape, eps=module.eps)
    else:
        assert isinstance(module, nn.RMSNorm)
        out = F.rms_norm(x, list(module.normalized_shape), eps=module.eps)
    weight, bias = (_broadcastable(parameters[leaf], x) if leaf in parameters else None for leaf in ("weight", "bias"))
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _lookup(module: nn.Module, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """One lookup in the tables of all runs, one below the other."""
    assert isinstance(module, nn.Embedding)
    tables = parameters["weight"]  # [K, entries, D]
    runs, entries = tables.shape[:2]
    first = torch.arange(0, runs * entries, entries, device=x.device).view(-1, *[1] * (x.dim() - 1))
    out = F.embedding(x + first, tables.flatten(0, 1))
    if module.padding_idx is None:
        return out
    return torch.where((x == module.padding_idx)[..., None], out.detach(), out)  # its entry gets no gradient


def _broadcast(module: nn.Module, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The module's own forward. It is assumed to only multiply by its parameters and add them."""
    with ExitStack() as stack:
        for leaf, parameter in parameters.items():
            stack.enter_context(ParameterLocation(module, leaf).replaced(_broadcastable(parameter, x)))
        return type(module).forward(module, x)  # type: ignore[no-any-return]


def _broadcastable(parameter: Tensor, x: Tensor) -> Tensor:
    """A parameter ``[K, ...]`` in a shape that broadcasts to ``x``, ``[K, n, ...]``."""
    return parameter.view(len(parameter), *[1] * (x.dim() - parameter.dim()), *parameter.shape[1:])
