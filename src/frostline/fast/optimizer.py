"""AdamW, the gradient norm and gradient clipping, for dense gradients and for sparse gradients of large embedding tables.

Dense gradients are computed by torch's own functions. :mod:`frostline.fast.sparse_gradients` describes sparse gradients.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from frostline.fast.sparse_gradients import sparse_gradient

ENDLESS = 1e12  # steps: after as many, the correction of Adam's moments is a division by 1


def gradient_of(parameter: Tensor) -> Tensor | None:
    """The gradient of the current step, None if there is none. A sparse gradient has only the rows that were read."""
    sparse = sparse_gradient(parameter)
    return sparse.gradient() if sparse else parameter.grad


def total_norm(parameters: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all gradients together."""
    return nn.utils.get_total_norm([gradient for p in parameters if (gradient := gradient_of(p)) is not None])


def clip(parameters: Iterable[Tensor], limit: float, norm: Tensor) -> None:
    """Scale gradients down so that their total norm is at most ``limit``, like ``nn.utils.clip_grads_with_norm_``.

    Args:
        parameters: All trained parameters.
        limit: The largest total norm.
        norm: The current total norm.
    """
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
            torch._fused_adamw_(
                members,
                [p.grad for p in members],
                [one["exp_avg"] for one in moments],
                [one["exp_avg_sq"] for one in moments],
                [],
                [counted] * len(members),
                lr=group["lr"] if rates is None else rates[n],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
                grad_scale=divisor,
                found_inf=skip,
            )

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
