"""AdamW, the gradient norm and clipping, where the gradients of large tables are held for the rows that were read only.

On ordinary gradients all of this is torch's own. :mod:`frostline.fast.sparse_gradients` says how tables differ.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from frostline.fast.sparse_gradients import sparse_gradient


def gradient_of(parameter: Tensor) -> Tensor | None:
    """The gradient of the current step (of a table: of the rows that were read); None if there is none."""
    sparse = sparse_gradient(parameter)
    return sparse.gradient() if sparse else parameter.grad


def total_norm(parameters: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all gradients as one vector."""
    return nn.utils.get_total_norm([gradient for p in parameters if (gradient := gradient_of(p)) is not None])


def clip(parameters: Iterable[Tensor], limit: float, norm: Tensor) -> None:
    """Scale gradients whose total norm is ``norm`` down to ``limit``, as ``nn.utils.clip_grads_with_norm_`` does."""
    factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
    ordinary = []
    for parameter in parameters:
        if parameter.grad is not None:
            ordinary.append(parameter)
        if sparse := sparse_gradient(parameter):
            sparse.scale(factor)
    nn.utils.clip_grads_with_norm_(ordinary, limit, norm)


def clear_gradients(parameters: Iterable[Tensor]) -> None:
    """Set all gradients to None, in whatever form they are held."""
    for parameter in parameters:
        parameter.grad = None
        if sparse := sparse_gradient(parameter):
            sparse.clear()


class AdamW(torch.optim.AdamW):
    """torch's fused AdamW, for gradients in either form. A step clears the gradients that it used."""

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
        """Bring all parameters up to date, for anything that reads them other than by a lookup."""
        for group in self.param_groups:
            for sparse in filter(None, map(sparse_gradient, group["params"])):
                sparse.flush()
