"""L2-SP (Li, Grandvalet and Davoine 2018, arXiv:1802.01483): parameters are pulled towards the point where they started.

The penalty is ``strength / 2`` times the squared distance from the pretrained values; new parameters are pulled towards zero.
It is part of the gradients, and not of the reported loss.
"""

from dataclasses import dataclass

import torch

from frostline.training.ways.restraint import Parameters, Untouched


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
