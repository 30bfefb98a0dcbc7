"""Several runs trained in one model: trained parameters exist K times, and one forward pass computes the examples of all runs.

No architecture's forward is rewritten, and none is known by name. A batch holds the examples of all runs, run after run, so a
leading batch dimension splits into K equal parts. A module with trained parameters processes each part with that run's own
parameters. Frozen modules process the whole batch.

There are two ways. Run by run: the module's own forward once per run, with that run's parameters. Batched: one batched
product (``Linear``, ``Conv1D``), lookup (``Embedding``) or broadcast (norms). Batched pays where launching an operation takes
longer than computing it. Run by run costs little more on a CPU and gives exactly the numbers of the run alone.

Batched, linear modules that read the same tensor, such as those of queries, keys and values, are one product, also for one run.

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
# Arguments: a module, its parameters of all runs, [K, ...], its input for all runs, [K, n, ...], and whether products return
# [K, 1, T, D] token by token, as if transposed from [T, K, D]. One group norm then is the norm of all runs.
BatchedForward = Callable[[nn.Module, Mapping[str, Tensor], Tensor, bool], Tensor]


@contextmanager
def stacked(
    model: PreTrainedModel,
    names: Set[str],
    runs: int,
    start: Start,
    *,
    batched: bool,
    joint: Sequence[Sequence[str]] = (),
) -> Iterator[list[dict[str, Tensor]]]:
    """While the context is open, ``model`` takes the examples of K runs, each with its own trained parameters.

    A single run trains the model's own parameters. With several they stay as ``start`` left them, and get no gradients.

    Args:
        model: A classifier of transformers.
        names: The trained parameters.
        runs: K.
        start: Sets the model's parameters to the first values of a run and returns them.
        batched: Compute the runs together in those modules for which a batched forward is known, otherwise run by run.
        joint: Paths of linear modules that read the same tensor. They are computed together, if ``batched``.

    Yields:
        Each run's own trained parameters by name, for an optimizer. Their gradients come from the run's own examples only.
    """
    together = [_alike(model, names, paths) for paths in joint] if batched else []
    if runs == 1 and not any(together):
        yield [dict(start(0))]
        return
    locations = {name: ParameterLocation.of(model, name) for name in names}
    modules = {name.rpartition(".")[0]: location.module for name, location in locations.items()}
    if runs == 1:
        modules = {path: modules[path] for paths in together for path in paths}
    forwards = {path: _batched_forward(module) if batched else None for path, module in modules.items()}
    stack = _Stack(runs, {name for name in names if forwards.get(name.rpartition(".")[0])}, together)
    stack.has_norms = any(type(module) is nn.LayerNorm for module in modules.values())
    hook = model.register_forward_pre_hook(stack._begin, with_kwargs=True)
    try:
        for run in range(runs):
            values = start(run)
            stack.add_run(run, values)
        for parameter in values.values() if runs > 1 else ():
            parameter.requires_grad_(False)
        for path, module in modules.items():
            module.forward = stack.forward(module, path, locations, forwards[path])
        yield stack.own
    finally:
        hook.remove()
        for module in modules.values():
            vars(module).pop("forward", None)
        for own in (stack.own[0][name] for name in stack.batched_names) if runs == 1 else ():
            own.data = own.data.clone()  # files cannot be written of parameters that share memory


def _alike(model: nn.Module, names: Set[str], paths: Sequence[str]) -> list[str]:
    """Those of the linear modules at ``paths`` whose parameters are all trained, all with a bias or all without; at least two."""
    found: dict[int, list[str]] = {}
    for path in paths:
        own = [name for name, _ in model.get_submodule(path).named_parameters(path)]
        if names >= {*own}:
            found.setdefault(len(own), []).append(path)
    return max((some for some in found.values() if len(some) > 1), key=len, default=[])


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
        batched: The parameters of modules with a batched forward, by name: ``[K, ...]``. Those of each run are views of them. The
            parameters of linear modules that are computed together are one tensor, with the name of the first one.
        batched_names: The parameters of modules with a batched forward.
        has_norms: Whether a layer norm is trained.
        examples_per_run: Examples of each run in the current batch.
        current_run: The run that an enclosing module is computing; None outside of such modules.
    """

    def __init__(self, runs: int, batched_names: Set[str], together: Sequence[Sequence[str]]) -> None:
        self.runs = runs
        self.own: list[dict[str, Tensor]] = [{} for _ in range(runs)]
        self.batched: dict[str, Tensor] = {}
        self.has_norms = False
        self.examples_per_run = 0
        self.current_run: int | None = None
        self.batched_names = batched_names
        self._together = {path: paths for paths in together for path in paths}
        # by name: the name in ``batched``, and the rows of each run in there
        self._rows: dict[str, tuple[str, int, int]] = {}
        self._read: Tensor | None = None  # what the last joint product has read
        self._outputs: dict[str, Tensor] = {}  # its outputs that no module has taken yet, by path

    def add_run(self, run: int, values: Mapping[str, Tensor]) -> None:
        """Set the first values of a run's parameters. Their order is the order in which gradient norms are summed."""
        for name, parameter in values.items():
            if name in self.batched_names and name not in self._rows:
                self._make(name, values)
            if name in self._rows:
                own = self.parameter(run, name).copy_(parameter.detach())
            else:
                own = parameter.detach() if self.runs == 1 else parameter.detach().clone()
            if self.runs == 1:
                parameter.data = own
            self.own[run][name] = parameter if self.runs == 1 else own.requires_grad_()

    def _make(self, name: str, values: Mapping[str, Tensor]) -> None:
        """Memory for a parameter of all runs, and for those that are computed together with it."""
        path, _, leaf = name.rpartition(".")
        names, rows = [f"{other}.{leaf}" for other in self._together.get(path, [path])], 0
        for one in names:
            self._rows[one] = names[0], rows, (rows := rows + len(values[one]))
        self.batched[names[0]] = values[name].detach().new_empty(self.runs, rows, *values[name].shape[1:])

    def _begin(self, model: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        """A hook before each forward of the model."""
        self.examples_per_run = len(kwargs["input_ids"]) // self.runs
        if self.batched and torch.is_grad_enabled():
            own = [parameters[name] for name in self._rows for parameters in self.own]
            joined = _Joined.apply(self.batched, self._rows.values(), *own)  # type: ignore[no-untyped-call]
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
            if path in self._together and (self.runs == 1 or not _is_shared(x)):
                return self._product(path, x)
            if isinstance(module, nn.Embedding) and _is_shared(x):  # one more row costs less than copies of vectors
                x = x.expand(self.runs * self.examples_per_run, *x.shape[1:])
            parameters = {leaf: self._of_all(name) for leaf, name in own.items()}
            if not _is_shared(x):
                x = self._split(x)
                packed = x.dim() == 4 and x.shape[1] == 1 and x.shape[2] != self.examples_per_run
                return batched_forward(module, parameters, x, packed and self.has_norms).flatten(0, 1)
            out = batched_forward(module, parameters, x.expand(self.runs, *x.shape), False)  # [K, 1, ...]
            return out.expand(self.runs, self.examples_per_run, *out.shape[2:]).flatten(0, 1)

        return run_by_run if batched_forward is None else batched

    def parameter(self, run: int, name: str) -> Tensor:
        """A run's parameter. If it is batched, the result is a view of the run's part, so that gradients flow back."""
        return self._of_all(name)[run] if name in self._rows else self.own[run][name]

    def _of_all(self, name: str) -> Tensor:  # [K, ...]
        first, start, end = self._rows[name]
        whole = self.batched[first]
        return whole if whole.shape[1] == end - start else whole[:, start:end]

    def _product(self, path: str, x: Tensor) -> Tensor:
        """The output of a linear module. That of the modules that are computed together with it is at hand then."""
        if x is not self._read or path not in self._outputs:
            paths = self._together[path]
            weight, bias = (self.batched.get(f"{paths[0]}.{leaf}") for leaf in ("weight", "bias"))
            assert weight is not None
            if self.runs == 1:
                out = F.linear(x, weight.squeeze(0), None if bias is None else bias.squeeze(0))
            else:
                flat = self._split(x).flatten(1, -2)
                out = _Products.apply(flat, weight, bias, False).view(*x.shape[:-1], -1)  # type: ignore[no-untyped-call]
            rows = [self._rows[f"{one}.weight"] for one in paths]
            parts = torch.split(out, [end - start for _, start, end in rows], -1)
            self._read, self._outputs = x, dict(zip(paths, parts, strict=True))
        return self._outputs.pop(path)

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
    def forward(ctx: Any, batched: Mapping[str, Tensor], rows: Sequence[tuple[str, int, int]], *own: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.names, ctx.rows, ctx.runs = list(batched), rows, len(own) // len(rows)
        return tuple(x.detach() for x in batched.values())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        by_name, nothing = dict(zip(ctx.names, gradients, strict=True)), [None] * ctx.runs
        parts: list[Tensor | None] = []
        for name, start, end in ctx.rows:
            whole = by_name[name]  # None for parameters that this batch did not use
            parts += nothing if whole is None else whole[:, start:end]
        return None, None, *parts


class _Products(torch.autograd.Function):
    """``[K, n, in]`` to ``[K, n, out]``. Gradients have the layout of weights ``[K, out, in]``, so that torch copies none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, by_token: bool) -> Tensor:
        kind = x.device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            x, weight = (one.to(torch.get_autocast_dtype(kind)) for one in (x, weight))
            bias = None if bias is None else bias.to(x.dtype)
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        runs, count, size = *x.shape[:2], weight.shape[1]
        out = x.new_empty(count, runs, size).transpose(0, 1) if by_token else x.new_empty(runs, count, size)
        if bias is None:
            return torch.bmm(x, weight.mT, out=out)
        return torch.baddbmm(bias[:, None], x, weight.mT, out=out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,), (x, weight) = gradients, ctx.saved_tensors
        of_x = torch.bmm(gradient, weight, out=torch.empty_like(x)) if ctx.needs_input_grad[0] else None
        return of_x, torch.bmm(gradient.mT, x), gradient.sum(1) if ctx.has_bias else None, None


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


def _product(module: nn.Module, parameters: Mapping[str, Tensor], x: Tensor, by_token: bool) -> Tensor:
    flat, weight, bias = x.flatten(1, -2), parameters["weight"], parameters.get("bias")  # [K, n, in]
    if isinstance(module, nn.Linear):
        out: Tensor = _Products.apply(flat, weight, bias, by_token)  # type: ignore[no-untyped-call]
    else:  # [K, in, out]
        out = torch.bmm(flat, weight) if bias is None else torch.baddbmm(bias[:, None], flat, weight)
    return out.view(*x.shape[:-1], -1)


def _scaled_norm(module: nn.Module, parameters: Mapping[str, Tensor], x: Tensor, by_token: bool) -> Tensor:
    weight, bias = (parameters.get(leaf) for leaf in ("weight", "bias"))
    if isinstance(module, nn.LayerNorm):
        if by_token and weight is not None and bias is not None and x.transpose(0, 2).is_contiguous():
            tokens = x.squeeze(1).transpose(0, 1)  # [T, K, D]
            out = F.group_norm(tokens.flatten(1), len(x), weight.flatten(), bias.flatten(), module.eps)
            return out.view_as(tokens).transpose(0, 1)[:, None]
        out = F.layer_norm(x, module.normalized_shape, eps=module.eps)
    else:
        assert isinstance(module, nn.RMSNorm)
        out = F.rms_norm(x, list(module.normalized_shape), eps=module.eps)
    out = out if weight is None else out * _broadcastable(weight, x)
    return out if bias is None else out + _broadcastable(bias, x)


def _lookup(module: nn.Module, parameters: Mapping[str, Tensor], x: Tensor, by_token: bool) -> Tensor:
    assert isinstance(module, nn.Embedding)
    return _Lookup.apply(parameters["weight"], x, module.padding_idx)  # type: ignore[no-any-return, no-untyped-call]


class _Lookup(torch.autograd.Function):
    """One lookup in the tables ``[K, entries, D]`` of all runs, one below the other. The entry for padding gets no gradient."""

    @staticmethod
    def forward(ctx: Any, tables: Tensor, ids: Tensor, padding: int | None) -> Tensor:
        ctx.shape, ctx.padding = tables.shape, padding
        runs, entries = tables.shape[:2]
        rows = ids + torch.arange(0, runs * entries, entries, device=ids.device).view(-1, *[1] * (ids.dim() - 1))
        ctx.save_for_backward(rows)
        return F.embedding(rows, tables.flatten(0, 1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (rows,), (runs, entries, _) = ctx.saved_tensors, ctx.shape
        whole = torch.ops.aten.embedding_dense_backward(gradients[0], rows, runs * entries, -1, False).view(ctx.shape)
        if ctx.padding is not None:
            whole[:, ctx.padding].zero_()
        return whole, None, None


def _broadcast(module: nn.Module, parameters: Mapping[str, Tensor], x: Tensor, by_token: bool) -> Tensor:
    """The module's own forward. It is assumed to only multiply by its parameters and add them."""
    with ExitStack() as stack:
        for leaf, parameter in parameters.items():
            stack.enter_context(ParameterLocation(module, leaf).replaced(_broadcastable(parameter, x)))
        return type(module).forward(module, x)  # type: ignore[no-any-return]


def _broadcastable(parameter: Tensor, x: Tensor) -> Tensor:
    """A parameter ``[K, ...]`` in a shape that broadcasts to ``x``, ``[K, n, ...]``."""
    return parameter.view(len(parameter), *[1] * (x.dim() - parameter.dim()), *parameter.shape[1:])
