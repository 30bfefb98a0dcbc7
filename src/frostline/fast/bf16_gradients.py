"""Gradients of weights in bf16, as products give them under autocast, and the bf16 copies of those weights.

In fp32 such a gradient is the same number in twice the memory, which would be written, read for its norm, and read again
for the step. Here it stays in bf16 and is widened where it is used, one weight at a time. The step then renews the bf16
copy of the weight that the next product needs. On the same gradients the steps are bitwise torch's own.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from frostline.fast.optimizer import ATTRIBUTE, HeldGradient, adamw_step, held_gradient

# From so many rows on, a norm is taken of the rows' norms in bf16. Their rounding errors of at most .4 % average out to 1e-4.
ROWS = 256


@dataclass
class Form:
    """A copy of a parameter in the form that products need, and the version of the parameter that it was made from."""

    numbers: Tensor
    version: int

    def renew(self, parameter: Tensor) -> None:
        """Copy the parameter as it is now."""
        self.numbers.copy_(parameter.detach())
        self.version = parameter._version


class Bf16Gradient(HeldGradient):
    """The gradient of a weight as a product gave it, the factor of clipping, and the weight's bf16 copy."""

    def __init__(self, numbers: Tensor, copy: Form | None) -> None:
        self.numbers, self.copy = numbers, copy
        self.factor: Tensor | None = None

    def gradient(self, parameter: Tensor) -> Tensor | None:
        wide = self.numbers.to(torch.float32, copy=self.factor is not None)
        if self.factor is not None:
            wide.mul_(self.factor)
        return wide if parameter.grad is None else parameter.grad + wide

    def norm(self, parameter: Tensor) -> Tensor | None:
        norm = torch.linalg.vector_norm
        if self.factor is not None or parameter.grad is not None:
            total: Tensor = norm(self.gradient(parameter))
            return total
        matrix = self.numbers
        parts = norm(matrix, dim=1) if matrix.dim() == 2 and len(matrix) >= ROWS else matrix
        length: Tensor = norm(parts.float())
        return length

    def scale(self, factor: Tensor) -> None:
        self.factor = factor

    def clear(self, parameter: Tensor) -> None:
        del vars(parameter)[ATTRIBUTE]

    def step(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any], state: dict[str, Any]) -> None:
        if not state:
            state |= {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
        adamw_step(parameter, gradient, group, state)
        increment_version([parameter])
        if self.copy:
            self.copy.renew(parameter)


def hold_bf16_gradient(parameter: Tensor, gradient: Tensor, copy: Form | None = None) -> None:
    """Hold a gradient of the current step, which will renew the ``copy`` of the weight. If a weight is used twice, its
    gradients are added in fp32."""
    before = held_gradient(parameter)
    if before is not None:
        assert isinstance(before, Bf16Gradient)
        gradient = before.numbers.float() + gradient.float()
    vars(parameter)[ATTRIBUTE] = Bf16Gradient(gradient, copy)
