"""Where the tokens of a packed batch stand.

Shapes: B examples, S padded length, T tokens of the packed batch, D width, H heads, C head size, K stacked runs.

A packed batch holds the real tokens of a right-padded batch, one after another: hidden states are ``[1, T, D]``. For K
stacked runs they are ``[K, T, D]``, where T is the number of tokens of the longest run, rounded up to a multiple of ``step``. The
rest is filled with copies of a run's own first token.

With a ``room``, nothing that is computed for an example depends on the other examples of its batch. T is then the room, as many
tokens are read as there could be examples, and attention sees examples of one rounded length in a grid of that length.
"""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from frostline.fast.attention import Places

LONG = 128  # tokens: from this length on, attention groups examples of similar length, or takes one at a time
STEP = 8  # with a room, an example's length is rounded up to a multiple of this
ALIGNED = 64  # bytes: the last bits of a product may depend on its address unless it is a multiple of this
GROUP_COST = 50_000  # one more group takes about as long as this many pairs of tokens


@dataclass(frozen=True)
class Layout:
    """Where the real tokens of a right-padded batch are in its grid."""

    lengths: Tensor  # [B], each at least 1
    length: int  # S
    runs: int = 1  # K, with the same number of examples each
    room: int = 0  # capacity for tokens, if larger than their number; 0: none
    texts: int = 0  # with a room: how many tokens the head reads, at most
    step: int = 1  # T is a multiple of it

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @cached_property
    def mask(self) -> Tensor:  # [B, S], 1 where a token is real
        return (torch.arange(self.length, device=self.lengths.device) < self.lengths[:, None]).long()

    @cached_property
    def index(self) -> Tensor:  # [T], positions of the real tokens in the flattened grid
        return self.mask.flatten().nonzero()[:, 0]

    @cached_property
    def taken(self) -> Tensor:  # [K, T], true at real tokens
        counts = self.lengths.view(self.runs, -1).sum(1)
        return torch.arange(self.tokens, device=counts.device) < counts[:, None]

    @cached_property
    def tokens(self) -> int:
        """T"""
        most = int(self.lengths.view(self.runs, -1).sum(1).max())
        return max(self.room, -(-most // self.step) * self.step)

    @cached_property
    def filling(self) -> Tensor:  # [K * T], the number of the real token at each position
        counts = self.taken.sum(1)
        inside = torch.arange(self.taken.shape[1], device=counts.device) * self.taken
        return (inside + (counts.cumsum(0) - counts)[:, None]).flatten()

    @cached_property
    def places(self) -> Tensor:  # the position of each real token among the K * T
        return self.taken.flatten().nonzero()[:, 0]

    @cached_property
    def groups(self) -> list["Group"]:
        """Examples of similar length, if attention then computes far fewer pairs; with a room, those of one rounded length.

        Empty if all examples share one grid.
        """
        if self.room:
            rounded = (-(-self.lengths // STEP) * STEP).clamp(max=self.length)
            return [
                Group.of(self.lengths, (rounded == length).nonzero()[:, 0], length)
                for length in sorted(set(rounded.tolist()), reverse=True)
            ]
        if self.runs > 1 or self.length < LONG or self.lengths.device.type != "cpu":
            return []
        texts = torch.argsort(self.lengths, descending=True, stable=True)

        def chunks(count: int) -> list[Tensor]:
            return list(torch.split(texts, -(-self.batch // count)))

        def pairs(count: int) -> int:
            return sum(len(some) * int(self.lengths[some[0]]) ** 2 + GROUP_COST for some in chunks(count))

        best = min((1, 2, 4, 8), key=pairs)
        return [Group.of(self.lengths, some, int(self.lengths[some[0]])) for some in chunks(best)] if best > 1 else []

    def places_of(self, heads: int) -> Places:
        """Where the heads of each token are in a grid whose rows short examples share."""
        if heads not in self._places:
            self._places[heads] = Places.shared(self.lengths, heads, self.tokens)
        return self._places[heads]

    @cached_property
    def _places(self) -> dict[int, Places]:
        return {}

    def from_groups(self, parts: list[Tensor]) -> Tensor:
        """Join values of the groups, ``[1, t, ...]`` each, to ``[1, T, ...]`` in the order of the batch; zeros fill the room."""
        empty = self.tokens - sum(part.shape[1] for part in parts)
        if empty:
            parts = [*parts, parts[0].new_zeros(1, empty, *parts[0].shape[2:])]
        whole = torch.cat(parts, 1)
        return whole if self._order is None else whole.index_select(1, self._order)

    @cached_property
    def _order(self) -> Tensor | None:
        """``[T]``: for each position, where its token is among those of the groups; None if the order is the same."""
        grouped = torch.cat([group.tokens for group in self.groups])
        every = torch.arange(self.tokens, device=grouped.device)
        order = torch.cat([torch.argsort(grouped), every[len(grouped) :]])
        return None if torch.equal(order, every) else order

    def rows(self, at: Tensor, *, packed: bool) -> Tensor:
        """``[B]``: positions of one token per example, among the K * T or in the grid; ``[texts]`` with a room."""
        if not packed:
            return torch.arange(self.batch, device=at.device) * self.length + at
        tokens = self.lengths.cumsum(0) - self.lengths + at
        if self.room:
            return torch.cat([tokens, tokens.new_zeros(self.texts - self.batch)])
        return tokens if self.runs == 1 else self.places[tokens]

    def whole(self, *, causal: bool) -> Tensor:
        """The mask ``[1, 1, S, S]`` of a grid without padding, for which transformers builds none."""
        if causal not in self._whole:
            every = torch.ones(1, 1, self.length, self.length, dtype=torch.bool, device=self.lengths.device)
            self._whole[causal] = every.tril() if causal else every
        return self._whole[causal]

    @cached_property
    def _whole(self) -> dict[bool, Tensor]:
        return {}

    def pack(self, x: Tensor) -> Tensor:  # [B or 1, S, ...] -> [K, T, ...]
        grid = x.expand(self.batch, *x.shape[1:]).reshape(self.batch * self.length, *x.shape[2:])
        return self.apart(grid.index_select(0, self.index)[None])

    def apart(self, x: Tensor) -> Tensor:  # [1, all tokens, ...], those of a run one after another -> [K, T, ...]
        assert x.shape[1] == len(self.index), "the tokens are not those of this batch"
        if self.runs == 1 and x.shape[1] == self.tokens:
            return x
        return x[0].index_select(0, self.filling).view(*self.taken.shape, *x.shape[2:])

    def unpack(self, x: Tensor) -> Tensor:  # [K, T, ...] -> [B, S, ...], zeros where there is no token
        tokens = x[0, : len(self.index)] if self.runs == 1 else x.flatten(0, 1).index_select(0, self.places)
        grid = x.new_zeros(self.batch * self.length, *x.shape[2:])
        return grid.index_copy(0, self.index, tokens).view(self.batch, self.length, *x.shape[2:])


@dataclass(frozen=True)
class Group:
    """Some examples of a batch, and where their tokens are."""

    lengths: Tensor  # [B], of all examples of the batch
    layout: Layout  # of these examples only
    texts: Tensor  # [b]
    tokens: Tensor  # [t], positions among the tokens of the batch
    _needed: list[tuple[Tensor, bool, Tensor | None]] = field(default_factory=list)  # for the last masks

    @classmethod
    def of(cls, lengths: Tensor, texts: Tensor, length: int) -> "Group":
        """The group of ``texts`` among examples of these ``lengths``, in a grid of this ``length``."""
        own = lengths[texts]
        starts = (lengths.cumsum(0) - lengths)[texts] - (own.cumsum(0) - own)
        tokens = starts.repeat_interleave(own) + torch.arange(int(own.sum()), device=own.device)
        return cls(lengths, Layout(own, length), texts, tokens)

    @cached_property
    def alone(self) -> list["Group"]:
        """One group per example on a CPU, where the last bits of some products depend on the number of examples.

        A long example then has no padding. On other devices, all examples stay together.
        """
        if self.lengths.device.type != "cpu":
            return [self]
        length = self.layout.length
        return [
            Group.of(self.lengths, text, length if length < LONG else int(self.lengths[text]))
            for text in torch.split(self.texts, 1)
        ]

    @cached_property
    def start(self) -> int | None:
        """Where the tokens of one long example without padding begin, on a CPU; None in all other cases."""
        full = len(self.texts) == 1 and len(self.tokens) == self.layout.length >= LONG
        return int(self.tokens[0]) if full and self.lengths.device.type == "cpu" else None

    def places_of(self, heads: int) -> Places:
        """Where the heads of each token are in the grid of these examples."""
        if heads not in self.layout._places:
            self.layout._places[heads] = Places.alone(self.lengths, heads, self.texts, self.layout.length)
        return self.layout._places[heads]

    def unpack(self, x: Tensor) -> Tensor:
        """Heads ``[1, H, T, C]`` of the batch to those of these examples, ``[b, H, s, C]``."""
        if self.start is not None and x.stride(2) * x.element_size() % ALIGNED == 0:
            return x.narrow(2, self.start, self.layout.length)
        return self.layout.unpack(x.index_select(2, self.tokens).transpose(1, 2)).transpose(1, 2)

    def pack(self, x: Tensor) -> Tensor:
        """``[b, s, ...]`` of these examples to ``[1, t, ...]``."""
        return self.layout.pack(x) if self.start is None else x

    def part(self, bias: Tensor | None) -> Tensor | None:
        """The part of ``[B or 1, H or 1, S or 1, S]`` that belongs to these examples."""
        if bias is None:
            return None
        bias = bias if len(bias) == 1 else bias.index_select(0, self.texts)
        return bias[:, :, : self.layout.length, : self.layout.length]

    def needed(self, mask: Tensor | None, *, causal: bool) -> Tensor | None:
        """The same for an attention mask; None if one long example needs no mask beyond a ``causal`` one."""
        if mask is None or self.start is None or mask.dtype != torch.bool:
            return self.part(mask)
        for seen, how, part in self._needed:
            if seen is mask and how == causal:
                return part
        part = self.part(mask)
        assert part is not None
        every = torch.ones(part.shape[2:], dtype=torch.bool)
        found = None if torch.equal(part, (every.tril() if causal else every).expand_as(part)) else part
        self._needed[:] = [(mask, causal, found), *self._needed[:1]]
        return found
