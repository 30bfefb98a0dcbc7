"""The pass: hidden states of many texts, each the same bits in whatever company.

A kernel's last bits hang on the shapes that it is given, so the shapes in which a text is computed follow from its own
length and from nothing else. Packed, which is what most types can do: products see the same number of tokens in every
batch, attention a grid of the text's own length, rounded up, or a long text by itself (:mod:`frostline.model.packing`). Where a
type cannot be packed, texts of one rounded length stand in padded batches of one shape. What is left over is filled with
copies.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from frostline.fast.last_layer import Narrow, read_at
from frostline.fast.linear import ready_weights
from frostline.fast.memory import settled_memory
from frostline.frozen.cost import Batches, Matrices
from frostline.frozen.cut import cut_at
from frostline.model.anatomy import EMBEDDINGS, Anatomy
from frostline.model.device import Machine
from frostline.model.packing import STEP, packable
from frostline.model.tokens import Tokens

BUDGET = {"cpu": 4096, "cuda": 32768, "mps": 8192}  # tokens in one batch, at most
WIDE = 384  # of a model that is wider than this they are fewer, so that a batch takes no more memory
# Texts of at most STEP tokens are packed by themselves, up to one for so many tokens; others one for every STEP.
TINY = 4
GRID = 4  # so many times the tokens of a batch may stand in its padded grid, for a text of that length and shorter ones
POOLED = ("first", "mean", "last")  # vectors of a text: of its first token, the mean of all, of its last

Rows = NDArray[np.int64]
Lengths = NDArray[np.int64]


@dataclass(frozen=True)
class Need:
    """What is to be kept: after which layers the states of all tokens, whether those the head looks at, and after which
    layers three vectors of each text (see ``POOLED``)."""

    cuts: tuple[int, ...]  # ascending
    head: bool
    pooled: tuple[int, ...] = ()

    def bytes(self, rows: int, tokens: int, width: int) -> int:
        """What this takes on disk for so many rows and tokens."""
        vectors = self.head + len(POOLED) * len(self.pooled)
        return 4 * width * (len(self.cuts) * tokens + vectors * rows) + 24 * rows

    def depth(self, layers: int) -> int:
        """How many of a model's ``layers`` must run for it."""
        return layers if self.head else max((*self.cuts, *self.pooled), default=layers)

    def within(self, fits: Callable[["Need"], bool]) -> "Need":
        """The part that ``fits``: cuts nearest the head first, since they save most; vectors of whole texts where no cut has to
        go for them."""
        parts = [
            replace(self, cuts=self.cuts[first:], pooled=pooled)
            for first in range(len(self.cuts) + 1)
            for pooled in dict.fromkeys((self.pooled, ()))
        ]
        return next(filter(fits, parts), Need((), False))


@dataclass(frozen=True)
class PassBatch:
    """Some rows that are computed together."""

    rows: Rows
    lengths: Lengths  # of their texts
    padded: Lengths  # the same, rounded up
    room: int  # packed: for so many tokens; 0: padded
    # Up to which it is filled: packed, with copies of a token that is read; padded, with copies of a text.
    texts: int

    @property
    def computed(self) -> Batches:
        """What is computed for it, with all that fills it up."""
        if self.room:
            return Batches(1, self.texts, self.room, float(self.padded.sum()), float((self.padded**2).sum()))
        length = int(self.padded[0])
        return Batches(1, self.texts, self.texts * length, self.texts * length, self.texts * length**2)

    def inputs(self, tokens: Tokens) -> dict[str, Tensor]:
        """What the model is given."""
        copies = 0 if self.room else self.texts - len(self.rows)
        batch = tokens.batch(np.concatenate([self.rows, np.repeat(self.rows[:1], copies)]), int(self.padded.max()))
        if copies:
            batch["attention_mask"][-1, -1] = 0  # a batch without padding would be computed by other kernels
        return batch


