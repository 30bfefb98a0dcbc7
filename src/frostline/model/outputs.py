"""The outputs of a classifier head: one for each example, or one for each token.

Shapes: B examples in a batch, S padded length, T real tokens of the batch, C outputs.
"""

from collections.abc import Callable

from torch import Tensor


def real_logits(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits ``[B, C]`` of examples as they are. Those of a token classifier, ``[B, S, C]``, become ``[T, C]``.

    The logits of padded positions mean nothing, and depend on how a batch was computed.

    Args:
        logits: The logits of a model.
        mask: The attention mask ``[B, S]``.
    """
    return logits if logits.dim() == 2 else logits[mask.bool()]


def logits_at(logits: Tensor, positions: Callable[[], Tensor]) -> Tensor:
    """The same logits as :func:`real_logits`, without asking a device for positions.

    Args:
        logits: The logits of a model.
        positions: Returns the positions ``[T]`` of the real tokens in the flattened grid ``[B * S]``.
    """
    return logits if logits.dim() == 2 else logits.flatten(0, 1).index_select(0, positions())
