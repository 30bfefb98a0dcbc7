"""Restore a model after a check."""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel

from frostline.model.device import random_state_restored


@contextmanager
def restored(model: PreTrainedModel) -> Iterator[None]:
    """Set the model to eval mode. On exit, restore training modes, ``requires_grad`` and torch's random state."""
    modes = {module: module.training for module in model.modules()}
    requires_grad = {parameter: parameter.requires_grad for parameter in model.parameters()}
    model.eval()
    try:
        with random_state_restored(model.device):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for parameter, required in requires_grad.items():
            parameter.requires_grad_(required)
