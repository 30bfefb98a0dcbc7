"""AdamW, the gradient norm and gradient clipping, for dense gradients and for sparse gradients of large embedding tables.

Dense gradients are computed by torch's own functions. Of a large embedding table, only those rows are updated that were read so
far. A row that no example has read has no gradient, and its Adam moments are zero. A step of AdamW only multiplies it by the
weight decay factor, which is the same for all such rows. This multiplication is deferred until the row is read. The updates
equal those of torch's AdamW except for rounding, because several deferred decay factors are multiplied with each other first.

Shapes: N rows of the table, R rows that were read, D width.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from frostline.fast.switch import enabled, forwards_replaced

LARGE = 4096  # rows: smaller tables are updated faster as a whole
ATTRIBUTE = "sparse_gradient"  # the attribute of a parameter that holds its SparseGradient


@contextmanager
def sparse_gradients(model: nn.Module) -> Iterator[None]:
    """While the context is open, optimizer steps update only those rows of large trained tables that were read.

    Lookups return rows with all updates applied. Code that reads a table in another way has to do so in every step, from the
    first one on. Call ``AdamW.flush`` before you copy a table. On a GPU nothing changes.
    """
    lookups = [module for module in large_tables(model).values() if module.weight.requires_grad]
    tables = {weight: SparseGradient(weight) for weight in {module.weight for module in lookups}}
    with ExitStack() as stack:
        for table in tables.values():
            stack.callback(table.close)
        stack.enter_context(forwards_replaced({module: _forward(module, tables[module.weight]) for module in lookups}))
        yield


def large_tables(model: nn.Module) -> dict[str, nn.Embedding]:
    """By path: the embedding modules with a large table that is not also the weight of another kind of module."""
    if not enabled("sparse_gradients"):
        return {}
    found = {
        path: module
        for path, module in model.named_modules()
        if type(module) is nn.Embedding
        and len(module.weight) >= LARGE
        and module.weight.device.type == "cpu"
        and module.max_norm is None
        and not module.scale_grad_by_freq
        and not module.sparse
    }
    others = {
        id(p) for module in {*model.modules()}.difference(found.values()) for p in module.parameters(recurse=False)
    }
    return {path: module for path, module in found.items() if id(module.weight) not in others}


class SparseGradient:
    """The gradient of a table ``[N, D]`` for the R rows that were read so far. It is an attribute of the table until closed.

    Attributes:
        parameter: The table.
        rows: ``[R]``, the rows that were read, in the order of their first reading.
        index: ``[N]``, the position of each row in ``rows``; -1 for a row that was not read.
        values: ``[R, D]``, the gradient of the current step; None if there is none.
        decay: The deferred decay factor of all rows that were not read.
    """

    def __init__(self, parameter: Tensor) -> None:
        self.parameter = parameter
        self.rows = torch.empty(0, dtype=torch.long)
        self.index = torch.full((len(parameter),), -1)
        self.values: Tensor | None = None
        self.decay = 1.0
        vars(parameter)[ATTRIBUTE] = self

    def read(self, ids: Tensor) -> None:
        """Apply the deferred decay to the rows ``ids``. Call this before a training step reads them."""
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
        """Add the gradient ``[..., D]`` of a lookup of ``ids`` ``[...]``. The row ``padding`` gets no gradient."""
        ignored = -1 if padding is None else int(self.index[padding])
        backward = torch.ops.aten.embedding_dense_backward
        self._add(backward(gradient.float(), self.index[ids], len(self.rows), ignored, False))

    def _add(self, gradient: Tensor) -> None:
        self.values = gradient if self.values is None else _with_zeros(self.values, len(gradient)) + gradient

    def gradient(self) -> Tensor | None:
        """The gradient ``[R, D]`` of the current step; None if there is none."""
        if self.parameter.grad is not None:  # code has read the table without a lookup, so all rows were read
            self.read(torch.arange(len(self.index)))
            self._add(self.parameter.grad[self.rows])
            self.parameter.grad = None
        return self.values

    def step(self, state: dict[str, Tensor], options: Mapping[str, Any]) -> None:
        """One step of AdamW, with the moments ``state`` of the table."""
        assert self.values is not None
        count = len(self.rows)
        values = self.parameter[self.rows]
        for name in ("exp_avg", "exp_avg_sq"):
            if len(state[name]) < count:  # allocate capacity for rows that later steps read
                state[name] = _with_zeros(state[name], count + count // 4)
        moments = {name: x[:count] if x.dim() else x for name, x in state.items()}
        _fused_step([values], [_with_zeros(self.values, count)], [moments], [state["step"].add_(1)], options)
        self.parameter[self.rows] = values
        self.decay *= 1 - options["lr"] * options["weight_decay"]
        self.values = None

    def flush(self) -> None:
        """Apply the deferred decay to all rows that were not read."""
        if self.decay != 1:
            with torch.no_grad():
                values = self.parameter[self.rows]
                self.parameter.mul_(self.decay)
                self.parameter[self.rows] = values
            self.decay = 1.0

    def state(self) -> dict[str, Any]:
        """The rows that were read and the deferred decay, for :meth:`load_state`."""
        return {"rows": self.rows, "decay": self.decay}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. The table must have the values that it had then."""
        self.rows, self.decay = state["rows"], state["decay"]
        self.index[self.rows] = torch.arange(len(self.rows))

    def close(self) -> None:
        """Remove this object from the table and apply all deferred updates."""
        del vars(self.parameter)[ATTRIBUTE]
        self.flush()


