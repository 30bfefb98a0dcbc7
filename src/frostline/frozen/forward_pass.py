"""The forward pass over the frozen layers: which hidden states are computed, in which batches, and how.

The last bits of a kernel's result depend on the shapes of its inputs. To get bitwise identical hidden states in every
batch, an example is computed in shapes that depend on its own length only, never on the other examples of its batch.

- Packed batches: every matrix product has the same number of tokens. Attention gets examples of the same rounded length, or
  one long example alone (:mod:`frostline.model.packing`).
- Padded batches, for model types that cannot be packed: all examples of a batch have the same rounded length.

Copies fill the remaining positions of a batch.

If layers are streamed, all batches pass through a layer before the next one is loaded. In between, their hidden states are on
disk. The same layers get the same inputs in the same shapes, so the numbers are those of a pass with all layers in memory.

Shapes: B examples in a batch, T tokens, D width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.fast.last_layer import HeadTokenPart, head_position
from frostline.frozen.cut import cut_at
from frostline.model.anatomy import Anatomy, position_limit
from frostline.model.device import memory_limit, to_device
from frostline.model.heads import padding_id
from frostline.model.packed_layout import LENGTH_MULTIPLE, Layout
from frostline.model.packing import packable
from frostline.model.streaming import stream_of
from frostline.model.terms import EMBEDDINGS
from frostline.model.tokens import Tokens

POOLED = ("first", "mean", "last")  # the pooled vectors of an example: first token, mean of all tokens, last token


@dataclass(frozen=True)
class StateSelection:
    """A selection of hidden states.

    Attributes:
        cuts: Cache the hidden states of all tokens after these numbers of layers; ascending.
        head: Cache the hidden state of the head's token after the last layer.
        pooled: Cache the pooled vectors of each example after these numbers of layers; see ``POOLED``.
    """

    cuts: tuple[int, ...]
    head: bool
    pooled: tuple[int, ...] = ()

    def shapes(self, examples: int, tokens: int, width: int) -> dict[str, tuple[int, int]]:
        """The shapes of the selected hidden states of this number of examples and tokens, by name."""
        named = {f"tokens-{cut}": (tokens, width) for cut in self.cuts}
        named |= {"head": (examples, width)} if self.head else {}
        return named | {f"pooled-{layers}": (examples, len(POOLED) * width) for layers in self.pooled}

    def bytes(self, examples: int, tokens: int, width: int) -> int:
        """Bytes on disk for this number of examples and tokens."""
        return 4 * sum(rows * size for rows, size in self.shapes(examples, tokens, width).values()) + 24 * examples

    def depth(self, layers: int) -> int:
        """How many of a model's ``layers`` must run to compute this selection."""
        return layers if self.head else max((*self.cuts, *self.pooled), default=layers)

    def largest_part(self, fits: Callable[["StateSelection"], bool]) -> "StateSelection":
        """The largest part of this selection for which ``fits`` is true.

        The cuts farthest from the head are dropped first, because they save the least computation. Pooled vectors are dropped
        before any cut.
        """
        parts = [
            replace(self, cuts=self.cuts[first:], pooled=pooled)
            for first in range(len(self.cuts) + 1)
            for pooled in dict.fromkeys((self.pooled, ()))
        ]
        return next(filter(fits, parts), StateSelection((), False))


def selection_for(cuts: Sequence[int], anatomy: Anatomy, head_reads: str) -> StateSelection:
    """The hidden states that runs from these cuts need.

    After the last layer, the head's token of each example is enough, unless the head reads ``all`` tokens.
    """
    one_token = head_reads != "all" and anatomy.count in cuts
    cached = {cut for cut in cuts if not (one_token and cut == anatomy.count)}
    return StateSelection(tuple(sorted(cached)), one_token)


TOKENS = {"cpu": 4096, "cuda": 32768, "mps": 8192}  # in one batch, at most
MEMORY = 16 << 30  # bytes; a CUDA GPU with n times as many free computes n times as many tokens
MOST_TIMES = 4
WIDE = 384  # for wider models, the number of tokens shrinks in proportion, so that a batch needs no more memory
# A packed batch has a capacity of one example per LENGTH_MULTIPLE tokens. Examples of at most LENGTH_MULTIPLE tokens have
# separate batches, with a capacity of one example per TINY tokens.
TINY = 4
GRID = 4  # the padded grid of a packed batch has at most this many times the tokens of the batch

