"""Where the tokens of a packed batch are.

Shapes: B examples, S padded length, T tokens of the packed batch, D width, H attention heads, C head size, K stacked runs.

A packed batch holds the real tokens of a right-padded batch, one after another: hidden states are ``[1, T, D]``. For K
stacked runs they are ``[K, T, D]``. T is the number of tokens of the longest run, rounded up to a multiple. A run with fewer
tokens is filled up with copies of its own first token.

With a ``capacity``, nothing that is computed for an example depends on the other examples of its batch. T is then the
capacity, and the head always reads the same number of tokens. Attention sees examples of one rounded length together, in a
grid of that length.

Lengths are on the host, so that positions are computed there. Only the indices that operations on the batch read are copied to
its device. A device is never asked for a number.

Names: ``grid_index`` holds positions in a flattened padded grid, ``packed_index`` holds positions in a packed batch.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from frostline.fast.attention import HeadGrid
from frostline.model.device import CPU, to_device

MAX_SHORT = 127  # tokens: attention groups longer examples by length, or takes them one at a time
LENGTH_MULTIPLE = 8  # with a capacity, an example's length is rounded up to a multiple of this
ALIGNED = 64  # bytes: the last bits of a product may depend on its address unless it is a multiple of this
GROUP_COST = 50_000  # one more group takes about as long as attention over this many pairs of tokens


@dataclass(frozen=True)
class Layout:
    """Where the real tokens of a right-padded batch are in its grid and in the packed batch.

    Attributes:
        lengths: ``[B]`` on the host, the number of tokens of each example, at least 1.
        length: S.
        runs: K. Every run has the same number of examples.
        capacity: T, if it exceeds the number of real tokens. The packed batch is then filled up to this number; 0 sets none.
        examples: With a capacity: how many tokens the head reads, including copies.
        tokens_multiple: T is rounded up to a multiple of this.
        device: Where the batch is.
    """

    lengths: Tensor
    length: int
    runs: int = 1
    capacity: int = 0
    examples: int = 0
    tokens_multiple: int = 1
    device: torch.device = CPU

    @property
    def batch_size(self) -> int:
        """B"""
        return len(self.lengths)

    @cached_property
    def mask(self) -> Tensor:  # [B, S] on the host, 1 where a token is real
        return (torch.arange(self.length) < self.lengths[:, None]).long()

    @cached_property
    def _copied(self) -> dict[str, Tensor]:
        """The indices on the device, by name. One copy has all of them, because starting a copy takes longer than making it."""
        names = ["grid_index", "starts", *(["source_index", "packed_index"] if self.runs > 1 or self.capacity else [])]
        names += [] if self.capacity else ["token_at", "place_of", "offsets"]
        on_host: list[Tensor] = [getattr(self, f"_{name}") for name in names]
        on_device = to_device(torch.cat(on_host), self.device)
        return dict(zip(names, torch.split(on_device, [len(x) for x in on_host]), strict=True))

    def _index(self, name: str) -> Tensor:
        if self.device.type != "cpu" and name in self._copied:
            return self._copied[name]
        return to_device(getattr(self, f"_{name}"), self.device)

    @cached_property
    def grid_index(self) -> Tensor:  # [all real tokens], the position of each in the flattened grid [B * S]
        return self._index("grid_index")

    @cached_property
    def _grid_index(self) -> Tensor:
        return self.mask.flatten().nonzero()[:, 0]

    @cached_property
    def is_real(self) -> Tensor:  # [K, T] on the host, false at copies that fill up
        counts = self.lengths.view(self.runs, -1).sum(1)
        return torch.arange(self.tokens) < counts[:, None]

    @cached_property
    def tokens(self) -> int:
        """T"""
        most = int(self.lengths.view(self.runs, -1).sum(1).max())
        return max(self.capacity, -(-most // self.tokens_multiple) * self.tokens_multiple)

    @cached_property
    def source_index(self) -> Tensor:  # [K * T], which of all real tokens is at each position
        return self._index("source_index")

    @cached_property
    def _source_index(self) -> Tensor:
        counts = self.is_real.sum(1)
        within_run = torch.arange(self.is_real.shape[1]) * self.is_real
        return (within_run + (counts.cumsum(0) - counts)[:, None]).flatten()

    @cached_property
    def packed_index(self) -> Tensor:  # [all real tokens], the position of each in the flattened packed batch [K * T]
        return self._index("packed_index")

    @cached_property
    def _packed_index(self) -> Tensor:
        return self.is_real.flatten().nonzero()[:, 0]

    @cached_property
    def _starts(self) -> Tensor:  # [B], the position of each example's first token in the flattened packed batch
        return self._packed_index[self.lengths.cumsum(0) - self.lengths]

    @property
    def indexed(self) -> bool:
        """Whether batches use :meth:`spread` and :meth:`gather`: fewer operations, which a GPU takes long to start."""
        return self.device.type != "cpu" and not self.capacity

    @cached_property
    def _token_at(self) -> Tensor:
        """``[B * S]``, the token at each position of the grid; at padding the first token of the example."""
        real_token = (self.lengths.cumsum(0) - self.lengths)[:, None] + torch.arange(self.length) * self.mask
        return self._packed_index[real_token.flatten()]

    @cached_property
    def _place_of(self) -> Tensor:
        """``[K * T]``: the position of each token in the flattened grid; of copies that fill up, that of padding of their run."""
        grid = self.mask.view(self.runs, -1)
        assert (self.is_real.all(1) | (grid.amin(1) == 0)).all(), "a run that is filled up has no padding"
        padding = grid.argmin(1) + torch.arange(self.runs) * grid.shape[1]
        return torch.where(
            self.is_real, self._grid_index[self._source_index].view(self.runs, -1), padding[:, None]
        ).flatten()

    @cached_property
    def offsets(self) -> Tensor:
        """The ends of all examples in the flattened packed batch, after a 0, as int32. Copies that fill up are examples."""
        return self._index("offsets").view(torch.int32)[: len(self._parts) + 1]

    @cached_property
    def _offsets(self) -> Tensor:  # viewed as int64, so that one copy has all indices
        ends = torch.tensor([0, *self._parts, *[0] * (1 - len(self._parts) % 2)], dtype=torch.int32)
        return ends.cumsum(0, dtype=torch.int32).view(torch.int64)

    @cached_property
    def _parts(self) -> list[int]:
        """The lengths of the examples of each run, and of its copies that fill up. None is above S."""
        parts = []
        for own in self.lengths.view(self.runs, -1).tolist():
            whole, rest = divmod(self.tokens - sum(own), self.length)
            parts += [*own, *[self.length] * whole, *[rest] * (rest > 0)]
        return parts

    def spread(self, x: Tensor) -> Tensor:
        """``[K, T, ...]`` to ``[B, S, ...]``, with copies of an example's first token as padding. Attention must ignore them."""
        grid: Tensor = _Spread.apply(x.flatten(0, 1), self._index("token_at"), self._index("place_of"))  # type: ignore[no-untyped-call]
        return grid.view(self.batch_size, self.length, *x.shape[2:])

    def gather(self, x: Tensor) -> Tensor:
        """``[B, S, ...]`` to ``[K, T, ...]``, as :meth:`pack`. Copies that fill up are those of padding."""
        return x.flatten(0, 1).index_select(0, self._index("place_of")).view(self.runs, self.tokens, *x.shape[2:])

    @cached_property
    def groups(self) -> list["LengthGroup"]:
        """Groups of examples of similar length; empty if all examples share one grid.

        With a capacity, there is one group for each rounded length. Without one, there are groups only where they save
        attention more time than they cost.
        """

        if self.capacity:
            rounded = (-(-self.lengths // LENGTH_MULTIPLE) * LENGTH_MULTIPLE).clamp(max=self.length)
            return [
                LengthGroup.of(self.lengths, (rounded == length).nonzero()[:, 0], length, self.device)
                for length in sorted(set(rounded.tolist()), reverse=True)
            ]
        if self.runs > 1 or self.length <= MAX_SHORT or self.device.type != "cpu":
            return []
        by_length = torch.argsort(self.lengths, descending=True, stable=True)

        def chunks(count: int) -> list[Tensor]:
            return list(torch.split(by_length, -(-self.batch_size // count)))

        def cost(count: int) -> int:
            return sum(len(chunk) * int(self.lengths[chunk[0]]) ** 2 + GROUP_COST for chunk in chunks(count))

        best = min((1, 2, 4, 8), key=cost)
        if best == 1:
            return []
        return [LengthGroup.of(self.lengths, chunk, int(self.lengths[chunk[0]])) for chunk in chunks(best)]

    def head_grid(self, heads: int) -> HeadGrid:
        """The grid for this number of attention heads, in which short examples share rows."""
        if heads not in self._head_grids:
            self._head_grids[heads] = HeadGrid.with_shared_rows(self.lengths, heads, self.tokens)
        return self._head_grids[heads]

    @cached_property
    def _head_grids(self) -> dict[int, HeadGrid]:
        return {}

    def from_groups(self, values: list[Tensor]) -> Tensor:
        """Join the groups' values, ``[1, t, ...]`` each, to ``[1, T, ...]`` in the order of the batch, followed by zeros."""
        missing = self.tokens - sum(x.shape[1] for x in values)
        if missing:
            values = [*values, values[0].new_zeros(1, missing, *values[0].shape[2:])]
        joined = torch.cat(values, 1)
        return joined if self._order is None else joined.index_select(1, self._order)

    @cached_property
    def _order(self) -> Tensor | None:
        """``[T]``: where the groups have the token of each position; None if both have the same order."""
        grouped = torch.cat([group.tokens for group in self.groups])
        positions = torch.arange(self.tokens)
        order = torch.cat([torch.argsort(grouped), positions[len(grouped) :]])
        return None if torch.equal(order, positions) else to_device(order, self.device)

    def head_index(self, head_position: Tensor, *, packed: bool) -> Tensor:
        """The index of the one token per example that the head reads, at the positions ``[B]`` in each example.

        ``packed`` indexes into the flattened packed batch ``[K * T]``, otherwise into the flattened grid ``[B * S]``. It is
        ``[B]``; with a capacity ``[examples]``, filled up with the index 0.
        """
        if not packed:
            return torch.arange(self.batch_size, device=head_position.device) * self.length + head_position
        tokens = self._index("starts") + head_position
        if self.capacity:
            return torch.cat([tokens, tokens.new_zeros(self.examples - self.batch_size)])
        return tokens

    def full_mask(self, *, causal: bool) -> Tensor:
        """The attention mask ``[1, 1, S, S]`` of a grid without padding, for which transformers builds none."""
        if causal not in self._full_masks:
            everything = torch.ones(1, 1, self.length, self.length, dtype=torch.bool, device=self.device)
            self._full_masks[causal] = everything.tril() if causal else everything
        return self._full_masks[causal]

    @cached_property
    def _full_masks(self) -> dict[bool, Tensor]:
        return {}

    def pack(self, x: Tensor) -> Tensor:
        """``[B or 1, S, ...]`` to ``[K, T, ...]``"""
        if self.indexed and len(x) == self.batch_size:
            return self.gather(x)
        grid = x.expand(self.batch_size, *x.shape[1:]).reshape(self.batch_size * self.length, *x.shape[2:])
        return self.split_by_run(grid.index_select(0, self.grid_index)[None])

    def split_by_run(self, x: Tensor) -> Tensor:
        """``[1, all real tokens, ...]``, run after run, to ``[K, T, ...]``"""
        assert x.shape[1] == int(self.lengths.sum()), "the tokens are not those of this batch"
        if self.runs == 1 and x.shape[1] == self.tokens:
            return x
        return x[0].index_select(0, self.source_index).view(*self.is_real.shape, *x.shape[2:])

    def unpack(self, x: Tensor) -> Tensor:
        """``[K, T, ...]`` to ``[B, S, ...]``, with zeros as padding, or as :meth:`spread`"""
        if self.indexed:
            return self.spread(x)
        count = len(self.grid_index)
        tokens = x[0, :count] if self.runs == 1 else x.flatten(0, 1).index_select(0, self.packed_index)
        grid = x.new_zeros(self.batch_size * self.length, *x.shape[2:])
        return grid.index_copy(0, self.grid_index, tokens).view(self.batch_size, self.length, *x.shape[2:])


class _Spread(torch.autograd.Function):
    """Tokens in the padded grid. Their gradients are read there, because those of ignored padding are zero."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, token_at: Tensor, place_of: Tensor) -> Tensor:
        ctx.save_for_backward(place_of)
        return tokens.index_select(0, token_at)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0].index_select(0, *ctx.saved_tensors), None, None


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
        own = self.mask_of_group(mask)
        assert own is not None
        everything = torch.ones(own.shape[2:], dtype=torch.bool)
        redundant = torch.equal(own, (everything.tril() if causal else everything).expand_as(own))
        return None if redundant else own
