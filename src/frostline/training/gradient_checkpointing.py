"""Gradient checkpointing: keep only the inputs of layers, and compute each layer a second time in the backward pass.

The results are bitwise identical on a CPU, because the second computation repeats the first. It therefore starts from the same
state of all random generators, and reads the same positions in the packed batch.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from frostline.fast.dropout import Dropout
from frostline.fast.forwards import forwards_replaced
from frostline.frozen.cut import UpperModel


@contextmanager
def checkpointed(layers: Sequence[nn.Module], upper: UpperModel, dropout: Dropout | None) -> Iterator[None]:
    """While the context is open, forward passes with gradients keep only the inputs of these layers.

    Args:
        layers: Layers of the model.
        upper: Runs them.
        dropout: Draws their dropout masks; None: torch's generators do.
    """
    with forwards_replaced({layer: _forward(layer.forward, upper, dropout) for layer in layers}):
        yield


def _forward(forward: Callable[..., Any], upper: UpperModel, dropout: Dropout | None) -> Callable[..., Any]:
    def checkpointed_forward(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        positions, masks = upper.positions(), dropout.state() if dropout else []

        @contextmanager
        def as_before() -> Iterator[None]:
            with upper.at_positions(positions), dropout.from_state(masks) if dropout else nullcontext():
                yield

        return checkpoint(
            forward, *args, use_reentrant=False, context_fn=lambda: (nullcontext(), as_before()), **kwargs
        )

    return checkpointed_forward