@dataclass(frozen=True)
class Pass:
    """How the hidden states of texts are made; of a ``narrow`` last layer there are no vectors of whole texts."""

    model: PreTrainedModel
    anatomy: Anatomy
    need: Need
    reads: str  # which token the head looks at: first, last, or all
    packed: bool
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext
    narrow: Narrow | None = None
    most: int | None = None  # tokens of one batch; None: as many as suit the device

    @property
    def budget(self) -> int:
        """The tokens of one batch, at most, but for a text that has more."""
        return tokens_at_once(self.model.device, self.anatomy) if self.most is None else self.most

    def batches(self, lengths: Lengths, rows: Rows) -> list[PassBatch]:
        """In what company these rows of a table are computed, whose texts have these ``lengths``."""
        positions = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        padded = -(-lengths // STEP) * STEP if self.packed else (lengths // STEP + 1) * STEP
        if positions:
            padded = np.maximum(np.minimum(padded, positions), lengths)
        rows = rows[np.argsort(lengths[rows], kind="stable")]
        if self.packed:
            tiny = lengths[rows] <= STEP
            return [*self._packed(lengths, padded, rows[~tiny], STEP), *self._packed(lengths, padded, rows[tiny], TINY)]
        found = []
        for length in np.unique(padded[rows]):
            alike, size = rows[padded[rows] == length], max(1, self.budget // int(length))
            texts = size + (length == positions)  # where a text may be as long as that, only a copy has padding
            for some in np.split(alike, range(size, len(alike), size)):
                found.append(PassBatch(some, lengths[some], padded[some], 0, texts))
        return found

    def _packed(self, lengths: Lengths, padded: Lengths, rows: Rows, share: int) -> Iterator[PassBatch]:
        """Batches of these rows; in each there is one text at most for every ``share`` tokens."""
        budget = self.budget
        for some in _filled(lengths, rows, budget, budget // share):
            room = max(budget, int(padded[some[0]]))
            yield PassBatch(some, lengths[some], padded[some], room, room // share)

    def states(self, tokens: Tokens, batches: Sequence[PassBatch]) -> Iterator[dict[str, Tensor]]:
        """For each batch, by name, what the :class:`Need` asks for: ``tokens-<n>`` ``[T, D]``, ``head`` ``[B, D]``,
        ``pooled-<n>`` ``[B, 3 D]``."""
        model, need, last = self.model, self.need, self.anatomy.count
        seen: dict[int, Tensor] = {}
        stop = need.depth(last)
        assert self.narrow is None or last not in (*need.pooled, *need.cuts)
        narrow = self.narrow if stop == last else None
        model.eval()
        with (
            packable(model) if self.packed else nullcontext() as packing,
            cut_at(model, self.anatomy, None, packing=packing, tap=seen.__setitem__, stop=stop, narrow=narrow) as whole,
            torch.no_grad(),
        ):
            for batch in batches:
                inputs = {name: x.to(model.device) for name, x in batch.inputs(tokens).items()}
                with self.autocast():
                    whole(inputs, room=batch.room, texts=batch.texts)
                mask = inputs["attention_mask"][: len(batch.rows)].bool()

                def of(layer: int, mask: Tensor = mask) -> Tensor:  # [T, D] of the batch's own rows
                    hidden = seen[layer]
                    return hidden[0, : int(mask.sum())] if self.packed else hidden[: len(mask)][mask]

                lengths = mask.sum(1)
                starts = lengths.cumsum(0) - lengths
                states = {f"tokens-{cut}": of(cut) for cut in need.cuts}
                if need.head:
                    pad = model.config.get_text_config().pad_token_id
                    at = read_at(self.reads, inputs["input_ids"][: len(mask)], mask, pad)
                    states["head"] = of(last)[starts + at]
                states |= {f"pooled-{layer}": _pooled(of(layer).float(), lengths) for layer in need.pooled}
                seen.clear()
                yield states


def tokens_at_once(device: torch.device, anatomy: Anatomy) -> int:
    """How many tokens a pass computes in one batch."""
    most = BUDGET[device.type]
    return min(most, max(1, most * WIDE // anatomy.width // STEP) * STEP)


@contextmanager
def ready_for_pass(model: PreTrainedModel, machine: Machine) -> Iterator[None]:
    """While the context is open, weights are laid out and freed memory is kept, as a pass wants it."""
    with settled_memory(), ready_weights(model, machine):
        yield


def looks_up(model: PreTrainedModel, anatomy: Anatomy) -> bool:
    """Whether all that runs below the layers is looked up, so that products see packed tokens only."""
    below = (name for name in Matrices.of(model, anatomy).sizes if anatomy.places[name] == EMBEDDINGS)
    return all(name in anatomy.idle for name in below)


def _pooled(hidden: Tensor, lengths: Tensor) -> Tensor:
    """``[B, 3 D]``: first token, mean, last token of texts that have ``hidden`` ``[T, D]`` one after the other."""
    if hidden.device.type == "mps":  # where the mean of segments is not known
        hidden, lengths = hidden.cpu(), lengths.cpu()
    ends = lengths.cumsum(0)
    mean = torch.segment_reduce(hidden, "mean", lengths=lengths, axis=0)
    return torch.cat([hidden[ends - lengths], mean, hidden[ends - 1]], 1)


def _filled(lengths: Lengths, rows: Rows, budget: int, most: int) -> Iterator[Rows]:
    """Rows in groups of at most ``most`` texts and ``budget`` tokens, or one row that has more: the longest that is left, and
    again and again the longest that still has room, as long as the padded grid, of which little is computed, is not far
    larger."""
    waiting: dict[int, list[int]] = {}
    for row in rows.tolist():
        waiting.setdefault(int(lengths[row]), []).append(row)
    while waiting:
        longest = max(waiting)
        chosen: list[int] = []
        left, texts = max(budget, longest), max(1, min(most, GRID * budget // longest))
        for length in sorted(waiting, reverse=True):
            count = min(left // length, texts - len(chosen), len(waiting[length]))
            if not count:
                continue
            chosen += waiting[length][-count:]
            del waiting[length][-count:]
            left -= count * length
            if not waiting[length]:
                del waiting[length]
        yield np.array(chosen)
