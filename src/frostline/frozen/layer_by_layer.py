"""Run many batches one layer at a time, so that one layer is in memory.

All batches pass through a layer before the next one is loaded. In between, their hidden states are on disk. The numbers are those
of a pass with all layers in memory: the same layers get the same inputs in the same shapes.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

import torch
from torch import Tensor

from frostline.frozen.batches import ForwardBatch
from frostline.frozen.forward_pass import ForwardPass
from frostline.model.anatomy import Anatomy
from frostline.model.streaming import Stream, stream_of
from frostline.model.tokens import Tokens

B = TypeVar("B")
R = TypeVar("R")
# Runs some layers for a batch, from its hidden states before them.
Layers = Callable[[B, Tensor | None], tuple[R, Tensor]]


def states_of_batches(
    forward_pass: ForwardPass, tokens: Tokens, batches: Sequence[ForwardBatch], scratch: Path
) -> Iterator[tuple[dict[str, Tensor], float]]:
    """Compute the selected hidden states of these batches, layer by layer if the model's layers are streamed.

    Args:
        forward_pass: What is computed, and how.
        tokens: The token table.
        batches: The batches.
        scratch: The folder for hidden states that are passed from layer to layer.

    Yields:
        Tensors by name, as :meth:`ForwardPass.hidden_states`, and how many examples of the whole pass they are worth. Those of
        one name come in the order of the batches.
    """
    stream = stream_of(forward_pass.model)
    if stream is None:
        for batch, states in zip(batches, forward_pass.hidden_states(tokens, batches), strict=True):
            yield states, len(batch.rows)
    else:
        depth = forward_pass.depth
        steps = [(number, min(number + 1, depth)) for number in range(max(1, depth))]
        layers = partial(forward_pass.layers, tokens)
        passes = layer_by_layer(stream, forward_pass.anatomy, steps, batches, layers=layers, scratch=scratch)
        for batch, _, states in passes:
            yield states, len(batch.rows) / len(steps)


def layer_by_layer(
    stream: Stream,
    anatomy: Anatomy,
    steps: Sequence[tuple[int, int]],
    batches: Sequence[B],
    *,
    layers: Callable[[int | None, int], AbstractContextManager[Layers[B, R]]],
    scratch: Path,
) -> Iterator[tuple[B, int, R]]:
    """Run the steps one after the other, each for all batches, with the layers of that step in memory.

    Args:
        stream: Where the layers are.
        anatomy: The layers of the model.
        steps: The numbers of the first layer that runs in each step, and of the first one that does not.
        batches: The batches.
        layers: From a cut (None begins with the embeddings) and the number of the first layer that does not run, to a context
            with a function that runs the layers in between. It maps a batch and its hidden states at the cut to a result and
            the hidden states after these layers.
        scratch: The folder for hidden states that are passed from step to step.

    Yields:
        A batch, the last number of its step, and the result.
    """
    last = steps[-1][1]
    with _Passage(scratch) as passage:
        for start, stop in steps:
            loaded = stream.loaded(stream.in_layers(anatomy, range(start, stop)))
            with loaded, layers(start or None, stop) as run:
                for batch in batches:
                    result, states = run(batch, passage.read() if start else None)
                    if stop < last:
                        passage.write(states)
                    yield batch, stop, result
            passage.turn()


class _Passage:
    """The hidden states between two layers, in files without names: one is read while the other one is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: list[tuple[torch.Size, torch.dtype, torch.device]] = []
        self._written: list[tuple[torch.Size, torch.dtype, torch.device]] = []

    def __enter__(self) -> "_Passage":
        self._from: BinaryIO = tempfile.TemporaryFile(dir=self._folder)
        self._to: BinaryIO = tempfile.TemporaryFile(dir=self._folder)
        return self

    def __exit__(self, *error: object) -> None:
        self._from.close()
        self._to.close()

    def write(self, states: Tensor) -> None:
        """Write the hidden states of the next batch."""
        self._to.write(states.contiguous().view(torch.uint8).cpu().numpy().data)
        self._written.append((states.shape, states.dtype, states.device))

    def read(self) -> Tensor:
        """The hidden states of the next batch after the layer before."""
        shape, dtype, device = self._read.pop(0)
        states = torch.empty(shape, dtype=dtype)  # torch aligns its memory, which the last bits depend on
        read = self._from.readinto(states.view(torch.uint8).numpy())  # type: ignore[attr-defined]
        assert read == states.nbytes
        return states.to(device)

    def turn(self) -> None:
        """What was written is read from now on."""
        self._from, self._to = self._to, self._from
        self._read, self._written = self._written, []
        self._from.seek(0)
        self._to.seek(0)
        self._to.truncate()
