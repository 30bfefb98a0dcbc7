"""Groups of examples of similar length in a packed batch, for attention. :mod:`frostline.model.packed_layout` has the names."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from frostline.fast.attention import HeadGrid
from frostline.model.device import CPU, to_device
from frostline.model.packed_layout import ALIGNED, MAX_SHORT, Layout


@dataclass(frozen=True)
class LengthGroup:
    """Examples of similar length in a batch.

    Shapes: b examples of the group, s their padded length, t their tokens.

    Attributes:
        lengths: ``[B]`` on the host, of all examples of the batch.
        layout: The layout of the group's examples only.
        examples: ``[b]`` on the host, their positions in the batch.
        tokens: ``[t]`` on the host, the positions of their tokens among the tokens of the batch.
    """

    lengths: Tensor
    layout: Layout
    examples: Tensor
    tokens: Tensor
    _required_masks: list[tuple[Tensor, bool, Tensor | None]] = field(default_factory=list)  # of the last two masks

    @classmethod
    def of(cls, lengths: Tensor, examples: Tensor, length: int, device: torch.device = CPU) -> "LengthGroup":
        """The group of these ``examples`` of a batch on ``device`` with these ``lengths``; its padded length is ``length``."""
        own = lengths[examples]
        starts = (lengths.cumsum(0) - lengths)[examples] - (own.cumsum(0) - own)
        tokens = starts.repeat_interleave(own) + torch.arange(int(own.sum()))
        return cls(lengths, Layout(own, length, device=device), examples, tokens)

    @cached_property
    def example_index(self) -> Tensor:  # [b], ``examples`` on the device
        return to_device(self.examples, self.layout.device)

    @cached_property
    def token_index(self) -> Tensor:  # [t], ``tokens`` on the device
        return to_device(self.tokens, self.layout.device)

    @cached_property
    def one_per_example(self) -> list["LengthGroup"]:
        """On a CPU: one group per example. On other devices: this group only.

        On a CPU the last bits of some products depend on the number of examples. A long example has no padding then.
        """
        if self.layout.device.type != "cpu":
            return [self]
        length = self.layout.length
        return [
            LengthGroup.of(self.lengths, example, length if length <= MAX_SHORT else int(self.lengths[example]))
            for example in torch.split(self.examples, 1)
        ]

    @cached_property
    def start(self) -> int | None:
        """The first token of one long example without padding, on a CPU; None for all other groups."""
        full = len(self.examples) == 1 and len(self.tokens) == self.layout.length > MAX_SHORT
        return int(self.tokens[0]) if full and self.layout.device.type == "cpu" else None

    def head_grid(self, heads: int) -> HeadGrid:
        """The grid for this number of attention heads, with one row per example."""
        if heads not in self.layout._head_grids:
            grid = HeadGrid.with_own_rows(self.lengths, heads, self.examples, self.layout.length)
            self.layout._head_grids[heads] = grid
        return self.layout._head_grids[heads]

    def unpack(self, x: Tensor) -> Tensor:
        """Attention heads of the batch, ``[1, H, T, C]``, to those of the group's examples, ``[b, H, s, C]``."""
        if self.start is not None and x.stride(2) * x.element_size() % ALIGNED == 0:
            return x.narrow(2, self.start, self.layout.length)
        return self.layout.unpack(x.index_select(2, self.token_index).transpose(1, 2)).transpose(1, 2)

    def pack(self, x: Tensor) -> Tensor:
        """``[b, s, ...]`` to ``[1, t, ...]``"""
        return self.layout.pack(x) if self.start is None else x

    def mask_of_group(self, mask: Tensor | None) -> Tensor | None:
        """The part for the group's examples of a mask or bias of the batch, ``[B or 1, H or 1, S or 1, S]``."""
        if mask is None:
            return None
        mask = mask if len(mask) == 1 else mask.index_select(0, self.example_index)
        return mask[:, :, : self.layout.length, : self.layout.length]

    def required_mask(self, mask: Tensor | None, *, causal: bool) -> Tensor | None:
        """The part of an attention mask for the group's examples; None if attention gives the same result without it.

        This holds for one long example without padding, whose mask hides nothing, or with ``causal`` only later tokens.
        """
        if mask is None or self.start is None or mask.dtype != torch.bool:
            return self.mask_of_group(mask)
        for known_mask, known_causal, required in self._required_masks:
            if known_mask is mask and known_causal == causal:
                return required
        own = self.mask_of_group(mask)
        assert own is not None
        everything = torch.ones(own.shape[2:], dtype=torch.bool)
        redundant = torch.equal(own, (everything.tril() if causal else everything).expand_as(own))
        required = None if redundant else own
        self._required_masks[:] = [(mask, causal, required), *self._required_masks[:1]]
        return required
