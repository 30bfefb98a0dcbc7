"""What the training loop calls around each step, for ways that do more than follow the gradients of the model's parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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
