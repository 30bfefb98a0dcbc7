"""The forward pass over the frozen layers: hidden states of many examples.

An example gets bitwise identical hidden states whatever else is in its batch; :mod:`frostline.frozen.batches` says how.

Shapes: B examples in a batch, T tokens, D width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.fast.last_layer import HeadTokenPart, read_at
from frostline.frozen.batches import ForwardBatch, Lengths, Rows, packed_batches, padded_batches, tokens_per_batch
from frostline.frozen.cut import cut_at
from frostline.frozen.selection import StateSelection
from frostline.model.anatomy import EMBEDDINGS, Anatomy
from frostline.model.packing import packable
from frostline.model.tokens import Tokens


@dataclass(frozen=True)
class ForwardPass:
    """How hidden states are computed.

    Attributes:
        model: A classifier of transformers.
        anatomy: Its layers.
        selection: Which hidden states are wanted.
        head_reads: Which tokens the head reads: ``first``, ``last`` or ``all``.
        packed: Whether batches are packed.
        autocast: Opens the precision of the forward pass.
        head_token: The part of the last layer that runs for the head's token only. There are then no hidden states of other
            tokens after the last layer, and no pooled vectors.
        max_tokens: Tokens of one batch; None: as many as suit the device.
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
        """Tokens of one batch; only a single longer example has more."""
        return tokens_per_batch(self.model.device, self.anatomy) if self.max_tokens is None else self.max_tokens

    def batches(self, lengths: Lengths, rows: Rows) -> list[ForwardBatch]:
        """Batches of these rows of a table whose examples have these ``lengths``."""
        positions = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        split = packed_batches if self.packed else padded_batches
        return split(lengths, rows, self.token_budget, positions=positions)

    def hidden_states(self, tokens: Tokens, batches: Sequence[ForwardBatch]) -> Iterator[dict[str, Tensor]]:
        """Compute the selected hidden states.

        Yields:
            For each batch, by name: ``tokens-<cut>`` ``[T, D]``, ``head`` ``[B, D]``, ``pooled-<layers>`` ``[B, 3 D]``.
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
                inputs = {name: x.to(model.device) for name, x in batch.inputs(tokens).items()}
                with self.autocast():
                    whole(inputs, capacity=batch.capacity, examples=batch.examples)
                selected = self._selected(by_cut, inputs, len(batch.rows))
                by_cut.clear()
                yield selected

    def _selected(self, by_cut: dict[int, Tensor], inputs: dict[str, Tensor], examples: int) -> dict[str, Tensor]:
        """The selected hidden states of a batch's own ``examples``, which stand before the copies that fill it."""
        selection, mask = self.selection, inputs["attention_mask"][:examples].bool()
        lengths = mask.sum(1)

        def real(cut: int) -> Tensor:  # [T, D]
            hidden = by_cut[cut]
            return hidden[0, : int(mask.sum())] if self.packed else hidden[: len(mask)][mask]

        selected = {f"tokens-{cut}": real(cut) for cut in selection.cuts}
        if selection.head:
            pad = self.model.config.get_text_config().pad_token_id
            at = read_at(self.head_reads, inputs["input_ids"][: len(mask)], mask, pad)
            selected["head"] = real(self.anatomy.count)[lengths.cumsum(0) - lengths + at]
        return selected | {f"pooled-{cut}": _pooled(real(cut).float(), lengths) for cut in selection.pooled}


def embeddings_are_lookups(model: PreTrainedModel, anatomy: Anatomy) -> bool:
    """Whether nothing below the layers is a matrix product.

    Only then does every product of a packed forward pass see packed tokens. Below the layers it would see the padded grid.
    """
    tables = {f"{path}.weight" for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
    return not any(
        p.dim() > 1 and name not in tables and name not in anatomy.idle and anatomy.places[name] == EMBEDDINGS
        for name, p in model.named_parameters()
    )


def _pooled(hidden: Tensor, lengths: Tensor) -> Tensor:
    """``[B, 3 D]``: first token, mean and last token of examples whose tokens follow each other in ``hidden`` ``[T, D]``."""
    if hidden.device.type == "mps":  # which has no segment_reduce
        hidden, lengths = hidden.cpu(), lengths.cpu()
    ends = lengths.cumsum(0)
    mean = torch.segment_reduce(hidden, "mean", lengths=lengths, axis=0)
    return torch.cat([hidden[ends - lengths], mean, hidden[ends - 1]], 1)