Rows = NDArray[np.int64]  # positions of examples in a table
Lengths = NDArray[np.int64]  # tokens of each example


@dataclass(frozen=True)
class ForwardBatch:
    """A batch of examples.

    Attributes:
        rows: Their positions in the table, ``[B]``.
        lengths: Their tokens, ``[B]``.
        padded_lengths: Their rounded lengths, ``[B]``.
        capacity: The number of computed tokens of a packed batch; 0 for a padded batch.
        examples: The number of computed examples, with copies. In a packed batch, copies of one token fill the rows that
            the head reads. In a padded batch, copies of one example fill the batch.
    """

    rows: Rows
    lengths: Lengths
    padded_lengths: Lengths
    capacity: int
    examples: int

    @property
    def computed_tokens(self) -> int:
        """The number of computed tokens, with padding and copies."""
        return self.capacity or self.examples * int(self.padded_lengths.max())

    def inputs(self, tokens: Tokens) -> dict[str, Tensor]:
        """The model's inputs, including the copies that fill a padded batch."""
        copies = 0 if self.capacity else self.examples - len(self.rows)
        rows = np.concatenate([self.rows, np.repeat(self.rows[:1], copies)])
        batch = tokens.batch(rows, int(self.padded_lengths.max()))
        if copies:
            batch["attention_mask"][-1, -1] = 0  # without any padding, torch would choose other kernels
        return batch


