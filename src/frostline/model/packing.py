"""Batches without padding: only attention sees a grid.

Shapes: B batch, S padded length, T tokens of the packed batch, D width, H heads, C head size.

Between the first layer that runs and the last, hidden states are ``[1, T, D]``. The attention function
registered here scatters heads into the grid ``[B, H, S, C]``, calls the attention that transformers would
have called, with the mask that transformers itself built, and gathers the real tokens again; on a CPU short texts
take the way of :mod:`frostline.fast.attention`. All else in a layer works token by token, as transformers has it.

Of K stacked runs the grid holds the texts, those of a run one after another, and hidden states are ``[K, T, D]``, T
being the tokens of the run that has most, rounded up to a multiple of the layout's ``step``; what is left over are copies
of a run's own first token.

Where a batch is given a ``room``, nothing that is computed for a text hangs on its company: T is the room, as many tokens
are said to be read as there could be texts of that kind, and attention sees texts of one length, rounded up, in a grid of
that length, a long one by itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from frostline.fast.attention import Places, attend, attended
from frostline.fast.dropout import Dropout
from frostline.fast.last_layer import placed
from frostline.fast.switch import enabled

ATTENTION = "frostline_packed"
LONG = 128  # tokens: from this length on attention may look at texts of like length together, or at one by itself
STEP = 8  # a text's length is rounded up to a multiple of it, where its shapes are to hang on nothing else
SCORED = 65  # below it texts that are only scored take the same way as those that are trained
ALIGNED = 64  # bytes: where a product's numbers begin at a multiple of it, its last bits do not hang on where they lie
GROUP = 50_000  # so many pairs of tokens take about as long as one more group


@dataclass(frozen=True)
class Layout:
    """Where the real tokens of a right-padded batch stand in its grid."""

    lengths: Tensor  # [B], each at least 1
    length: int  # S
    runs: int = 1  # K, with as many texts each
    room: int = 0  # places for the tokens of a run, where they are more than there are tokens
    texts: int = 0  # with a room: so many tokens are said to be read
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
    def taken(self) -> Tensor:  # [K, T], true where a real token stands among those of its run
        counts = self.lengths.view(self.runs, -1).sum(1)
        return torch.arange(self.tokens, device=counts.device) < counts[:, None]

    @cached_property
    def tokens(self) -> int:
        """T"""
        most = int(self.lengths.view(self.runs, -1).sum(1).max())
        return max(self.room, -(-most // self.step) * self.step)

    @cached_property
    def filling(self) -> Tensor:  # [K * T], the number of the real token in each place, of all runs' tokens in order
        counts = self.taken.sum(1)
        inside = torch.arange(self.taken.shape[1], device=counts.device) * self.taken
        return (inside + (counts.cumsum(0) - counts)[:, None]).flatten()

    @cached_property
    def places(self) -> Tensor:  # the place of each real token among the K * T
        return self.taken.flatten().nonzero()[:, 0]

    @cached_property
    def groups(self) -> list["Group"]:
        """Texts of like length together, where attention then has far fewer pairs to look at, and with a room those of one
        length, rounded up; none where all share one grid."""
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
            return sum(len(some) * int(self.lengths[some[0]]) ** 2 + GROUP for some in chunks(count))

        best = min((1, 2, 4, 8), key=pairs)
        return [Group.of(self.lengths, some, int(self.lengths[some[0]])) for some in chunks(best)] if best > 1 else []

    def places_of(self, heads: int) -> Places:
        """Where so many heads of each token stand in a grid whose rows short texts share."""
        if heads not in self._places:
            self._places[heads] = Places.shared(self.lengths, heads, self.tokens)
        return self._places[heads]

    @cached_property
    def _places(self) -> dict[int, Places]:
        return {}

    def from_groups(self, parts: list[Tensor]) -> Tensor:
        """``[1, T, ...]`` in the batch's order of what each group's tokens have, ``[1, t, ...]``; zeros fill the room."""
        empty = self.tokens - sum(part.shape[1] for part in parts)
        if empty:
            parts = [*parts, parts[0].new_zeros(1, empty, *parts[0].shape[2:])]
        whole = torch.cat(parts, 1)
        return whole if self._order is None else whole.index_select(1, self._order)

    @cached_property
    def _order(self) -> Tensor | None:
        """``[T]``, for each place where its token is among those of the groups, one after another; None where it is the same."""
        grouped = torch.cat([group.tokens for group in self.groups])
        every = torch.arange(self.tokens, device=grouped.device)
        order = torch.cat([torch.argsort(grouped), every[len(grouped) :]])
        return None if torch.equal(order, every) else order

    def rows(self, at: Tensor, *, packed: bool) -> Tensor:
        """``[B]``: one token of each text, among the K * T or in the grid; ``[texts]`` where there is a room."""
        if not packed:
            return torch.arange(self.batch, device=at.device) * self.length + at
        tokens = self.lengths.cumsum(0) - self.lengths + at
        if self.room:
            return torch.cat([tokens, tokens.new_zeros(self.texts - self.batch)])
        return tokens if self.runs == 1 else self.places[tokens]

    def whole(self, *, causal: bool) -> Tensor:
        """The mask ``[1, 1, S, S]`` of a grid without padding, for which transformers makes none."""
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
    """Some texts of a batch, and where their tokens are."""

    lengths: Tensor  # [B], of all texts of the batch
    layout: Layout  # of these alone
    texts: Tensor  # [b]
    tokens: Tensor  # [t], among those of the batch
    _needed: list[tuple[Tensor, bool, Tensor | None]] = field(default_factory=list)  # of the masks last seen

    @classmethod
    def of(cls, lengths: Tensor, texts: Tensor, length: int) -> "Group":
        """Of these of the texts that have these ``lengths``, in a grid of this ``length``."""
        own = lengths[texts]
        starts = (lengths.cumsum(0) - lengths)[texts] - (own.cumsum(0) - own)
        tokens = starts.repeat_interleave(own) + torch.arange(int(own.sum()), device=own.device)
        return cls(lengths, Layout(own, length), texts, tokens)

    @cached_property
    def alone(self) -> list["Group"]:
        """Each of the texts in a group of its own, a long one without padding, on a CPU, where the last bits of some products
        hang on how many there are; on other devices all of them."""
        if self.lengths.device.type != "cpu":
            return [self]
        length = self.layout.length
        return [
            Group.of(self.lengths, text, length if length < LONG else int(self.lengths[text]))
            for text in torch.split(self.texts, 1)
        ]

    @cached_property
    def start(self) -> int | None:
        """Where the tokens begin of what is one long text without padding, on a CPU; None for all else."""
        full = len(self.texts) == 1 and len(self.tokens) == self.layout.length >= LONG
        return int(self.tokens[0]) if full and self.lengths.device.type == "cpu" else None

    def places_of(self, heads: int) -> Places:
        """Where so many heads of each token stand in the grid of these texts."""
        if heads not in self.layout._places:
            self.layout._places[heads] = Places.alone(self.lengths, heads, self.texts, self.layout.length)
        return self.layout._places[heads]

    def unpack(self, x: Tensor) -> Tensor:
        """Heads ``[1, H, T, C]`` of all tokens of the batch -> those of these texts ``[b, H, s, C]``."""
        if self.start is not None and x.stride(2) * x.element_size() % ALIGNED == 0:
            return x.narrow(2, self.start, self.layout.length)
        return self.layout.unpack(x.index_select(2, self.tokens).transpose(1, 2)).transpose(1, 2)

    def pack(self, x: Tensor) -> Tensor:
        """``[b, s, ...]`` of these texts -> ``[1, t, ...]``."""
        return self.layout.pack(x) if self.start is None else x

    def part(self, bias: Tensor | None) -> Tensor | None:
        """The part of what is ``[B or 1, H or 1, S or 1, S]`` that is about these texts."""
        if bias is None:
            return None
        bias = bias if len(bias) == 1 else bias.index_select(0, self.texts)
        return bias[:, :, : self.layout.length, : self.layout.length]

    def needed(self, mask: Tensor | None, *, causal: bool) -> Tensor | None:
        """The same of an attention mask; None where one long text needs none, since attention without a mask sees all, or if
        it is ``causal`` all but what comes later."""
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


class Packing:
    """What the attention of one model is told about the batch under way; ``layout`` is None for a padded batch."""

    layout: Layout | None = None
    at: Tensor | None = None  # [B], while the last layer runs for one token a text only: where in the text it stands
    read: Tensor | None = None  # the same among the K * T, as Layout.rows has it
    dropout: Dropout | None = None  # None: torch's own
    calls = 0  # how often packed attention ran: a layer that never asks for it cannot be packed


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """transformers' attention function: ``[K, H, T, C]`` heads in, ``[K, T, H, C]`` out (``[B, H, S, C]`` when padded)."""
    packing: Packing | None = getattr(module, "frostline_packing", None)
    if packing is None or packing.layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]
    layout = packing.layout
    packing.calls += 1
    if layout.room and attention_mask is None:  # what is done must not hang on whether the company needs one
        attention_mask = layout.whole(causal=_is_causal(module, None, **kwargs))
    if packing.read is not None and not _is_causal(module, attention_mask, **kwargs):
        return _of_read(packing, module, query, key, value, attention_mask, **kwargs), None
    short = layout.length < (LONG if _learns(query) else SCORED)
    if layout.groups:
        return _by_group(packing, module, query, key, value, attention_mask, **kwargs), None
    if short and _is_plain(packing, module, query, key, value, attention_mask, **kwargs):
        return _short(packing, query, key, value, attention_mask, **kwargs), None
    query, key, value = (layout.unpack(x.transpose(1, 2)).transpose(1, 2) for x in (query, key, value))
    return layout.pack(_attend(packing, module, query, key, value, attention_mask, **kwargs)), None


