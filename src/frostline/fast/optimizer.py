"""AdamW, the gradient norm and gradient clipping, for dense gradients and for sparse gradients of large embedding tables.

Dense gradients are computed by torch's own functions. :mod:`frostline.fast.sparse_gradients` describes sparse gradients.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from frostline.fast.sparse_gradients import sparse_gradient


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
    """torch's fused AdamW for dense and sparse gradients. Each step also clears the gradients."""

    def __init__(self, groups: list[dict[str, Any]], *, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, betas=betas, eps=eps, fused=True)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if (sparse := sparse_gradient(parameter)) and sparse.gradient() is not None:
                    sparse.step(group, self.state[parameter])
        super().step()
        self.zero_grad()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            clear_gradients(group["params"])

    def flush(self) -> None:
        """Apply all deferred updates, so that tables can be read in other ways than by lookups."""
        for group in self.param_groups:
            for sparse in filter(None, map(sparse_gradient, group["params"])):
                sparse.flush()
