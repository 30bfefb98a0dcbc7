"""Relative differences of logits and gradients, and the errors that a layer may raise during a comparison.

Restore a model after a check.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor
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


TOLERANCE = 1e-5  # relative, fp32

# The layers of a model run on packed, skipped and stacked inputs. If one of them raises an error, the model is refused.
LAYER_ERRORS = (RuntimeError, ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError)


class Difference(NamedTuple):
    """The largest absolute differences, each divided by the largest absolute value."""

    logits: float
    gradients: float

    @property
    def is_small(self) -> bool:
        """Whether both differences are below the tolerance. NaN counts as large."""
        return all(difference < TOLERANCE for difference in self)

    def __str__(self) -> str:
        return (
            f"logits differ by {self.logits:.1e} and gradients by {self.gradients:.1e}, relative to the largest value"
        )


NOT_COMPARED = Difference(float("inf"), float("inf"))


def largest(differences: Iterable[Difference]) -> Difference:
    """The largest difference of the logits and the largest difference of the gradients. NaN counts as the largest value."""
    logits, gradients = zip(*differences, strict=True)
    return Difference(max(logits, key=_nan_as_infinity), max(gradients, key=_nan_as_infinity))


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """The largest difference of two tensors, divided by the largest absolute value of ``expected``."""
    return float((actual - expected).abs().max() / expected.abs().max())


def gradient_difference(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    """The relative difference over all gradients together; absolute if all expected gradients are zero.

    Args:
        pairs: The actual and the expected gradient of each parameter.
    """
    scale = max(float(expected.abs().max()) for _, expected in pairs)
    worst = max((float((actual - expected).abs().max()) for actual, expected in pairs), key=_nan_as_infinity)
    return worst / scale if scale else worst


def weighted_sum(logits: Tensor) -> Tensor:
    """A sum with fixed weights, different for every logit, so that swapped logits change the gradients."""
    weights = torch.linspace(0.5, 1.5, logits.numel(), device=logits.device).view_as(logits)
    return (logits * weights).sum()


def _nan_as_infinity(value: float) -> float:
    return value if value == value else float("inf")
