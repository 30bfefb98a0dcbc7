"""Loss scaling for float16, whose smallest numbers are too large for many gradients.

Each run multiplies its loss by its own scale and divides its gradients by it. A step whose gradients overflow is skipped, and
the scale is halved. After enough steps without overflow, it is doubled. Start, factors and interval are those of
``torch.amp.GradScaler``.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

START, GROWTH, BACKOFF, INTERVAL = 65536.0, 2.0, 0.5, 2000
LEAST = 1.0  # an overflow at this scale is no matter of the scale: the run diverges


class LossScale:
    """The scales of K runs.

    Attributes:
        values: ``[K]``, on the device.
    """

    def __init__(self, runs: int, device: torch.device) -> None:
        self.values = torch.full((runs,), START, device=device)
        self._in_row = torch.zeros(runs, device=device)  # steps without overflow, since the scale changed

    def unscale(self, parameters: Sequence[Sequence[Tensor]]) -> None:
        """Divide the gradients of the parameters of each run by its scale."""
        inverse = self.values.reciprocal()
        for n, own in enumerate(parameters):
            gradients = [p.grad for p in own if p.grad is not None]
            torch._foreach_mul_(gradients, inverse[n])

    def state(self) -> dict[str, Tensor]:
        """Scales and numbers of steps without overflow, for :meth:`load_state`."""
        return {"values": self.values, "in_row": self._in_row}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a state."""
        self.values, self._in_row = (state[name].to(self.values.device) for name in ("values", "in_row"))

    def update(self, overflowed: Tensor) -> None:
        """Adapt the scales after a step. ``overflowed`` ``[K]``: whether a gradient of the run was not finite."""
        in_row = torch.where(overflowed, 0, self._in_row + 1)
        grows = in_row == INTERVAL
        factor = torch.where(overflowed, BACKOFF, torch.where(grows, GROWTH, 1.0))
        self.values = (self.values * factor).clamp(min=LEAST)
        self._in_row = torch.where(grows, 0, in_row)
