"""A classifier of transformers with another head on the same base model. No architecture is known by name.

Shapes: B texts in a batch, S padded length, T tokens of a packed batch, D width.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from frostline import FrostlineError
from frostline.model.anatomy import Anatomy
from frostline.model.checkpoint import Streams, saved_checkpoint
from frostline.model.heads import Head, new_head
from frostline.model.reading import HeadKind
from frostline.model.streaming import share_stream
from frostline.model.trace import Call


def with_head(own: PreTrainedModel, kind: HeadKind, anatomy: Anatomy) -> PreTrainedModel:
    """The classifier ``own`` with a new head. Both share the base model and its configuration.

    Its parameters are called as those of ``own``, except for the head, which is called ``head``. The new head has the
    number of outputs and the dropout probability of the old one.

    Args:
        own: A classifier of transformers.
        kind: The kind of the head.
        anatomy: The layers of ``own``.

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
    head = new_head(kind, anatomy.width, own.config.num_labels, head_dropout(own))
    share_stream(own, base)
    model = on_base(base, own.base_model_prefix, head)
    model.read_lower_states(anatomy.layers(own), anatomy.calls)
    return model


def read_base(folder: Path, *, trust_remote_code: bool, streams: Streams) -> PreTrainedModel:
    """The base model in a folder.

    Raises:
        FrostlineError: transformers cannot load it.
    """
    return saved_checkpoint(
        folder, AutoModel, "transformers cannot load its base model", trust_remote_code=trust_remote_code
    ).load(streams)[0]


def on_base(base: PreTrainedModel, prefix: str, head: Head) -> Any:
    """A classifier with this head on a base model. Its attribute ``prefix`` is the base model.

    If the head reads several hidden states, ``read_lower_states`` must be called with the layers of the classifier.
    """
    model = _class_for(base)(base.config, prefix, base, head)
    model.head.to(base.device)
    share_stream(base, model)
    return model.eval()


def _class_for(base: PreTrainedModel) -> Any:
    """The class of such classifiers. It has what transformers knows of the model type, such as how weights are initialized."""
    kinds = [kind for kind in type(base).__mro__[1:] if issubclass(kind, PreTrainedModel)]
    parent: Any = kinds[0]

    class WithHead(parent):  # type: ignore[misc]
        def __init__(self, config: Any, prefix: str, base: PreTrainedModel, head: Head) -> None:
            super().__init__(config)
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

        def read_lower_states(self, layers: Sequence[nn.Module], calls: Sequence[Call]) -> None:
            first = len(layers) - self.head.kind.layers
            for layer, call in zip(layers[first:], calls[first:], strict=True):
                layer.register_forward_hook(_input_kept(self, call), with_kwargs=True)

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

    WithHead.__module__ = parent.__module__  # where transformers looks for the attention of the model type
    return WithHead


def _input_kept(model: Any, call: Call) -> Any:
    """A hook after a layer that keeps the hidden states which the layer has read, ``[B, S, D]`` or packed ``[1, T, D]``."""

    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        if model.lower is not None:  # other classifiers have the same layers
            model.lower.append(args[call.hidden] if isinstance(call.hidden, int) else kwargs[call.hidden])

    return hook


def head_dropout(own: PreTrainedModel) -> float:
    """The dropout probability of a classifier's own head; 0 if it has no dropout."""
    inside = {*own.base_model.modules()}
    found = (module.p for module in own.modules() if isinstance(module, nn.Dropout) and module not in inside)
    return next(found, 0.0)


def padding_id(model: PreTrainedModel) -> int | None:
    """The id of the tokens that the head skips when it looks for the last one; None if it goes by the attention mask alone."""
    if isinstance(getattr(model, "head", None), Head):
        return None
    found: int | None = model.config.get_text_config().pad_token_id
    return found
