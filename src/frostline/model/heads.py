"""Classifier heads that replace the head of a model type, a classifier with such a head, and the logits of any head.

A head is dropout and one linear module on vectors of texts or of tokens. The vector of a text is the mean of the hidden states of
all tokens, or that of the last token. The attention mask says which tokens are padding. A BiLSTM can run over the hidden
states first. No architecture is known by name.

Shapes: B texts in a batch, S padded length, T real tokens of a batch, D width, H units of each direction of the LSTM, C outputs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from frostline import FrostlineError
from frostline.model.anatomy import Anatomy, Call
from frostline.model.streaming import share_stream
from frostline.model.terms import LAST, MEAN, OWN, HeadKind


class Head(nn.Module):
    """Logits of texts or tokens from hidden states.

    Attributes:
        kind: What the head reads: the ``mean`` of all tokens or the ``last`` one; with an LSTM also ``type``, each token.
        width: The width of one hidden state, D.
        lstm: A two-layer BiLSTM that does not read padding (Devlin et al. 2019, section 5.3); None without one.
        dropout: On the vectors that the linear module reads.
        linear: Its outputs are the logits.
    """

    def __init__(self, kind: HeadKind, width: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.kind, self.width = kind, width
        self.lstm: nn.LSTM | None = None
        if kind.lstm_width:
            sizes = (kind.states * width, kind.lstm_width)
            self.lstm = nn.LSTM(*sizes, num_layers=2, bidirectional=True, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(2 * kind.lstm_width or width, outputs)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Logits ``[B, C]`` of texts or ``[B, S, C]`` of tokens, of hidden states ``[B, S, states * D]``."""
        if self.lstm is not None:
            texts = pack_padded_sequence(hidden, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
            hidden, _ = pad_packed_sequence(self.lstm(texts)[0], batch_first=True, total_length=mask.shape[1])
        read = hidden if self.kind.reads == OWN else pooled(hidden, mask, self.kind.reads)
        logits: Tensor = self.linear(self.dropout(read))
        return logits


def pooled(hidden: Tensor, mask: Tensor, reads: str) -> Tensor:
    """``[B, D]``: the mean of the hidden states of all real tokens, or the hidden state of the last one.

    Sums are computed in float32 at least.
    """
    if reads == LAST:
        positions = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(1)
        return hidden[torch.arange(len(hidden), device=hidden.device), positions]
    assert reads == MEAN
    real = mask[:, :, None].to(torch.promote_types(hidden.dtype, torch.float32))
    return ((hidden * real).sum(1) / real.sum(1)).to(hidden.dtype)


def real_logits(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits ``[B, C]`` of examples as they are. Those of a token classifier, ``[B, S, C]``, become ``[T, C]``.

    The logits of padded positions mean nothing, and depend on how a batch was computed. The attention mask is ``[B, S]``.
    """
    return logits if logits.dim() == 2 else logits[mask.bool()]


def padding_id(model: PreTrainedModel) -> int | None:
    """The id of the tokens that the head skips when it looks for the last one; None if it goes by the attention mask alone."""
    if isinstance(getattr(model, "head", None), Head):
        return None
    found: int | None = model.config.get_text_config().pad_token_id
    return found


def with_head(own: PreTrainedModel, kind: HeadKind, anatomy: Anatomy) -> PreTrainedModel:
    """The classifier ``own`` with a new head. Both share the base model and its configuration.

    Its parameters are called as those of ``own``, except for the head, which is called ``head``. The new head has the
    number of outputs and the dropout probability of the old one. ``anatomy`` has the layers of ``own``.

    Raises:
        FrostlineError: ``own`` has no base model inside it, or has too few layers.
    """
    base = own.base_model
    if base is own or not isinstance(base, PreTrainedModel):
        raise FrostlineError(
            f"The head of a {own.config.model_type} cannot be replaced, because the model has no part without a head: "
            "choose a way with the head of the model type."
        )
    if kind.layers >= anatomy.count:
        raise FrostlineError(
            f"The head reads {kind.states} hidden states, but the model has {anatomy.count} layers: give "
            f"lstm_states = {anatomy.count} or less, in a table [way.NAME] of a TOML file."
        )
    inside = {*base.modules()}
    dropouts = (module.p for module in own.modules() if isinstance(module, nn.Dropout) and module not in inside)
    head = Head(kind, anatomy.width, own.config.num_labels, next(dropouts, 0.0))
    share_stream(own, base)
    return on_base(base, own.base_model_prefix, head, anatomy.layers(own), anatomy.calls)


def on_base(
    base: PreTrainedModel, prefix: str, head: Head, layers: Sequence[nn.Module], calls: Sequence[Call]
) -> PreTrainedModel:
    """A classifier with this head on a base model with these layers. Its attribute ``prefix`` is the base model."""
    # what transformers knows of the model type, such as how weights are initialized
    parent: Any = next(kind for kind in type(base).__mro__[1:] if issubclass(kind, PreTrainedModel))

    class WithHead(parent):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(base.config)
            self.base_model_prefix = prefix
            self.add_module(prefix, base)
            self.head = head
            # what the last layers have read so far in a forward pass of this model; None outside of one
            self.lower: list[Tensor] | None = None

        def _init_weights(self, module: nn.Module) -> None:
            if isinstance(module, nn.LSTM):
                module.reset_parameters()
            else:
                super()._init_weights(module)

        def forward(self, attention_mask: Tensor, **inputs: Any) -> SequenceClassifierOutput:
            self.lower = []
            try:
                hidden = self.base_model(attention_mask=attention_mask, **inputs).last_hidden_state
                packing = getattr(self, "frostline_packing", None)
                layout = packing and packing.layout
                hidden = torch.cat([*(layout.unpack(x) if layout else x for x in self.lower), hidden], 2)
            finally:
                self.lower = None
            return SequenceClassifierOutput(logits=self.head(hidden, attention_mask))

    def keep_input_of(call: Call) -> Callable[..., None]:
        """A hook after a layer that keeps the hidden states which it has read, ``[B, S, D]`` or packed ``[1, T, D]``."""

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            if model.lower is not None:  # other classifiers have the same layers
                model.lower.append(call.hidden_in(args, kwargs))

        return hook

    WithHead.__module__ = parent.__module__  # where transformers looks for the attention of the model type
    model = WithHead()
    first = len(layers) - head.kind.layers
    for layer, call in zip(layers[first:], calls[first:], strict=True):
        layer.register_forward_hook(keep_input_of(call), with_kwargs=True)
    model.head.to(base.device)
    share_stream(base, model)
    return model.eval()
