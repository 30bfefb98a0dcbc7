"""The forward pass over the frozen layers: compute hidden states of many examples.

The hidden states of an example do not depend on the other examples of its batch, not even in the last bit. See
:mod:`frostline.frozen.batches`.

Shapes: B examples in a batch, T tokens, D width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.fast.last_layer import HeadTokenPart, head_position
from frostline.frozen.batches import ForwardBatch, Lengths, Rows, packed_batches, padded_batches, tokens_per_batch
from frostline.frozen.cut import cut_at
from frostline.frozen.selection import StateSelection
from frostline.model.anatomy import Anatomy, position_limit
from frostline.model.device import to_device
from frostline.model.packed_layout import Layout
from frostline.model.packing import packable
from frostline.model.places import EMBEDDINGS
from frostline.model.tokens import Tokens
from frostline.model.with_head import padding_id


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

    @property
    def token_budget(self) -> int:
        """The most tokens of one batch, unless a single example is longer."""
        return tokens_per_batch(self.model.device, self.anatomy) if self.max_tokens is None else self.max_tokens

    def batches(self, lengths: Lengths, rows: Rows) -> list[ForwardBatch]:
        """Split these rows of a table into batches. ``lengths`` are the tokens of every example of the table."""
        split = packed_batches if self.packed else padded_batches
        return split(lengths, rows, self.token_budget, positions=position_limit(self.model))

    def hidden_states(self, tokens: Tokens, batches: Sequence[ForwardBatch]) -> Iterator[dict[str, Tensor]]:
        """Compute the selected hidden states of these batches.

        Yields:
            For each batch, tensors by name: ``tokens-<cut>`` ``[T, D]``, ``head`` ``[B, D]``, ``pooled-<layers>`` ``[B, 3 D]``.
        """
        with self.layers(tokens, None, self.depth) as compute:
            for batch in batches:
                yield compute(batch, None).selected

    @property
    def depth(self) -> int:
        """How many layers must run."""
        return self.selection.depth(self.anatomy.count)

    @contextmanager
    def layers(
        self, tokens: Tokens, cut: int | None, stop: int
    ) -> Iterator[Callable[[ForwardBatch, Tensor | None], "Computed"]]:
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

        def compute(batch: ForwardBatch, hidden: Tensor | None) -> Computed:
            inputs = batch.inputs(tokens)
            lengths = inputs["attention_mask"].sum(1)  # on the host
            inputs = {name: to_device(x, model.device) for name, x in inputs.items()}
            with self.autocast():
                upper(inputs, hidden, lengths=lengths, capacity=batch.capacity, examples=batch.examples)
            ours = range(0 if cut is None else cut + 1, stop + 1)
            found = {number: states for number, states in by_cut.items() if number in ours}
            by_cut.clear()
            return Computed(self._selected(found, inputs, lengths[: len(batch.rows)]), found[stop])

        with (
            packable(model) if self.packed else nullcontext() as packing,
            cut_at(model, self.anatomy, cut, packing=packing, tap=keep, stop=stop, head_token=head_token) as upper,
            torch.no_grad(),
        ):
            yield compute

    def _selected(self, by_cut: dict[int, Tensor], inputs: dict[str, Tensor], lengths: Tensor) -> dict[str, Tensor]:
        """The selected ones of these hidden states of the first examples of a batch, whose ``lengths`` are on the host.

        Copies after them are ignored.
        """
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


class Computed(NamedTuple):
    """What some layers compute for a batch: the selected hidden states by name, and all of those after the last layer."""

    selected: dict[str, Tensor]
    states: Tensor


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
    """First token, mean and last token of each example, ``[B, 3 D]``, from the tokens of all examples, ``[T, D]``.

    ``lengths`` are on the host. torch then need not check on a device that they add up to T.
    """
    if hidden.device.type == "mps":  # MPS has no segment_reduce
        hidden = hidden.cpu()
    lengths = to_device(lengths, hidden.device)
    ends = lengths.cumsum(0)
    mean = torch.segment_reduce(hidden, "mean", lengths=lengths, axis=0, unsafe=hidden.device.type != "cpu")
    return torch.cat([hidden[ends - lengths], mean, hidden[ends - 1]], 1)
