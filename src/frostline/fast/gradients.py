"""Gradients in the form that they come in, and AdamW on them.

A step of a small batch takes longer to move what AdamW needs than to compute it, so little is moved. Under autocast a
product gives its weight's gradient in bf16; in fp32 it is the same number in twice the room, which is written, read for its
length and read again for the step. It is kept as it came, and widened where it is used, one weight at a time; and the form of
the weight that the next product wants is made while the weight is at hand. Of a table of embeddings, rows that no text has
read have neither gradient nor moments: each step multiplies them all by the same factor, the decay. They wait, and are
multiplied when somebody reads them.

The steps are torch's own: on the same gradients short ones give the same to the last bit, and rows of tables but for
rounding, since decays that were waited for are multiplied first. The length of all gradients, by which they are clipped, is off
by some 1e-4 at most, since large short ones tell the length of each of their rows in short numbers, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import increment_version

ROWS = 256  # so many rounding errors of a row's length, each .4 % of it at most, leave about .0001 of the whole


@dataclass
class Form:
    """A parameter as products want it, and the version of the parameter that it was made of."""

    numbers: Tensor
    version: int

    def renew(self, parameter: Tensor) -> None:
        """Have it as the parameter is now."""
        self.numbers.copy_(parameter.detach())
        self.version = parameter._version


@dataclass
class _Short:
    """A gradient as a product gave it, what it is to be multiplied by, and the form of the weight that it was made with."""

    numbers: Tensor
    form: Form | None = None
    factor: Tensor | None = None

    @property
    def length(self) -> Tensor:
        """Before it is multiplied."""
        matrix, norm = self.numbers, torch.linalg.vector_norm
        parts = norm(matrix, dim=1) if matrix.dim() == 2 and len(matrix) >= ROWS else matrix
        length: Tensor = norm(parts.float())
        return length

    def wide(self) -> Tensor:
        if self.factor is None:
            return self.numbers.float()
        return self.numbers.to(torch.float32, copy=True).mul_(self.factor)


class Table:
    """A trained table ``[N, D]``, of which R rows were met so far; the others wait for their decay.

    It stays with its parameter until it is closed.
    """

    def __init__(self, parameter: Tensor) -> None:
        self.parameter = parameter
        self.rows = torch.empty(0, dtype=torch.long)  # [R], in the order in which they were met
        self.place_of = torch.full((len(parameter),), -1)  # [N], of each row among those
        self.gradient: Tensor | None = None  # [R, D], of the step under way
        self.waiting = 1.0  # what the others are to be multiplied by
        vars(parameter)["table"] = self

    def meet(self, ids: Tensor) -> None:
        """To be said before rows ``ids`` are read for training."""
        rows = torch.unique(ids)
        new = rows[self.place_of[rows] < 0]
        if not len(new):
            return
        self.place_of[new] = torch.arange(len(new)) + len(self.rows)
        self.rows = torch.cat([self.rows, new])
        if self.waiting != 1:
            with torch.no_grad():
                self.parameter[new] *= self.waiting

    def add(self, ids: Tensor, gradient: Tensor, padding: int | None) -> None:
        """The gradient ``[..., D]`` of what was read as ``ids [...]``; the row ``padding`` has none."""
        nowhere = -1 if padding is None else int(self.place_of[padding])
        places, backward = self.place_of[ids], torch.ops.aten.embedding_dense_backward
        self._add(backward(gradient.float(), places, len(self.rows), nowhere, False))

    def _add(self, gradient: Tensor) -> None:
        self.gradient = gradient if self.gradient is None else _filled(self.gradient, len(gradient)) + gradient

    def take_in(self) -> None:
        """Take over the gradient of somebody who has read the parameter itself, and so all its rows."""
        if self.parameter.grad is not None:
            self.meet(torch.arange(len(self.place_of)))
            self._add(self.parameter.grad[self.rows])
            self.parameter.grad = None

    def step(self, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        count = len(self.rows)
        values = self.parameter[self.rows]
        for name in ("exp_avg", "exp_avg_sq"):
            known = state.get(name, values[:0])
            if len(known) < count:  # with room for some that will come
                state[name] = _filled(known, count + count // 4)
        moments = {name: x[:count] if x.dim() else x for name, x in state.items()}
        _adamw(values, _filled(gradient, count), group, moments)
        state["step"] = moments["step"]
        self.parameter[self.rows] = values
        self.waiting *= 1 - group["lr"] * group["weight_decay"]

    def settle(self) -> None:
        """Have all rows as they are to be."""
        if self.waiting != 1:
            with torch.no_grad():
                values = self.parameter[self.rows]
                self.parameter.mul_(self.waiting)
                self.parameter[self.rows] = values
            self.waiting = 1.0

    def close(self) -> None:
        """All is as if there had been no table."""
        del vars(self.parameter)["table"]
        self.settle()


def _filled(x: Tensor, rows: int) -> Tensor:
    """With zeros for rows that came later."""
    return x if len(x) == rows else F.pad(x, (0, 0, 0, rows - len(x)))


def hand_in(parameter: Tensor, gradient: Tensor, form: Form | None = None) -> None:
    """Keep a gradient of the step under way; where a weight is used twice, the second is added to the first in fp32. The step
    renews the ``form``."""
    before = _short(parameter)
    both = gradient if before is None else before.numbers.float() + gradient.float()
    vars(parameter)["short"] = _Short(both, form)


def gradient_of(parameter: Tensor) -> Tensor | None:
    """The gradient of the step under way in fp32 (of a table, of the rows that were read); None where there is none."""
    if table := _table(parameter):
        table.take_in()
        return table.gradient
    short = _short(parameter)
    if short is None:
        return parameter.grad
    return short.wide() if parameter.grad is None else parameter.grad + short.wide()


def total_norm(parameters: Sequence[Tensor]) -> Tensor:
    """The length of all gradients as one vector."""
    if not any(_short(p) or _table(p) for p in parameters):
        return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    norms = [length for p in parameters if (length := _length(p)) is not None]
    whole: Tensor = torch.linalg.vector_norm(torch.stack(norms or [torch.zeros(())]))
    return whole


def _length(parameter: Tensor) -> Tensor | None:
    short = _short(parameter)
    if short and short.factor is None and parameter.grad is None:
        return short.length
    gradient = gradient_of(parameter)
    return None if gradient is None else torch.linalg.vector_norm(gradient)


def clip(parameters: Iterable[Tensor], limit: float, norm: Tensor) -> None:
    """Shorten gradients whose length is ``norm`` to ``limit``, as ``nn.utils.clip_grads_with_norm_`` does."""
    factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
    wide = []
    for parameter in parameters:
        if parameter.grad is not None:
            wide.append(parameter)
        if short := _short(parameter):
            short.factor = factor
        if (table := _table(parameter)) and table.gradient is not None:
            table.gradient.mul_(factor)
    nn.utils.clip_grads_with_norm_(wide, limit, norm)


def drop(parameters: Iterable[Tensor]) -> None:
    """Forget the gradients."""
    for parameter in parameters:
        parameter.grad = None
        vars(parameter).pop("short", None)
        if table := _table(parameter):
            table.gradient = None


def _short(parameter: Tensor) -> _Short | None:
    return vars(parameter).get("short")


def _table(parameter: Tensor) -> Table | None:
    return vars(parameter).get("table")


class AdamW(torch.optim.AdamW):
    """torch's fused AdamW, on gradients in whatever form they are. A step drops those that it has used, and counts as a new
    version of what it changes, which the fused one does not by itself."""

    def __init__(self, groups: list[dict[str, Any]], *, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, betas=betas, eps=eps, fused=True)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self._step_of(parameter, group)
        super().step()
        increment_version([p for group in self.param_groups for p in group["params"] if p.grad is not None])
        self.zero_grad()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            drop(group["params"])

    def _step_of(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """Of one whose gradient is in a form of its own."""
        table, short = _table(parameter), _short(parameter)
        gradient = gradient_of(parameter) if table or short else None
        if gradient is None:
            return
        state = self.state[parameter]
        if table:
            table.step(gradient, group, state)
        else:
            if not state:
                state |= {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            _adamw(parameter, gradient, group, state)
            increment_version([parameter])
            if short and short.form:
                short.form.renew(parameter)
        drop([parameter])

    def settle(self) -> None:
        """Have every row of every table as it is to be; before anybody looks at them but by lookups."""
        for group in self.param_groups:
            for table in filter(None, map(_table, group["params"])):
                table.settle()


def _adamw(values: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
    """torch's step of one tensor, in place; what torch looks at before it takes longer than the step of a small one."""
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
