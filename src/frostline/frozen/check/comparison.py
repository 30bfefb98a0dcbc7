"""Relative differences of logits and gradients, and the errors that a layer may raise while it is compared."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

TOLERANCE = 1e-5  # relative, fp32

# A layer's own code handles packed, skipped and stacked input. Whatever it raises there is a reason to refuse the model.
LAYER_ERRORS = (RuntimeError, ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError)


class Difference(NamedTuple):
    """The largest difference over the largest value."""

    logits: float
    gradients: float

    @property
    def is_small(self) -> bool:
        """Whether both are below the tolerance; NaN is not."""
        return all(difference < TOLERANCE for difference in self)

    def __str__(self) -> str:
        return (
            f"logits differ by {self.logits:.1e} and gradients by {self.gradients:.1e}, relative to the largest value"
        )


NOT_COMPARED = Difference(float("inf"), float("inf"))


def largest(differences: Iterable[Difference]) -> Difference:
    """The largest difference of the logits and of the gradients; NaN is the largest of all."""
    logits, gradients = zip(*differences, strict=True)
    return Difference(max(logits, key=_nan_as_infinity), max(gradients, key=_nan_as_infinity))


def relative_difference(found: Tensor, wanted: Tensor) -> float:
    """The largest difference of two tensors over the largest value of ``wanted``."""
    return float((found - wanted).abs().max() / wanted.abs().max())


def gradient_difference(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    """The same for all gradients together; ``pairs`` holds found and wanted gradients. Absolute if all wanted are zero."""
    scale = max(float(wanted.abs().max()) for _, wanted in pairs)
    worst = max((float((found - wanted).abs().max()) for found, wanted in pairs), key=_nan_as_infinity)
    return worst / scale if scale else worst


def uneven_sum(logits: Tensor) -> Tensor:
    """A fixed weighted sum, in which every logit has a gradient of its own."""
    weights = torch.linspace(0.5, 1.5, logits.numel(), device=logits.device).view_as(logits)
    return (logits * weights).sum()


def first_line(error: Exception) -> str:
    """An error's type and the first line of its message."""
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


def _nan_as_infinity(value: float) -> float:
    return value if value == value else float("inf")
