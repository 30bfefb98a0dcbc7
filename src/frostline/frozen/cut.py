"""The real model, run from a cut on.

Layer ``c`` and those above it run as they are; the layers below hand their input on, and the kept hidden
states take the place of what they would have computed. No architecture's forward is rewritten: transformers' own code runs
from the input to the logits.

``cut`` is the number of lower layers that do not run, 0 .. L. At 0 the embeddings' output is replaced; at L
the last layer's, so that what follows (final norm, pooler, head) is all that runs. None cuts nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.fast.forwards import forwards_replaced
from frostline.fast.last_layer import Narrow
from frostline.model.anatomy import Anatomy, Batch, Call
from frostline.model.packing import Layout, Packing

STEP = 16  # on a CPU packed batches have a multiple of so many tokens: for each number kernels are prepared anew

Tap = Callable[[int, Tensor], None]  # (number of layers passed, hidden states)


@dataclass
class Upper:
    """The model above a cut; made by :func:`cut_at`.

    Calling it gives logits ``[B, C]``. ``kept`` are hidden states of the real tokens, ``[1, T, D]``, in the
    order of the batch; they are needed unless nothing is cut. ``runs`` stacked runs have their texts in one batch,
    those of a run one after another, as many of each. ``room`` and ``texts``: see :mod:`frostline.model.packing`.
    """

    model: PreTrainedModel
    anatomy: Anatomy
    cut: int | None
    packing: Packing | None  # None: padded batches
    tap: Tap | None = None
    runs: int = 1
    narrow: Narrow | None = None  # None: the last layer runs for all tokens
    read: Tensor | None = field(default=None, init=False)  # while the last layer runs, as Layout.rows has it
    _layout: Layout | None = field(default=None, init=False)
    _kept: Tensor | None = field(default=None, init=False)
    _at: Tensor | None = field(default=None, init=False)

    def __call__(self, batch: Batch, kept: Tensor | None = None, *, room: int = 0, texts: int = 0) -> Tensor:
        mask = batch["attention_mask"]
        step = STEP if self.packing and not room and mask.device.type == "cpu" else 1
        self._layout = Layout(mask.sum(1), mask.shape[1], self.runs, room, texts, step)
        apart = None if kept is None else self._layout.apart(kept)
        self._kept = apart if apart is None or self.packing else self._layout.unpack(apart)
        if self.packing:
            self.packing.layout = self._layout
        if self.narrow:
            self._at = self.narrow.places(batch["input_ids"], mask)
        try:
            return self.model(**batch).logits  # type: ignore[no-any-return]
        finally:
            self._layout = self._kept = self._at = None
            self._read(None)
            if self.packing:
                self.packing.layout = None

    def hand_on(self, number: int) -> Callable[..., Any]:
        """The forward of a lower layer: its input, or the kept states when it is the last layer of all."""
        call, last = self.anatomy.calls[number], number == self.anatomy.count - 1

        def forward(*args: Any, **kwargs: Any) -> Any:
            hidden = args[call.hidden] if isinstance(call.hidden, int) else kwargs[call.hidden]
            if last and self._kept is not None:
                assert self._layout is not None
                hidden = self._layout.unpack(self._kept) if self.packing else self._kept
            return call.hand_on(hidden)

        return forward

    def enter(self, number: int, *, first: bool) -> Callable[..., Any]:
        """Before a layer that runs: swap the kept states in, and pack what the layer is given."""
        call = self.anatomy.calls[number]

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            assert self._layout is not None
            given: dict[int | str, Any] = dict([*enumerate(args), *kwargs.items()])
            if first and self._kept is not None:
                given[call.hidden] = self._kept
            elif first and self.packing:
                given[call.hidden] = self._layout.pack(given[call.hidden])
            if self.packing:
                for key in call.per_token:
                    given[key] = _pack(self._layout, given[key])
            if self.tap:
                self.tap(number, given[call.hidden])
            if number == self.anatomy.count - 1:
                self._read(self._at)
            return tuple(given[n] for n in range(len(args))), {name: given[name] for name in kwargs}

        return hook

    def leave(self, call: Call) -> Callable[..., Any]:
        """After the last layer: back to the padded grid."""

        def hook(module: nn.Module, args: Any, out: Any) -> Any:
            hidden = out[0] if call.wrap else out
            if self.tap:
                self.tap(self.anatomy.count, hidden)
            self._read(None)
            if not self.packing:
                return None
            assert self._layout is not None
            hidden = self._layout.unpack(hidden)
            return call.wrap([hidden, *out[1:]]) if call.wrap else hidden

        return hook

    def _read(self, at: Tensor | None) -> None:
        """From here on only these tokens of the texts, ``[B]``, count; or all of them again."""
        assert self._layout is not None or at is None
        packed = self.packing is not None
        self.read = None if at is None or self._layout is None else self._layout.rows(at, packed=packed)
        if self.packing:
            self.packing.at, self.packing.read = at, self.read


@contextmanager
def cut_at(
    model: PreTrainedModel,
    anatomy: Anatomy,
    cut: int | None,
    *,
    packing: Packing | None = None,
    tap: Tap | None = None,
    stop: int | None = None,
    runs: int = 1,
    narrow: Narrow | None = None,
) -> Iterator[Upper]:
    """Open ``model`` for running from ``cut`` on, in packed batches where ``packing`` is given; undone on leaving.

    With ``narrow`` the last layer runs for the tokens that the head reads; the hidden states of all others are then worth
    nothing after it.

    ``tap(n, hidden)`` sees what goes into layer ``n`` and, with ``n`` = L, what leaves the last layer. Layers from
    ``stop`` on do not run either, for a pass that only wants what lies below; the logits are then worth nothing.
    """
    layers, start = anatomy.layers(model), cut or 0
    upper = Upper(model, anatomy, cut, packing, tap, runs, narrow if start < anatomy.count else None)
    forwards = upper.narrow.forwards(layers[-1], lambda: upper.read, runs) if upper.narrow else {}
    for number in (*range(start), *range(anatomy.count if stop is None else stop, anatomy.count)):
        forwards[layers[number]] = upper.hand_on(number)
    with forwards_replaced(forwards), ExitStack() as hooks:
        for number in range(start, anatomy.count):
            enter = upper.enter(number, first=number == start)
            hooks.callback(layers[number].register_forward_pre_hook(enter, with_kwargs=True).remove)
        if start < anatomy.count:
            hooks.callback(layers[-1].register_forward_hook(upper.leave(anatomy.calls[-1])).remove)
        yield upper


def _pack(layout: Layout, x: Any) -> Any:
    return tuple(_pack(layout, item) for item in x) if isinstance(x, tuple) else layout.pack(x)
