"""The logits of a classifier for many texts. If its layers are streamed, all texts pass through one layer after the other.

Shapes: B texts in a batch, S padded length, D width, T tokens of a batch, C outputs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from frostline import FrostlineError
from frostline.frozen.cache import cache_folder
from frostline.frozen.cut import cut_at
from frostline.frozen.forward_pass import Layers, Rows, layer_by_layer
from frostline.frozen.hidden_states import RESERVED_BYTES, SHARD_ROWS, scratch_folder
from frostline.model.anatomy import Anatomy
from frostline.model.classifier import BATCH, Classifier, logits_of
from frostline.model.device import free_bytes
from frostline.model.heads import Head, real_logits
from frostline.model.streaming import stream_of
from frostline.model.tokens import Tokens


def logits_of_texts(classifier: Classifier, tokens: Tokens) -> Tensor:
    """The logits of all texts in their order, ``[N, C]`` in float32; of a token classifier those of all tokens, ``[T, C]``.

    They are the same bit for bit if the layers are streamed.

    Raises:
        FrostlineError: The layers are streamed, and the disk is too small for the hidden states in between.
    """
    model = classifier.model
    lengths = tokens.lengths if classifier.of_words else None
    if stream_of(model) is None:
        (logits,) = logits_of(tokens, lambda batches: map(_whole(model, tokens), batches), lengths=lengths)
        return logits
    assert classifier.anatomy is not None
    anatomy = classifier.anatomy

    def forward(batches: Sequence[Rows]) -> Iterator[list[Tensor]]:
        with scratch_folder() as folder:
            for some in _chunks(batches, tokens, anatomy.width * model.dtype.itemsize, folder):
                yield from _streamed(model, anatomy, tokens, some, folder)

    (logits,) = logits_of(tokens, forward, lengths=lengths)
    return logits


def _whole(model: PreTrainedModel, tokens: Tokens) -> Callable[[Rows], list[Tensor]]:
    """The logits of a batch with the whole model."""

    def run(rows: Rows) -> list[Tensor]:
        batch = tokens.batch(rows)
        return [real_logits(model(**batch).logits, batch["attention_mask"])]

    return run


def _streamed(
    model: PreTrainedModel, anatomy: Anatomy, tokens: Tokens, batches: Sequence[Rows], scratch: Path
) -> Iterator[list[Tensor]]:
    """The logits of these batches, each layer in turn. A head that reads several of the last layers needs them together."""
    head = getattr(model, "head", None)
    together = 1 + (head.kind.layers if isinstance(head, Head) else 0)
    top = anatomy.count - together
    steps = [(number, number + 1) for number in range(top)] + [(top, anatomy.count)]

    @contextmanager
    def layers(cut: int | None, stop: int) -> Iterator[Layers[Rows, Tensor]]:
        states: dict[int, Tensor] = {}
        with cut_at(model, anatomy, cut, tap=states.__setitem__, stop=stop) as upper:

            def run(rows: Rows, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
                logits, after = upper(tokens.batch(rows), hidden), states[stop]
                states.clear()
                return logits, after

            yield run

    for _, stop, logits in layer_by_layer(model, anatomy, steps, batches, layers=layers, scratch=scratch):
        if stop == anatomy.count:  # else they are meaningless
            yield [logits]


def _chunks(batches: Sequence[Rows], tokens: Tokens, token_bytes: int, folder: Path) -> Iterator[Sequence[Rows]]:
    """Batches that pass through the layers together. Their hidden states fit on the disk, or an error says so."""
    sizes = np.array([token_bytes * len(rows) * int(tokens.lengths[rows].max()) for rows in batches], np.int64)
    free = max(0, free_bytes(folder) - RESERVED_BYTES)
    largest = int(sizes.argmax())
    if sizes[largest] > free:
        raise FrostlineError(
            f"The hidden states of {len(batches[largest])} texts take {sizes[largest] / 1e9:.1f} GB, but only "
            f"{free / 1e9:.1f} GB are free in {cache_folder()}: free disk space (`frostline cache rm`), or load the whole "
            "model with --no-stream."
        )
    start = 0
    while start < len(batches):
        fitting = int(np.searchsorted(np.cumsum(sizes[start:]), free, "right"))
        stop = start + min(fitting, SHARD_ROWS // BATCH)
        yield batches[start:stop]
        start = stop
