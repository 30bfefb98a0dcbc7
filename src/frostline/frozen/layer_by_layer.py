"""Compute hidden states of many examples one layer at a time, so that one layer is in memory.

All batches pass through a layer before the next one is loaded. In between, their hidden states are on disk. The numbers are those
of a pass with all layers in memory: the same layers get the same inputs in the same shapes.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from frostline.frozen.batches import ForwardBatch
from frostline.frozen.forward_pass import ForwardPass
from frostline.model.streaming import Stream, stream_of
from frostline.model.tokens import Tokens


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
        yield from _layer_by_layer(forward_pass, stream, tokens, batches, scratch)


def _layer_by_layer(
    forward_pass: ForwardPass, stream: Stream, tokens: Tokens, batches: Sequence[ForwardBatch], scratch: Path
) -> Iterator[tuple[dict[str, Tensor], float]]:
    anatomy, depth = forward_pass.anatomy, forward_pass.depth
    with _Passage(scratch) as passage:
        for number in range(max(1, depth)):
            stop, names = min(number + 1, depth), stream.in_layers(anatomy, [number] if depth else [])
            with stream.loaded(names), forward_pass.layers(tokens, number or None, stop) as compute:
                for batch in batches:
                    computed = compute(batch, passage.read(forward_pass.model.device) if number else None)
                    if stop < depth:
                        passage.write(computed.states)
                    yield computed.selected, len(batch.rows) / max(1, depth)
            passage.turn()


class _Passage:
    """The hidden states between two layers, in files without names: one is read while the other one is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: list[tuple[torch.Size, torch.dtype]] = []
        self._written: list[tuple[torch.Size, torch.dtype]] = []

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
        self._written.append((states.shape, states.dtype))

    def read(self, device: torch.device) -> Tensor:
        """The hidden states of the next batch after the layer before."""
        shape, dtype = self._read.pop(0)
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
