"""AdamW, the gradient norm and gradient clipping, for dense gradients and for sparse gradients of large embedding tables.

Dense gradients are computed by torch's own functions. :mod:`frostline.fast.sparse_gradients` describes sparse gradients.
"""

import math
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
    """torch's fused AdamW for dense and sparse gradients. Each step also clears the gradients.

    A group with ``bias_correction = False`` steps as the optimizer of the original BERT did, ``lr * m / (sqrt(v) + eps)``, which
    does not correct the moments m and v for their start at zero (Mosbach et al. 2021, arXiv:2006.04884, section 5).
    """

    def __init__(self, groups: list[dict[str, Any]], *, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, betas=betas, eps=eps, fused=True)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        usual = [_uncorrected(group) for group in self.param_groups]
        for group in self.param_groups:
            for parameter in group["params"]:
                if (sparse := sparse_gradient(parameter)) and sparse.gradient() is not None:
                    sparse.step(group, self.state[parameter])
        super().step()
        for group, values in zip(self.param_groups, usual, strict=True):
            group.update(values)
        self.zero_grad()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            clear_gradients(group["params"])

    def flush(self) -> None:
        """Apply all deferred updates, so that tables can be read in other ways than by lookups."""
        for group in self.param_groups:
            for sparse in filter(None, map(sparse_gradient, group["params"])):
                sparse.flush()


def _uncorrected(group: dict[str, Any]) -> dict[str, Any]:
    """Change the options of a group for one step, so that a corrected step equals an uncorrected one with the usual options.

    Returns:
        The usual options to restore; empty for a group with correction.
    """
    if group.get("bias_correction", True):
        return {}
    usual = {name: group[name] for name in ("lr", "eps", "weight_decay")}
    group["steps"] = group.get("steps", 0) + 1
    first, second = (1 - beta ** group["steps"] for beta in group["betas"])
    rate = first / math.sqrt(second)
    group["lr"] = usual["lr"] * rate
    group["eps"] = usual["eps"] / math.sqrt(second)
    group["weight_decay"] = usual["weight_decay"] / rate
    return usual
