"""Steps of large embedding tables through the rows that were read so far.

A row that no text has read has neither gradient nor moments: each step of AdamW multiplies it by the same factor, the
weight decay. This multiplication is deferred until somebody reads the row. On the same gradients the steps are torch's own
but for rounding, because deferred decays are multiplied with each other first.

Shapes: N rows of the table, R rows that were read, D width.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from frostline.fast.forwards import forwards_replaced
from frostline.fast.switch import enabled

LARGE = 4096  # rows from which it pays
ATTRIBUTE = "sparse_gradient"  # of a parameter


@contextmanager
def sparse_gradients(model: nn.Module) -> Iterator[None]:
    """While the context is open, steps go through those rows of large trained tables that were read. On a GPU nothing
    changes.

    Lookups see every row up to date. Code that reads a table in any other way has to do so from the first step on, as
    everything that a model computes in each step does. Copy a table only after ``AdamW.flush``.
    """
    lookups = [module for module in large_tables(model).values() if module.weight.requires_grad]
    tables = {weight: SparseGradient(weight) for weight in {module.weight for module in lookups}}
    with ExitStack() as stack:
        for table in tables.values():
            stack.callback(table.close)
        stack.enter_context(forwards_replaced({module: _forward(module, tables[module.weight]) for module in lookups}))
        yield


def large_tables(model: nn.Module) -> dict[str, nn.Embedding]:
    """By path: the modules that look rows up in a large table whose weight no other kind of module holds."""
    if not enabled("sparse_gradients"):
        return {}
    found = {
        path: module for path, module in model.named_modules() if isinstance(module, nn.Embedding) and _is_plain(module)
    }
    others = {
        id(p) for module in {*model.modules()}.difference(found.values()) for p in module.parameters(recurse=False)
    }
    return {path: module for path, module in found.items() if id(module.weight) not in others}


def _is_plain(module: nn.Embedding) -> bool:
    return (
        type(module) is nn.Embedding
        and len(module.weight) >= LARGE
        and module.weight.device.type == "cpu"
        and module.max_norm is None
        and not module.scale_grad_by_freq
        and not module.sparse
    )


class SparseGradient:
    """The gradient of a table ``[N, D]`` for the R rows that were read so far; it stays attached until it is closed."""

    def __init__(self, parameter: Tensor) -> None:
        self.parameter = parameter
        self.rows = torch.empty(0, dtype=torch.long)  # [R], in the order in which they were first read
        self.index = torch.full((len(parameter),), -1)  # [N], the position of each row in ``rows``
        self.values: Tensor | None = None  # [R, D], the gradient of the current step
        self.decay = 1.0  # the deferred factor of all other rows
        vars(parameter)[ATTRIBUTE] = self

    def read(self, ids: Tensor) -> None:
        """Bring the rows ``ids`` up to date; to be called before they are read for training."""
        rows = torch.unique(ids)
        new = rows[self.index[rows] < 0]
        if not len(new):
            return
        self.index[new] = torch.arange(len(new)) + len(self.rows)
        self.rows = torch.cat([self.rows, new])
        if self.decay != 1:
            with torch.no_grad():
                self.parameter[new] *= self.decay

    def add(self, ids: Tensor, gradient: Tensor, padding: int | None) -> None:
        """Add the gradient ``[..., D]`` of the rows ``ids [...]``; the row ``padding`` has none."""
        ignored = -1 if padding is None else int(self.index[padding])
        backward = torch.ops.aten.embedding_dense_backward
        self._add(backward(gradient.float(), self.index[ids], len(self.rows), ignored, False))

    def _add(self, gradient: Tensor) -> None:
        self.values = gradient if self.values is None else _with_zeros(self.values, len(gradient)) + gradient

    def gradient(self) -> Tensor | None:
        """The gradient ``[R, D]`` of the current step; None if there is none."""
        if self.parameter.grad is not None:  # of code that read the parameter itself, and so all rows
            self.read(torch.arange(len(self.index)))
            self._add(self.parameter.grad[self.rows])
            self.parameter.grad = None
        return self.values

    def scale(self, factor: Tensor) -> None:
        """Multiply the gradient."""
        if self.values is not None:
            self.values.mul_(factor)

    def clear(self) -> None:
        """Forget the gradient."""
        self.values = None

    def step(self, group: dict[str, Any], state: dict[str, Any]) -> None:
        """One step of AdamW, with the options of a parameter ``group`` and the optimizer's ``state`` of the table."""
        assert self.values is not None
        count = len(self.rows)
        values = self.parameter[self.rows]
        for name in ("exp_avg", "exp_avg_sq"):
            known = state.get(name, values[:0])
            if len(known) < count:  # with capacity for some rows to come
                state[name] = _with_zeros(known, count + count // 4)
        moments = {name: x[:count] if x.dim() else x for name, x in state.items()}
        _adamw_step(values, _with_zeros(self.values, count), group, moments)
        state["step"] = moments["step"]
        self.parameter[self.rows] = values
        self.decay *= 1 - group["lr"] * group["weight_decay"]
        self.values = None

    def flush(self) -> None:
        """Multiply all other rows by their deferred decay."""
        if self.decay != 1:
            with torch.no_grad():
                values = self.parameter[self.rows]
                self.parameter.mul_(self.decay)
                self.parameter[self.rows] = values
            self.decay = 1.0

    def close(self) -> None:
        """Detach from the parameter, which is then up to date."""
        del vars(self.parameter)[ATTRIBUTE]
        self.flush()


def sparse_gradient(parameter: Tensor) -> SparseGradient | None:
    """What holds this parameter's gradient; None if the gradient is an ordinary one."""
    return vars(parameter).get(ATTRIBUTE)


def _adamw_step(values: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
    """torch's fused step of one tensor, in place: ``torch.optim`` has none for some rows of a parameter."""
    beta1, beta2 = group["betas"]
    step = state.setdefault("step", torch.zeros(())).add_(1)
    torch._fused_adamw_(
        [values],
        [gradient],
        [state["exp_avg"]],
        [state["exp_avg_sq"]],
        [],
        [step],
        lr=group["lr"],
        beta1=beta1,
        beta2=beta2,
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=False,
    )


def _with_zeros(x: Tensor, rows: int) -> Tensor:
    """Padded with zeros to this many rows."""
    return x if len(x) == rows else F.pad(x, (0, 0, 0, rows - len(x)))


def _forward(module: nn.Embedding, table: SparseGradient) -> Callable[[Tensor], Tensor]:
    def forward(ids: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            table.flush()
            return F.embedding(ids, module.weight)
        table.read(ids)
        return _Lookup.apply(module.weight, ids, table, module.padding_idx)  # type: ignore[no-any-return, no-untyped-call]

    return forward


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, ids: Tensor, table: SparseGradient, padding: int | None) -> Tensor:
        ctx.ids, ctx.table, ctx.padding = ids, table, padding
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.table.add(ctx.ids, gradients[0], ctx.padding)
        return None, None, None, None