def sparse_gradient(parameter: Tensor) -> SparseGradient | None:
    """The sparse gradient of a parameter; None if its gradient is dense."""
    return vars(parameter).get(ATTRIBUTE)


def _fused_step(
    values: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
    moments: Sequence[Mapping[str, Tensor]],
    counts: Sequence[Tensor | None],
    options: Mapping[str, Any],
) -> None:
    """torch's fused AdamW step, in place. ``torch.optim`` cannot step only some rows of a parameter, nor skip a step."""
    averages = [[one[name] for one in moments] for name in ("exp_avg", "exp_avg_sq")]
    step: Any = torch._fused_adamw_
    step(values, gradients, *averages, [], counts, **options)


def _with_zeros(x: Tensor, rows: int) -> Tensor:
    """``x``, padded with zeros to this many rows."""
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


ENDLESS = 1e12  # steps: after as many, the correction of Adam's moments is a division by 1


def gradient_of(parameter: Tensor) -> Tensor | None:
    """The gradient of the current step, None if there is none. A sparse gradient has only the rows that were read."""
    sparse = sparse_gradient(parameter)
    return sparse.gradient() if sparse else parameter.grad


def gradients_of(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The gradients of those parameters that have one."""
    return [gradient for p in parameters if (gradient := gradient_of(p)) is not None]


def clear_gradients(parameters: Iterable[Tensor]) -> None:
    """Set all gradients to None, dense and sparse ones."""
    for parameter in parameters:
        parameter.grad = None
        if sparse := sparse_gradient(parameter):
            sparse.values = None


class AdamW:
    """AdamW with torch's fused kernel, for dense and sparse gradients.

    A group with ``bias_correction = False`` steps as the optimizer of the original BERT did, ``lr * m / (sqrt(v) + eps)``, which
    does not correct the moments m and v for their start at zero (Mosbach et al. 2021, arXiv:2006.04884, section 5).

    Attributes:
        groups: The parameters with their options ``lr`` and ``weight_decay``.
        moments: Of each parameter that has had a gradient: ``exp_avg``, ``exp_avg_sq`` and perhaps ``step``, its own count.
    """

    def __init__(self, groups: Iterable[Mapping[str, Any]], *, betas: tuple[float, float], eps: float) -> None:
        merged: dict[tuple[Any, ...], dict[str, Any]] = {}  # equal options in one group, because every group takes time
        for group in groups:
            options = {name: value for name, value in group.items() if name != "params"}
            merged.setdefault(tuple(options.items()), {**options, "params": []})["params"] += group["params"]
        self.groups, self.moments = list(merged.values()), dict[Tensor, dict[str, Tensor]]()
        self._options = {"beta1": betas[0], "beta2": betas[1], "eps": eps, "amsgrad": False, "maximize": False}

    @torch.no_grad()
    def step(
        self,
        factor: float | Tensor = 1.0,
        *,
        count: Tensor | None = None,
        divisor: Tensor | None = None,
        skip: Tensor | None = None,
    ) -> None:
        """Step with ``factor`` times the learning rates, and clear the gradients.

        Args:
            factor: A number, or one on the device.
            count: The number of steps with this one; None: the steps in which a parameter had a gradient.
            divisor: What the gradients are divided by; None: nothing.
            skip: 1 to skip the step, else 0; None: 0.
        """
        for group in self.groups:
            options = {**self._options, "lr": group["lr"] * factor, "weight_decay": group["weight_decay"]}
            dense = []
            for p in group["params"]:
                if gradient_of(p) is None:
                    continue
                table = sparse_gradient(p)
                if p not in self.moments:
                    moments = [torch.zeros_like(p[:0] if table else p) for _ in range(2)]
                    self.moments[p] = dict(zip(("exp_avg", "exp_avg_sq"), moments, strict=True))
                    corrects = group.get("bias_correction", True)
                    if count is None or not corrects:
                        self.moments[p]["step"] = torch.full((), 0.0 if corrects else ENDLESS, device=p.device)
                if table:
                    table.step(self.moments[p], options)
                else:
                    dense.append(p)
            if dense:
                of_dense = [self.moments[p] for p in dense]
                counts = [one.get("step", count) for one in of_dense]
                if count is None:
                    torch._foreach_add_([one["step"] for one in of_dense], 1)
                options |= {"grad_scale": divisor, "found_inf": skip}
                _fused_step(dense, [p.grad for p in dense], of_dense, counts, options)
            clear_gradients(group["params"])

    def flush(self) -> None:
        """Apply all deferred updates, so that tables can be read in other ways than by lookups."""
        for sparse in self._tables():
            if sparse:
                sparse.flush()

    def state(self) -> dict[str, Any]:
        """What steps change besides the parameters: moments and deferred updates."""
        moments = [self.moments.get(p, {}) for group in self.groups for p in group["params"]]
        return {"moments": moments, "tables": [table.state() if table else None for table in self._tables()]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. The parameters must have the values that they had then."""
        parameters = [p for group in self.groups for p in group["params"]]
        for p, moments in zip(parameters, state["moments"], strict=True):
            if moments:
                self.moments[p] = {name: value.to(p.device) for name, value in moments.items()}
        for table, deferred in zip(self._tables(), state["tables"], strict=True):
            if table:
                table.load_state(deferred)

    def _tables(self) -> list["SparseGradient | None"]:
        return [sparse_gradient(p) for group in self.groups for p in group["params"]]