def tokens_per_batch(device: torch.device, anatomy: Anatomy) -> int:
    """How many tokens the forward pass computes in one batch. A CUDA GPU's memory is that which was free when first asked."""
    most = TOKENS[device.type]
    if device.type == "cuda":
        most *= min(MOST_TIMES, max(1, _free_at_first(device) // MEMORY))
    return min(most, max(1, most * WIDE // anatomy.width // LENGTH_MULTIPLE) * LENGTH_MULTIPLE)


_free_at_first = cache(memory_limit)


def packed_batches(lengths: Lengths, rows: Rows, budget: int, *, positions: int | None) -> list[ForwardBatch]:
    """Packed batches of these rows.

    Args:
        lengths: Tokens of each example of the table.
        rows: The examples to compute.
        budget: Tokens of one batch. An example with more tokens gets a batch of its own.
        positions: The most tokens per example that the model accepts; None: no limit.
    """
    padded = _rounded(lengths, -(-lengths // LENGTH_MULTIPLE) * LENGTH_MULTIPLE, positions)
    rows = rows[np.argsort(lengths[rows], kind="stable")]
    tiny = lengths[rows] <= LENGTH_MULTIPLE
    found = []
    for some, tokens_per_example in ((rows[~tiny], LENGTH_MULTIPLE), (rows[tiny], TINY)):
        for chosen in _filled(lengths, some, budget, budget // tokens_per_example):
            capacity = max(budget, int(padded[chosen[0]]))
            examples = capacity // tokens_per_example
            found.append(ForwardBatch(chosen, lengths[chosen], padded[chosen], capacity, examples))
    return found


def padded_batches(lengths: Lengths, rows: Rows, budget: int, *, positions: int | None) -> list[ForwardBatch]:
    """Padded batches of these rows, with the arguments of :func:`packed_batches`."""
    padded = _rounded(lengths, (lengths // LENGTH_MULTIPLE + 1) * LENGTH_MULTIPLE, positions)
    rows = rows[np.argsort(lengths[rows], kind="stable")]
    found = []
    for length in np.unique(padded[rows]):
        of_length, size = rows[padded[rows] == length], max(1, budget // int(length))
        examples = size + (length == positions)  # an example of that length has no padding, so a copy must have some
        for some in np.split(of_length, range(size, len(of_length), size)):
            found.append(ForwardBatch(some, lengths[some], padded[some], 0, examples))
    return found


def _rounded(lengths: Lengths, rounded: Lengths, positions: int | None) -> Lengths:
    """``rounded``, limited to the model's ``positions``."""
    return np.maximum(np.minimum(rounded, positions), lengths) if positions else rounded


def _filled(lengths: Lengths, rows: Rows, budget: int, most: int) -> Iterator[Rows]:
    """Groups of at most ``most`` examples and ``budget`` tokens. An example with more tokens is a group of its own.

    Each group takes the longest remaining example, then repeatedly the longest example that still fits. The padded grid of a
    group, which is mostly not computed, stays below ``GRID`` times the budget.
    """
    waiting: dict[int, list[int]] = {}
    for row in rows.tolist():
        waiting.setdefault(int(lengths[row]), []).append(row)
    while waiting:
        longest = max(waiting)
        chosen: list[int] = []
        tokens_left, examples = max(budget, longest), max(1, min(most, GRID * budget // longest))
        for length in sorted(waiting, reverse=True):
            count = min(tokens_left // length, examples - len(chosen), len(waiting[length]))
            if not count:
                continue
            chosen += waiting[length][-count:]
            del waiting[length][-count:]
            tokens_left -= count * length
            if not waiting[length]:
                del waiting[length]
        yield np.array(chosen)


@dataclass(frozen=True)
class ForwardPass:
    """How hidden states are computed.

    Attributes:
        model: A classifier of transformers.
        anatomy: Its layers.
        selection: The hidden states to compute.
        head_reads: Which tokens the head reads: ``first``, ``last`` or ``all``.
        packed: Whether batches are packed.
        autocast: Returns the autocast context of the forward pass.
        head_token: The part of the last layer that runs for the head's token only. With it, hidden states of other tokens and
            pooled vectors cannot be selected after the last layer.
        max_tokens: The most tokens of one batch; None: the default of the device.
    """

    model: PreTrainedModel
    anatomy: Anatomy
    selection: StateSelection
    head_reads: str
    packed: bool
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext
    head_token: HeadTokenPart | None = None
    max_tokens: int | None = None

    def batches(self, lengths: Lengths, rows: Rows) -> list[ForwardBatch]:
        """Split these rows of a table into batches. ``lengths`` are the tokens of every example of the table."""
        split = packed_batches if self.packed else padded_batches
        budget = tokens_per_batch(self.model.device, self.anatomy) if self.max_tokens is None else self.max_tokens
        return split(lengths, rows, budget, positions=position_limit(self.model))

    def hidden_states(
        self, tokens: Tokens, batches: Sequence[ForwardBatch], scratch: Path | None = None
    ) -> Iterator[tuple[dict[str, Tensor], float]]:
        """Compute the selected hidden states of these batches, layer by layer if the model's layers are streamed.

        In the folder ``scratch`` are hidden states that are then passed from layer to layer.

        Yields:
            Tensors by name, ``tokens-<cut>`` ``[T, D]``, ``head`` ``[B, D]``, ``pooled-<layers>`` ``[B, 3 D]``, and how many
            examples of the whole pass they are worth. Those of one name come in the order of the batches.
        """
        streamed = stream_of(self.model) is not None
        numbers = range(max(1, self.depth)) if streamed else range(1)
        steps = [(n, min(n + 1, self.depth) if streamed else self.depth) for n in numbers]
        for batch, _, states in layer_by_layer(
            self.model, self.anatomy, steps, batches, layers=partial(self.layers, tokens), scratch=scratch
        ):
            yield states, len(batch.rows) / len(steps)

    @property
    def depth(self) -> int:
        """How many layers must run."""
        return self.selection.depth(self.anatomy.count)

    @contextmanager
    def layers(
        self, tokens: Tokens, cut: int | None, stop: int
    ) -> Iterator[Callable[[ForwardBatch, Tensor | None], tuple[dict[str, Tensor], Tensor]]]:
        """A function that runs the layers from ``cut`` to ``stop`` for a batch, given its hidden states at the cut.

        A cut of None begins with the embeddings, and needs no hidden states.
        """
        model, last = self.model, self.anatomy.count
        assert self.head_token is None or last not in (*self.selection.pooled, *self.selection.cuts)
        head_token = self.head_token if stop == last else None
        wanted = {*self.selection.cuts, *self.selection.pooled, stop}
        by_cut: dict[int, Tensor] = {}
        model.eval()

        def keep(number: int, states: Tensor) -> None:
            if number in wanted:
                by_cut[number] = states

        def compute(batch: ForwardBatch, hidden: Tensor | None) -> tuple[dict[str, Tensor], Tensor]:
            inputs = batch.inputs(tokens)
            lengths = inputs["attention_mask"].sum(1)  # on the host
            inputs = {name: to_device(x, model.device) for name, x in inputs.items()}
            with self.autocast():
                upper(inputs, hidden, lengths=lengths, capacity=batch.capacity, examples=batch.examples)
            ours = range(0 if cut is None else cut + 1, stop + 1)
            found = {number: states for number, states in by_cut.items() if number in ours}
            by_cut.clear()
            return self._selected(found, inputs, lengths[: len(batch.rows)]), found[stop]

        with (
            packable(model) if self.packed else nullcontext() as packing,
            cut_at(model, self.anatomy, cut, packing=packing, tap=keep, stop=stop, head_token=head_token) as upper,
            torch.no_grad(),
        ):
            yield compute

    def _selected(self, by_cut: dict[int, Tensor], inputs: dict[str, Tensor], lengths: Tensor) -> dict[str, Tensor]:
        """The selected ones of these hidden states of the first examples of a batch. Copies after them are ignored."""
        selection, ids, device = self.selection, inputs["input_ids"][: len(lengths)], self.model.device
        layout, count = Layout(lengths, ids.shape[1], device=device), int(lengths.sum())

        def real(cut: int) -> Tensor:  # [T, D]
            hidden = by_cut[cut]
            return hidden[0, :count] if self.packed else hidden.flatten(0, 1).index_select(0, layout.grid_index)

        selected = {f"tokens-{cut}": real(cut) for cut in selection.cuts if cut in by_cut}
        if selection.head and self.anatomy.count in by_cut:
            mask = inputs["attention_mask"][: len(ids)]
            at = head_position(self.head_reads, ids, mask, padding_id(self.model))
            selected["head"] = real(self.anatomy.count)[layout.head_index(at, packed=True)]
        pooled = {f"pooled-{cut}": _pooled(real(cut).float(), lengths) for cut in selection.pooled if cut in by_cut}
        return selected | pooled


def embeddings_are_lookups(model: PreTrainedModel, anatomy: Anatomy) -> bool:
    """Whether the modules below the layers contain no matrix product.

    A packed batch is packed at the first layer, so a product below it would have a varying number of padded tokens.
    """
    tables = {f"{path}.weight" for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
    return not any(
        p.dim() > 1 and name not in tables and name not in anatomy.idle and anatomy.places[name] == EMBEDDINGS
        for name, p in model.named_parameters()
    )


def _pooled(hidden: Tensor, lengths: Tensor) -> Tensor:
    """First token, mean and last token of each example, ``[B, 3 D]``, from the tokens of all examples, ``[T, D]``."""
    if hidden.device.type == "mps":  # MPS has no segment_reduce
        hidden = hidden.cpu()
    lengths = to_device(lengths, hidden.device)
    ends = lengths.cumsum(0)
    mean = torch.segment_reduce(hidden, "mean", lengths=lengths, axis=0, unsafe=hidden.device.type != "cpu")
    return torch.cat([hidden[ends - lengths], mean, hidden[ends - 1]], 1)


B = TypeVar("B")
R = TypeVar("R")
# Runs some layers for a batch, from its hidden states before them.
Layers = Callable[[B, Tensor | None], tuple[R, Tensor]]


def layer_by_layer(
    model: PreTrainedModel,
    anatomy: Anatomy,
    steps: Sequence[tuple[int, int]],
    batches: Sequence[B],
    *,
    layers: Callable[[int | None, int], AbstractContextManager[Layers[B, R]]],
    scratch: Path | None,
) -> Iterator[tuple[B, int, R]]:
    """Run the steps one after the other, each for all batches. If layers are streamed, those of that step are in memory.

    A step has the numbers of the first layer that runs, and of the first one that does not. ``layers`` opens a context for such
    numbers (None begins with the embeddings) with a function that maps a batch and its hidden states to a result and the
    hidden states after these layers. Between two steps they are in the folder ``scratch``.

    Yields:
        A batch, the last number of its step, and the result.
    """
    last, stream = steps[-1][1], stream_of(model)
    for start, stop in steps:
        loaded = stream.loaded(stream.in_layers(anatomy, range(start, stop))) if stream else nullcontext()
        with loaded, layers(start or None, stop) as run:
            for number, batch in enumerate(batches):
                between = None if scratch is None else scratch / f"{number}.safetensors"
                # a copy, because the last bits depend on the alignment of its memory
                hidden = load_file(between)["states"].clone().to(model.device) if start and between else None
                result, states = run(batch, hidden)
                if stop < last:
                    assert between is not None, "steps need a scratch folder"
                    between.write_bytes(save({"states": states.contiguous()}))
                yield batch, stop, result
