"""Mixout (Lee, Cho and Kang 2020, arXiv:1909.11299): in each training step, some weights are replaced by pretrained ones.

Each element of a weight matrix w is replaced by its pretrained value u with probability p. The result is rescaled so that its
expectation is w (equation 5): ``(m * u + (1 - m) * w - p * u) / (1 - p)``, with a random mask m of ones and zeros. Scoring
uses w. The gradient with respect to w is that of the mixed matrix times ``(1 - m) / (1 - p)``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from frostline.training.checkpoint import State
from frostline.training.ways.restraint import Parameters, Untouched


@dataclass(frozen=True)
class Mixout(Untouched):
    """Mixes the weights of some matrices with their pretrained values.

    Attributes:
        weights: The trained matrices, by name.
        pretrained: Their pretrained values, by name.
        share: The probability p that an element is replaced.
        random: Draws the masks.
    """

    weights: Parameters
    pretrained: Parameters
    share: float
    random: torch.Generator
    # by name, between forward and backward pass: (1 - m) / (1 - p), and w
    _kept: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)

    @torch.no_grad()
    def before_forward(self) -> None:
        """Mix the matrices."""
        for name, weight in self.weights.items():
            own = torch.rand(weight.shape, generator=self.random, device=self.random.device) >= self.share
            factor = own.to(weight.device, weight.dtype) / (1 - self.share)
            self._kept[name] = factor, weight.detach().clone()
            # with f = (1 - m) / (1 - p), equation 5 is u + f * (w - u)
            target = self.pretrained[name]
            weight.copy_(torch.addcmul(target, factor, weight - target))

    @torch.no_grad()
    def after_backward(self) -> None:
        """Restore the matrices, and set the gradients with respect to them."""
        for name, (factor, value) in self._kept.items():
            weight = self.weights[name]
            weight.copy_(value)
            if weight.grad is not None:
                weight.grad.mul_(factor)
        self._kept.clear()

    def state(self) -> State:
        """The state of the generator that draws the masks."""
        return {"random": self.random.get_state()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Draw the masks that follow on this state."""
        self.random.set_state(state["random"])
