"""The forward pass over the frozen layers: compute hidden states of many examples.

The hidden states of an example do not depend on the other examples of its batch, not even in the last bit. See
:mod:`frostline.frozen.batches`.

Shapes: B examples in a batch, T tokens, D width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

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
        model, selection, last = self.model, self.selection, self.anatomy.count
        by_cut: dict[int, Tensor] = {}
        stop = selection.depth(last)
        assert self.head_token is None or last not in (*selection.pooled, *selection.cuts)
        head_token = self.head_token if stop == last else None
        model.eval()
        with (
            packable(model) if self.packed else nullcontext() as packing,
            cut_at(
                model, self.anatomy, None, packing=packing, tap=by_cut.__setitem__, stop=stop, head_token=head_token
            ) as whole,
            torch.no_grad(),
        ):
            for batch in batches:
                inputs = batch.inputs(tokens)
                lengths = inputs["attention_mask"].sum(1)  # on the host
                inputs = {name: to_device(x, model.device) for name, x in inputs.items()}
                with self.autocast():
                    whole(inputs, lengths=lengths, capacity=batch.capacity, examples=batch.examples)
                selected = self._selected(by_cut, inputs, lengths[: len(batch.rows)])
                by_cut.clear()
                yield selected

    def _selected(self, by_cut: dict[int, Tensor], inputs: dict[str, Tensor], lengths: Tensor) -> dict[str, Tensor]:
        """The selected hidden states of the first examples of a batch, whose ``lengths`` are on the host.

        Copies after them are ignored.
        """
        selection, ids, device = self.selection, inputs["input_ids"][: len(lengths)], self.model.device
        layout, count = Layout(lengths, ids.shape[1], device=device), int(lengths.sum())

        def real(cut: int) -> Tensor:  # [T, D]
            hidden = by_cut[cut]
            return hidden[0, :count] if self.packed else hidden.flatten(0, 1).index_select(0, layout.grid_index)

        selected = {f"tokens-{cut}": real(cut) for cut in selection.cuts}
        if selection.head:
            mask = inputs["attention_mask"][: len(ids)]
            at = head_position(self.head_reads, ids, mask, padding_id(self.model))
            selected["head"] = real(self.anatomy.count)[layout.head_index(at, packed=True)]
        pooled = {f"pooled-{cut}": _pooled(real(cut).float(), lengths) for cut in selection.pooled}
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
    """First token, mean and last token of each example, ``[B, 3 D]``, from the tokens of all examples, ``[T, D]``.

    ``lengths`` are on the host. torch then need not check on a device that they add up to T.
    """
    if hidden.device.type == "mps":  # MPS has no segment_reduce
        hidden = hidden.cpu()
    lengths = to_device(lengths, hidden.device)
    ends = lengths.cumsum(0)
    mean = torch.segment_reduce(hidden, "mean", lengths=lengths, axis=0, unsafe=hidden.device.type != "cpu")
    return torch.cat([hidden[ends - lengths], mean, hidden[ends - 1]], 1)
