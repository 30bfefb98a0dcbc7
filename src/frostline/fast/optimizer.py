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

    def scale(self, factor: Tensor) -> None:
        """Multiply the gradient."""
        if self.values is not None:
            self.values.mul_(factor)

    def clear(self) -> None:
        """Delete the gradient."""
        self.values = None

    def step(self, group: dict[str, Any], state: dict[str, Any]) -> None:
        """One step of AdamW.

        Args:
            group: The options of the table's parameter group.
            state: The optimizer's state of the table.
        """
        assert self.values is not None
        count = len(self.rows)
        values = self.parameter[self.rows]
        for name in ("exp_avg", "exp_avg_sq"):
            moment = state.get(name, values[:0])
            if len(moment) < count:  # allocate capacity for rows that later steps read
                state[name] = _with_zeros(moment, count + count // 4)
        moments = {name: x[:count] if x.dim() else x for name, x in state.items()}
        step = state.setdefault("step", torch.zeros(())).add_(1)
        _fused_step([values], [_with_zeros(self.values, count)], [moments], [step], group)
        self.parameter[self.rows] = values
        self.decay *= 1 - group["lr"] * group["weight_decay"]
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
    values: list[Tensor],
    gradients: Sequence[Tensor | None],
    moments: Sequence[Mapping[str, Tensor]],
    steps: list[Tensor],
    group: Mapping[str, Any],
    **more: Any,
) -> None:
    """torch's fused AdamW step, in place. ``torch.optim`` cannot step only some rows of a parameter, nor skip a step."""
    beta1, beta2 = group["betas"]
    options = {"lr": group["lr"], "weight_decay": group["weight_decay"], "eps": group["eps"], **more}
    averages = [[one[name] for one in moments] for name in ("exp_avg", "exp_avg_sq")]
    step: Any = torch._fused_adamw_
    step(values, gradients, *averages, [], steps, beta1=beta1, beta2=beta2, amsgrad=False, maximize=False, **options)


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


def total_norm(parameters: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all gradients together."""
    return nn.utils.get_total_norm([gradient for p in parameters if (gradient := gradient_of(p)) is not None])


def clip(parameters: Iterable[Tensor], limit: float, norm: Tensor) -> None:
    """Scale gradients with the total ``norm`` down to at most ``limit``, like ``nn.utils.clip_grads_with_norm_``."""
    factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
    dense = []
    for parameter in parameters:
        if parameter.grad is not None:
            dense.append(parameter)
        if sparse := sparse_gradient(parameter):
            sparse.scale(factor)
    nn.utils.clip_grads_with_norm_(dense, limit, norm)


def clear_gradients(parameters: Iterable[Tensor]) -> None:
    """Set all gradients to None, dense and sparse ones."""
    for parameter in parameters:
        parameter.grad = None
        if sparse := sparse_gradient(parameter):
            sparse.clear()


class AdamW(torch.optim.AdamW):
    """torch's fused AdamW for dense and sparse gradients. Each step also clears the gradients.

    A group with ``bias_correction = False`` steps as the optimizer of the original BERT did, ``lr * m / (sqrt(v) + eps)``, which
    does not correct the moments m and v for their start at zero (Mosbach et al. 2021, arXiv:2006.04884, section 5).
    """

    def __init__(self, groups: list[dict[str, Any]], *, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, betas=betas, eps=eps, fused=True)
        self._condition: tuple[Tensor, Tensor | None, Tensor, Tensor | None] | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        if self._condition:
            self._conditional_step(*self._condition)
        else:
            self._unconditional_step()
        self.zero_grad()

    def _unconditional_step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if gradient_of(parameter) is None:
                    continue
                state, sparse = self.state[parameter], sparse_gradient(parameter)
                if not state and not _corrects(group):
                    state = state if sparse else self._new_moments(parameter)
                    state["step"] = torch.full((), ENDLESS, device=parameter.device)
                if sparse:
                    sparse.step(group, state)
        super().step()

    def step_unless(self, skip: Tensor, divisor: Tensor | None, steps: Tensor, rates: Tensor | None = None) -> None:
        """A step that the device skips by itself, with the same parameters in every step. The gradients are cleared.

        Args:
            skip: 1 to skip the step, else 0.
            divisor: What the gradients are divided by; None: nothing.
            steps: The number of steps so far, with this one unless it is skipped.
            rates: The learning rate of each group, on the device; None: those of the groups.
        """
        self._condition = skip, divisor, steps, rates
        self.step()  # of which the schedule keeps count
        self._condition = None

    def _conditional_step(self, skip: Tensor, divisor: Tensor | None, steps: Tensor, rates: Tensor | None) -> None:
        for n, group in enumerate(self.param_groups):
            members = [p for p in group["params"] if p.grad is not None]
            assert len(members) == group.setdefault("members", len(members)), (
                "other parameters have gradients than before"
            )
            moments = [self.state[p] or self._new_moments(p) for p in members]
            if not members:
                continue
            counted = steps if _corrects(group) else torch.full_like(steps, ENDLESS)
            rate = group["lr"] if rates is None else rates[n]
            gradients, counts = [p.grad for p in members], [counted] * len(members)
            _fused_step(members, gradients, moments, counts, group, lr=rate, grad_scale=divisor, found_inf=skip)

    def _new_moments(self, parameter: Tensor) -> dict[str, Tensor]:
        moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        self.state[parameter] = moments
        return moments

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            clear_gradients(group["params"])

    def flush(self) -> None:
        """Apply all deferred updates, so that tables can be read in other ways than by lookups."""
        for group in self.param_groups:
            for sparse in filter(None, map(sparse_gradient, group["params"])):
                sparse.flush()


def _corrects(group: dict[str, Any]) -> bool:
    corrects: bool = group.get("bias_correction", True)
    return corrects
