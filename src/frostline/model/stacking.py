"""Runs trained as one: what K runs train of a model is there K times, and one forward takes the rows of all.

No architecture's forward is rewritten, and none is known by name. A batch holds the texts of all runs, those of a run one
after another, so the leading dimension of what a module is given falls into K equal shares. A module that holds trained
parameters treats each share with that run's own. What is frozen is shared, and takes the rows as they come.

There are two ways to treat the shares. Run by run: the module's own forward, once for each, with the run's parameters
in place of the module's. As one: a batched product for ``Linear`` and ``Conv1D``, a broadcast for norms. The second pays
where starting an operation takes longer than carrying it out; other modules go run by run there, too. The first costs
little more than the second on a CPU, and computes the very numbers of the run alone.

Not every type can be stacked. :func:`frostline.frozen.check.stacking.stack_refusal` finds out on the model at hand.
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

Start = Callable[[int], Mapping[str, nn.Parameter]]  # a run's number -> the model's parameters, with its first values
Way = Callable[[nn.Module, Mapping[str, Tensor], Tensor], Tensor]  # module, parameters [K, ...], rows [K, n, ...]


@contextmanager
def stacked(
    model: PreTrainedModel, names: Set[str], runs: int, start: Start, *, as_one: bool
) -> Iterator[list[dict[str, Tensor]]]:
    """Open ``model`` for the rows of K = ``runs`` runs that train the parameters ``names``; undone on leaving.

    Gives each run's parameters by name: tensors for an optimizer, whose gradients come from the run's own rows alone.
    The model's own parameters stay as ``start`` left them, and get no gradients.
    """
    held = {name: Held.of(model, name) for name in names}
    modules = {name.rpartition(".")[0]: one.module for name, one in held.items()}
    ways = {path: _way(module) if as_one else None for path, module in modules.items()}
    stack = _Stack(runs)
    for run in range(runs):
        values = start(run)
        for name, value in values.items():  # in their order, in which norms are summed
            stack.take(run, name, value.detach(), together=ways[name.rpartition(".")[0]] is not None)
    for parameter in values.values():
        parameter.requires_grad_(False)
    hook = model.register_forward_pre_hook(stack.look, with_kwargs=True)
    try:
        for path, module in modules.items():
            module.forward = stack.forward(module, path, held, ways[path])
        yield stack.own
    finally:
        hook.remove()
        for module in modules.values():
            vars(module).pop("forward", None)


@dataclass(frozen=True, eq=False)
class Held:
    """Where a parameter is."""

    module: nn.Module
    leaf: str  # its name in the module

    @classmethod
    def of(cls, model: nn.Module, name: str) -> "Held":
        path, _, leaf = name.rpartition(".")
        return cls(model.get_submodule(path), leaf)

    @contextmanager
    def replaced(self, value: Tensor) -> Iterator[None]:
        """While this is open, the module finds ``value`` there: Python looks into the instance before it asks the module
        for its parameters."""
        instance = vars(self.module)
        before = instance.get(self.leaf)  # of a module around this one
        instance[self.leaf] = value
        try:
            yield
        finally:
            del instance[self.leaf]
            if before is not None:
                instance[self.leaf] = before


class _Stack:
    """The parameters of K runs, and the forwards of the modules that hold them."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.own: list[dict[str, Tensor]] = [{} for _ in range(runs)]
        self.whole: dict[str, nn.Parameter] = {}  # [K, ...], of what is computed as one
        self.texts = 0  # of one run, in the batch under way
        self.at: int | None = None  # whose share a module around this one is computing

    def take(self, run: int, name: str, value: Tensor, *, together: bool) -> None:
        """The first value of a run's parameter."""
        if not together:
            self.own[run][name] = nn.Parameter(value.clone())
            return
        if run == 0:
            whole = self.whole[name] = nn.Parameter(value.new_empty(self.runs, *value.shape))
            whole.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda whole: self._hand_out(name, whole)
            )
        self.own[run][name] = self.whole[name].detach()[run].copy_(value)

    def _hand_out(self, name: str, whole: Tensor) -> None:
        """To each run its part of a gradient."""
        assert whole.grad is not None
        for own, gradient in zip(self.own, whole.grad, strict=True):
            own[name].grad = gradient
        whole.grad = None

    def look(self, model: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Before each forward of the model: how many texts it is given."""
        self.texts = len(kwargs["input_ids"]) // self.runs

    def forward(self, module: nn.Module, path: str, names: Mapping[str, Held], way: Way | None) -> Callable[..., Any]:
        """The forward, for the rows of all runs, of the module at ``path``; ``names`` are all that is trained."""
        alone = module.forward
        inside = {name: held for name, held in names.items() if name.startswith(f"{path}.".removeprefix("."))}
        own = {held.leaf: name for name, held in inside.items() if held.module is module}

        def of_run(run: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            with ExitStack() as stack:
                for name, held in inside.items():
                    stack.enter_context(held.replaced(self.parameter(run, name)))
                return alone(*args, **kwargs)

        def run_by_run(*args: Any, **kwargs: Any) -> Any:
            if self.at is not None:
                return of_run(self.at, args, kwargs)
            outs = []
            try:
                for run in range(self.runs):
                    self.at = run
                    share = {name: self._share(x, run) for name, x in kwargs.items()}
                    outs.append(of_run(run, [self._share(x, run) for x in args], share))
            finally:
                self.at = None
            return self._joined(outs, for_all=all(_is_for_all(x) for x in (*args, *kwargs.values())))

        def as_one(x: Tensor, *args: Any, **kwargs: Any) -> Any:
            if way is None or self.at is not None or args or kwargs:
                return run_by_run(x, *args, **kwargs)
            return way(module, {leaf: self.whole[name] for leaf, name in own.items()}, self._shares(x)).flatten(0, 1)

        return run_by_run if way is None else as_one

    def parameter(self, run: int, name: str) -> Tensor:
        """A run's parameter, within the graph of all."""
        return self.whole[name][run] if name in self.whole else self.own[run][name]

    def _shares(self, x: Tensor) -> Tensor:  # [K * n, ...] -> [K, n, ...]
        return x.view(self.runs, len(x) // self.runs, *x.shape[1:])

    def _share(self, x: Any, run: int) -> Any:
        return x if _is_for_all(x) else self._shares(x)[run]

    def _joined(self, outs: Sequence[Any], *, for_all: bool) -> Any:
        """What the runs gave, one after another; what is the same for all texts of a run is said for each."""
        if isinstance(outs[0], tuple):
            return tuple(self._joined(parts, for_all=for_all) for parts in zip(*outs, strict=True))
        if outs[0] is None:
            return None
        return torch.cat([out.expand(self.texts, *out.shape[1:]) for out in outs] if for_all else list(outs))


def _is_for_all(x: Any) -> bool:
    """Whether every run is given this whole: no tensor, or one that leads with 1, such as positions."""
    return not isinstance(x, Tensor) or not x.dim() or len(x) == 1


def _way(module: nn.Module) -> Way | None:
    """How a module treats the rows of all runs as one; None where no such way is known."""
    if type(module) in (nn.Linear, Conv1D):
        return _product
    if type(module) in (nn.LayerNorm, nn.RMSNorm):
        return _scaled_norm
    plain = not list(module.children()) and all(p.dim() == 1 for p in module.parameters())
    named_so = "norm" in type(module).__name__.lower() and not isinstance(module, (nn.LayerNorm, nn.RMSNorm))
    return _broadcast if plain and named_so else None


def _product(module: nn.Module, whole: Mapping[str, Tensor], x: Tensor) -> Tensor:
    rows = x.flatten(1, -2)
    weight = whole["weight"].transpose(1, 2) if isinstance(module, nn.Linear) else whole["weight"]  # [K, in, out]
    bias = whole.get("bias")
    out = torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias[:, None], rows, weight)
    return out.view(*x.shape[:-1], -1)


def _scaled_norm(module: nn.Module, whole: Mapping[str, Tensor], x: Tensor) -> Tensor:
    if isinstance(module, nn.LayerNorm):
        out = F.layer_norm(x, module.normalized_shape, eps=module.eps)
    else:
        assert isinstance(module, nn.RMSNorm)
        out = F.rms_norm(x, list(module.normalized_shape), eps=module.eps)
    for leaf, combine in (("weight", torch.mul), ("bias", torch.add)):
        if leaf in whole:
            out = combine(out, _beside(whole[leaf], x))
    return out


def _broadcast(module: nn.Module, whole: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The module's own forward, which is taken to do nothing with its parameters but to multiply and add."""
    with ExitStack() as stack:
        for leaf, parameter in whole.items():
            stack.enter_context(Held(module, leaf).replaced(_beside(parameter, x)))
        return type(module).forward(module, x)  # type: ignore[no-any-return]


def _beside(parameter: Tensor, x: Tensor) -> Tensor:
    """A parameter ``[K, ...]`` in a shape that lies over ``x``, ``[K, n, ...]``."""
    return parameter.view(len(parameter), *[1] * (x.dim() - parameter.dim()), *parameter.shape[1:])
