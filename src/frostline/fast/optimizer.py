"""AdamW, the gradient norm and clipping, where some gradients are held outside of ``parameter.grad``.

On ordinary gradients all of this is torch's own. Two speed-ups hold a parameter's gradient in a form of their own: in bf16
(:mod:`frostline.fast.bf16_gradients`), or for the rows of a table that were read (:mod:`frostline.fast.sparse_gradients`).
Each attaches a :class:`HeldGradient` to the parameter.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

ATTRIBUTE = "held_gradient"  # of a parameter


class HeldGradient(ABC):
    """The gradient of one parameter in a form of its own; methods are given the parameter that it belongs to."""

    @abstractmethod
    def gradient(self, parameter: Tensor) -> Tensor | None:
        """The gradient in fp32, with what autograd left in ``parameter.grad``; None if there is none."""

    @abstractmethod
    def norm(self, parameter: Tensor) -> Tensor | None:
        """Its Euclidean norm; None if there is none."""

    @abstractmethod
    def scale(self, factor: Tensor) -> None:
        """Multiply what is held."""

    @abstractmethod
    def clear(self, parameter: Tensor) -> None:
        """Forget the gradient."""

    @abstractmethod
    def step(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        """One step of AdamW, with the options of a parameter ``group`` and the optimizer's ``state`` of the parameter."""

    def flush(self) -> None:  # noqa: B027
        """Carry out what was deferred."""


def held_gradient(parameter: Tensor) -> HeldGradient | None:
    """The form that is attached to this parameter; None if its gradient is an ordinary one."""
    return vars(parameter).get(ATTRIBUTE)


def gradient_of(parameter: Tensor) -> Tensor | None:
    """The gradient of the current step in fp32 (of a table: of the rows that were read); None if there is none."""
    held = held_gradient(parameter)
    return parameter.grad if held is None else held.gradient(parameter)


def total_norm(parameters: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients as one vector; the norm of large bf16 gradients is off by at most about 1e-4, relative."""
    if not any(map(held_gradient, parameters)):
        return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    norms = [norm for p in parameters if (norm := _norm(p)) is not None]
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms or [torch.zeros(())]))
    return total


def _norm(parameter: Tensor) -> Tensor | None:
    if held := held_gradient(parameter):
        return held.norm(parameter)
    return None if parameter.grad is None else torch.linalg.vector_norm(parameter.grad)


def clip(parameters: Iterable[Tensor], limit: float, norm: Tensor) -> None:
    """Scale gradients whose total norm is ``norm`` down to ``limit``, as ``nn.utils.clip_grads_with_norm_`` does."""
    factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
    ordinary = []
    for parameter in parameters:
        if parameter.grad is not None:
            ordinary.append(parameter)
        if held := held_gradient(parameter):
            held.scale(factor)
    nn.utils.clip_grads_with_norm_(ordinary, limit, norm)


def clear_gradients(parameters: Iterable[Tensor]) -> None:
    """Set all gradients to None, in whatever form they are held."""
    for parameter in parameters:
        parameter.grad = None
        if held := held_gradient(parameter):
            held.clear(parameter)


class AdamW(torch.optim.AdamW):
    """torch's fused AdamW, for gradients in any form.

    A step clears the gradients that it used. It also counts as a new version of each parameter that it changes, which
    torch's fused step by itself does not.
    """

    def __init__(self, groups: list[dict[str, Any]], *, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, betas=betas, eps=eps, fused=True)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self._step_held(parameter, group)
        super().step()
        increment_version([p for group in self.param_groups for p in group["params"] if p.grad is not None])
        self.zero_grad()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            clear_gradients(group["params"])

    def _step_held(self, parameter: Tensor, group: dict[str, Any]) -> None:
        """The step of a parameter whose gradient is held in a form of its own."""
        held = held_gradient(parameter)
        gradient = held.gradient(parameter) if held else None
        if held and gradient is not None:
            held.step(parameter, gradient, group, self.state[parameter])
            clear_gradients([parameter])

    def flush(self) -> None:
        """Bring all parameters up to date, for anything that reads them other than by a lookup."""
        for group in self.param_groups:
            for held in filter(None, map(held_gradient, group["params"])):
                held.flush()


def adamw_step(values: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
    """torch's fused step of one tensor, in place. Called directly, because the checks of ``torch.optim`` take longer than
    the step of a small tensor."""
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
