"""Run the model from a cut on, without the layers below it.

A cut at ``c`` skips the lower ``c`` layers, with ``c`` from 0 to L. A skipped layer returns its input. The first layer above
the cut gets the cached hidden states instead of its input, and runs unchanged, as do all layers above it. No architecture's
forward pass is rewritten: the code of transformers runs from the input to the logits.

At cut 0, cached hidden states replace the output of the embeddings. At cut L, they replace the output of the last layer, and
only the final norm, the pooler and the classifier head run. A cut of None cuts nothing.

Shapes: B examples in a batch, S padded length, T tokens, D width, C outputs.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.fast.last_layer import HeadTokenPart, head_rows
from frostline.fast.switch import forwards_replaced
from frostline.model.anatomy import Anatomy, Batch, Call
from frostline.model.device import without_cudnn_attention
from frostline.model.packed_layout import Layout
from frostline.model.packing import Packing, Positions

# On a CPU the number of tokens in a packed batch is a multiple of TOKENS_MULTIPLE, because kernels are prepared anew for each
# number.
TOKENS_MULTIPLE = 16

Tap = Callable[[int, Tensor], None]  # called with a number of layers and the hidden states after them


@dataclass
class UpperModel:
    """The model above a cut. :func:`cut_at` makes it.

    Attributes:
        cut: The number of lower layers that do not run; None runs all.
        packing: Runs packed batches; None runs padded ones.
        tap: Called with the hidden states at every cut.
        runs: How many stacked runs share a batch. The batch holds the examples of the first run, then those of the second,
            and so on. All runs have the same number of examples.
        head_token: The part of the last layer that runs for the head's token only; None runs all of it for all tokens.
        at: Where the tokens of the present batch are; those that packed attention reads.
    """

    model: PreTrainedModel
    anatomy: Anatomy
    cut: int | None
    packing: Packing | None
    tap: Tap | None = None
    runs: int = 1
    head_token: HeadTokenPart | None = None
    at: Positions = field(init=False)
    _hidden: Tensor | None = field(default=None, init=False)  # the cached hidden states of the current batch
    _head: Tensor | None = field(default=None, init=False)  # [B], the position of the head's token in each example

    def __post_init__(self) -> None:
        self.at = self.packing or Positions()

    def __call__(
        self,
        batch: Batch,
        hidden: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        capacity: int = 0,
        examples: int = 0,
    ) -> Tensor:
        """Logits ``[B, C]``, or of a token classifier those of the real tokens, ``[T, C]``.

        Args:
            batch: The model's inputs, padded on the right.
            hidden: Cached hidden states of the real tokens, ``[1, T, D]``, in the order of the batch. They can also be those of
                all positions, as a tap gets them: ``[B, S, D]``, or packed ``[1, capacity, D]``. Required with a cut.
            lengths: ``[B]`` on the host, the number of tokens of each example; None: they are read from the device.
            capacity: Copies fill a packed batch up to this many tokens; see :mod:`frostline.model.packing`.
            examples: Copies fill a packed batch up to this many examples.
        """
        mask = batch["attention_mask"]
        step = TOKENS_MULTIPLE if self.packing and not capacity and mask.device.type == "cpu" else 1
        lengths = mask.sum(1).cpu() if lengths is None else lengths
        layout = self.at.layout = Layout(lengths, mask.shape[1], self.runs, capacity, examples, step, mask.device)
        try:
            self._hidden = None if hidden is None else self._arranged(hidden)
            if self.head_token:
                self._head = self.head_token.positions(batch["input_ids"], mask)
            logits: Tensor = self.model(**batch).logits
            # the same as real_logits, without asking a device for the positions of the real tokens
            return logits if logits.dim() == 2 else logits.flatten(0, 1).index_select(0, layout.grid_index)
        finally:
            self._hidden = self._head = None
            self._read_tokens(None)
            self.at.layout = None

    def _arranged(self, hidden: Tensor) -> Tensor:
        """The given hidden states as the first layer reads them: packed ``[K, T, D]``, or padded ``[B, S, D]``."""
        layout = self.at.layout
        assert layout is not None
        whole = (1, layout.capacity) if self.packing else (layout.batch_size, layout.length)
        if hidden.shape[:2] == whole:
            return hidden
        by_run = layout.split_by_run(hidden)
        return by_run if self.packing else layout.unpack(by_run)

    def skipped_forward(self, number: int) -> Callable[..., Any]:
        """The forward function of a skipped layer. It returns the layer's input.

        If all layers are skipped, the last one returns the cached hidden states.
        """
        call, last = self.anatomy.calls[number], number == self.anatomy.count - 1

        def forward(*args: Any, **kwargs: Any) -> Any:
            hidden = call.hidden_in(args, kwargs)
            if last and self.cut == self.anatomy.count and self._hidden is not None:
                assert self.at.layout is not None
                hidden = self.at.layout.unpack(self._hidden) if self.packing else self._hidden
            return call.output(hidden)

        return forward

    def before_layer(self, number: int, *, first: bool) -> Callable[..., Any]:
        """A hook before a layer that runs. It packs the inputs, and gives the ``first`` layer the cached hidden states."""
        call = self.anatomy.calls[number]

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            layout = self.at.layout
            assert layout is not None
            given: dict[int | str, Any] = dict([*enumerate(args), *kwargs.items()])
            if first and self._hidden is not None:
                given[call.hidden] = self._hidden
            elif first and self.packing:
                given[call.hidden] = layout.pack(given[call.hidden])
            if self.packing:
                for key in call.per_token:
                    given[key] = _pack(layout, given[key])
            if self.tap:
                self.tap(number, given[call.hidden])
            if number == self.anatomy.count - 1:
                self._read_tokens(self._head)
            return tuple(given[n] for n in range(len(args))), {name: given[name] for name in kwargs}

        return hook

    def after_last_layer(self, call: Call) -> Callable[..., Any]:
        """A hook after the last layer. It restores the padded grid of a packed batch."""

        def hook(module: nn.Module, args: Any, out: Any) -> Any:
            hidden = out[0] if call.wrap else out
            if self.tap:
                self.tap(self.anatomy.count, hidden)
            read, layout = self.at.head_index, self.at.layout
            self._read_tokens(None)
            if not self.packing:
                return None
            assert layout is not None
            if read is not None and layout.indexed:  # in all places, because no other place is read
                hidden = head_rows(hidden, read)[:, None].expand(-1, layout.length, -1)
            else:
                hidden = layout.unpack(hidden)
            return call.wrap([hidden, *out[1:]]) if call.wrap else hidden

        return hook

    def positions(self) -> Positions:
        """Where the tokens of the current batch are now, for :meth:`at_positions`."""
        return Positions(self.at.layout, self.at.head_position, self.at.head_index)

    @contextmanager
    def at_positions(self, positions: Positions) -> Iterator[None]:
        """While the context is open, layers read these positions, so that a layer can run again after its batch."""
        before = self.positions()
        vars(self.at).update(vars(positions))
        try:
            yield
        finally:
            vars(self.at).update(vars(before))

    def _read_tokens(self, at: Tensor | None) -> None:
        """From now on, compute only the tokens at these positions of the examples, ``[B]``; None: all tokens."""
        packed, layout = self.packing is not None, self.at.layout
        self.at.head_position = at
        self.at.head_index = layout.head_index(at, packed=packed) if at is not None and layout is not None else None


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
    head_token: HeadTokenPart | None = None,
) -> Iterator[UpperModel]:
    """Prepare ``model`` to run from ``cut`` on. On exit, the model is restored.

    Args:
        model: A classifier of transformers.
        anatomy: Its layers.
        cut: The number of lower layers that do not run; None runs all.
        packing: Run packed batches; None runs padded ones.
        tap: ``tap(n, hidden)`` is called with the input of every layer ``n`` that runs, and with L and the output of the last
            layer.
        stop: Do not run the layers from this number on, if only hidden states below are needed. The logits are then
            meaningless.
        runs: How many stacked runs share a batch.
        head_token: Run this part of the last layer only for the token that the head reads. The layer's output for all other
            tokens is then meaningless.
    """
    layers, start = anatomy.layers(model), cut or 0
    upper = UpperModel(model, anatomy, cut, packing, tap, runs, head_token if start < anatomy.count else None)
    forwards = upper.head_token.forwards(layers[-1], lambda: upper.at.head_index, runs) if upper.head_token else {}
    for number in (*range(start), *range(anatomy.count if stop is None else stop, anatomy.count)):
        forwards[layers[number]] = upper.skipped_forward(number)
    with forwards_replaced(forwards), without_cudnn_attention(), ExitStack() as hooks:
        for number in range(start, anatomy.count):
            hook = upper.before_layer(number, first=number == start)
            hooks.callback(layers[number].register_forward_pre_hook(hook, with_kwargs=True).remove)
        if start < anatomy.count:
            hooks.callback(layers[-1].register_forward_hook(upper.after_last_layer(anatomy.calls[-1])).remove)
        yield upper


def joint_products(anatomy: Anatomy, head_token: HeadTokenPart | None) -> list[list[str]]:
    """Paths of linear modules that read the same tensor, also if the last layer runs for the head's token only."""
    alone = {f"{anatomy.path}.{anatomy.count - 1}.{path}" for path in head_token.modules} if head_token else set()
    return [[path for path in paths if path not in alone] for paths in anatomy.joint]


def hidden_states_by_cut(model: PreTrainedModel, anatomy: Anatomy, batch: Batch) -> dict[int, Tensor]:
    """Hidden states of the real tokens by cut, ``[1, T, D]`` each, from a forward pass over the padded ``batch``."""
    by_cut: dict[int, Tensor] = {}
    mask = batch["attention_mask"].bool()

    def tap(cut: int, hidden: Tensor) -> None:
        by_cut[cut] = hidden[mask][None]

    with torch.no_grad(), cut_at(model, anatomy, None, tap=tap) as whole:
        whole(batch)
    return by_cut


def _pack(layout: Layout, x: Any) -> Any:
    return tuple(_pack(layout, item) for item in x) if isinstance(x, tuple) else layout.pack(x)
