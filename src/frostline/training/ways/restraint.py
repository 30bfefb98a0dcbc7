"""What the training loop calls around each step, for ways that do more than follow the gradients of the model's parameters.

Mixout (Lee, Cho and Kang 2020, arXiv:1909.11299): in each training step, some weights are replaced by pretrained ones.

Each element of a weight matrix w is replaced by its pretrained value u with probability p. The result is rescaled so that its
expectation is w (equation 5): ``(m * u + (1 - m) * w - p * u) / (1 - p)``, with a random mask m of ones and zeros. Scoring
uses w. The gradient with respect to w is that of the mixed matrix times ``(1 - m) / (1 - p)``.

L2-SP (Li, Grandvalet and Davoine 2018, arXiv:1802.01483): parameters are pulled towards the point where they started.

The penalty is ``strength / 2`` times the squared distance from the pretrained values; new parameters are pulled towards zero.
It is part of the gradients, and not of the reported loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from frostline.training.checkpoint import State


class Restraint(Protocol):
    """Determines the model's parameters in a forward pass, or changes their gradients.

    The loop calls ``before_forward``, runs the model forward and backward, calls ``after_backward``, clips and steps, and calls
    ``after_step``. After ``after_step`` the model has the parameters that are scored and saved.
    """

    def before_forward(self) -> None:
        """Set the model's parameters for a forward pass of training."""

    def after_backward(self) -> None:
        """Set the gradients of the trained parameters from those of the model's parameters."""

    def after_step(self) -> None:
        """Set the model's parameters to those that the trained ones stand for."""

    def state(self) -> State:
        """What steps have changed, besides the trained parameters."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. The trained parameters must have the values that they had then."""


class Untouched:
    """A restraint that does nothing. Others override what they need."""

    def before_forward(self) -> None: ...

    def after_backward(self) -> None: ...

    def after_step(self) -> None: ...

    def state(self) -> State:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.after_step()


@dataclass(frozen=True)
class AllRestraints:
    """Several restraints, of one run or of the runs of a stack."""

    restraints: Sequence[Restraint]

    def before_forward(self) -> None:
        for restraint in self.restraints:
            restraint.before_forward()

    def after_backward(self) -> None:
        for restraint in self.restraints:
            restraint.after_backward()

    def after_step(self) -> None:
        for restraint in self.restraints:
            restraint.after_step()


Parameters = Mapping[str, Tensor]  # by name


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


@dataclass(frozen=True)
class TowardsPretrained(Untouched):
    """Adds the gradient of the penalty.

    Attributes:
        parameters: The trained parameters, by name.
        pretrained: The pretrained values of those that are not new, by name.
        strength: The factor of the penalty.
    """

    parameters: Parameters
    pretrained: Parameters
    strength: float

    @torch.no_grad()
    def after_backward(self) -> None:
        """Add the penalty's gradient to that of the loss. A parameter that the loss does not depend on is pulled too."""
        for name, parameter in self.parameters.items():
            distance = parameter - self.pretrained[name] if name in self.pretrained else parameter
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad.add_(distance, alpha=self.strength)