def _is_causal(module: nn.Module, mask: Tensor | None, **kwargs: Any) -> bool:
    """Whether what comes later is hidden without a mask that says so."""
    causal = kwargs.get("is_causal")
    return mask is None and bool(getattr(module, "is_causal", True) if causal is None else causal)


def _learns(x: Tensor) -> bool:
    return x.requires_grad and torch.is_grad_enabled()


def _is_plain(
    packing: Packing, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> bool:
    """Whether this is attention of one run on a CPU with nothing about it that is special."""
    layout = packing.layout
    assert layout is not None
    alike = key.shape == value.shape == query.shape  # no fewer heads of keys
    ours = packing.dropout is not None or not kwargs.get("dropout")
    special = any(kwargs.get(name) is not None for name in ("position_bias", "softcap", "cache"))
    unmasked = _is_causal(module, mask, **kwargs)
    possible = query.device.type == "cpu" and layout.runs == 1 and alike and not special and not unmasked
    return possible and enabled("attention")


def _short(packing: Packing, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any) -> Tensor:
    """See :mod:`frostline.fast.attention`."""
    assert packing.layout is not None
    places, scale, dropped = (
        packing.layout.places_of(query.shape[1]),
        kwargs.get("scaling"),
        kwargs.get("dropout") or 0.0,
    )
    if not (dropped or _learns(query)):
        return attended(query, key, value, mask, places, scale=scale)
    return attend(query, key, value, mask, places, scale=scale, dropout=packing.dropout, dropped=dropped)


def _by_group(
    packing: Packing, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> Tensor:
    """The same, text by text, but texts of like length share a grid."""
    layout, parts, causal = packing.layout, [], _is_causal(module, None, **kwargs)
    assert layout is not None
    ours = layout.room and not kwargs.get("dropout") and _is_plain(packing, module, query, key, value, mask, **kwargs)
    bias = kwargs.pop("position_bias", None)
    for group in layout.groups:
        if ours and group.layout.length < LONG:
            places = group.places_of(query.shape[1])
            parts.append(attended(query, key, value, mask, places, scale=kwargs.get("scaling")))
            continue
        for one in group.alone if layout.room else [group]:
            grid = (one.unpack(x) for x in (query, key, value))
            hidden = one.needed(mask, causal=causal)
            out = _attend(packing, module, *grid, hidden, **kwargs, position_bias=one.part(bias))
            parts.append(one.pack(out))
    return layout.from_groups(parts)


def _of_read(
    packing: Packing, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any
) -> Tensor:
    """What the tokens that are read attend to; zeros for the others."""
    layout, at, read = packing.layout, packing.at, packing.read
    assert layout is not None and at is not None and read is not None
    places, read = query.shape[0] * query.shape[2], read[: layout.batch]  # K T; [B]
    one = query.transpose(1, 2).flatten(0, 1).index_select(0, read)[:, :, None]  # [B, H, 1, C]
    if mask is not None and mask.shape[2] > 1:
        mask = mask.expand(layout.batch, *mask.shape[1:])
        mask = mask[torch.arange(layout.batch, device=at.device), :, at][:, :, None]
    if layout.room:
        fused = key.shape[1] == one.shape[1]  # fewer heads of keys may be multiplied by products of all texts
        groups = [
            some
            for group in layout.groups
            for some in ([group] if fused and group.layout.length < LONG else group.alone)
        ]
        parts = []
        for some in groups:
            twice = one[some.texts].repeat(1, 1, 2, 1)  # of a lone row, last bits may hang on where in memory it lies
            # without a mask, torch would take two rows that are the same for the first two of a causal text
            hidden = some.part(mask) if _is_causal(module, None, **kwargs) else some.needed(mask, causal=False)
            parts.append(_attend(packing, module, twice, some.unpack(key), some.unpack(value), hidden, **kwargs))
        order = torch.argsort(torch.cat([some.texts for some in groups]))
        out = torch.cat(parts)[order, 0]  # [B, H, C]
    else:
        key, value = (layout.unpack(x.transpose(1, 2)).transpose(1, 2) for x in (key, value))
        out = _attend(packing, module, one, key, value, mask, **kwargs)[:, 0]
    return placed(out, read, places).view(query.shape[0], query.shape[2], *out.shape[1:])


def _attend(packing: Packing, module: nn.Module, *grid: Tensor | None, **kwargs: Any) -> Tensor:
    """transformers' attention with our masks of dropout; heads and mask in the padded grid, out ``[B, S, H, C]``."""
    with packing.dropout.in_attention() if packing.dropout and kwargs.get("dropout") else nullcontext():
        out: Tensor = sdpa_attention_forward(module, *grid, **kwargs)[0]
    return out


AttentionInterface.register(ATTENTION, _attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def is_packable(model: PreTrainedModel) -> bool:
    """Whether the type of ``model`` uses transformers' interface for attention, with its usual function."""
    possible = model._can_set_attn_implementation() and model.config._attn_implementation == "sdpa"
    return bool(possible) and enabled("packing")


@contextmanager
def packable(model: PreTrainedModel) -> Iterator[Packing | None]:
    """Let ``model`` run packed batches while the context is open; None where its type does not use the interface."""
    if not is_packable(model):
        yield None
        return
    packing = Packing()
    model.set_attn_implementation(ATTENTION)
    for module in model.modules():
        module.frostline_packing = packing
    try:
        yield packing
    finally:
        for module in model.modules():
            del module.frostline_packing
        model.set_attn_implementation("sdpa")
