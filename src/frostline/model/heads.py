"""Classifier heads that replace the head of a model type: dropout and one linear module on a vector for each text.

The vector is the mean of the hidden states of all tokens, or that of the last token. The attention mask says which tokens are
padding. No architecture is known by name: the new head stands on the base model that a classifier of transformers has inside it.

Shapes: B texts in a batch, S padded length, D width, C outputs.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from frostline import FrostlineError
from frostline.model.reading import LAST, MEAN


class PooledHead(nn.Module):
    """Logits of texts from the hidden states of their tokens.

    Attributes:
        reads: ``mean`` of all tokens, or the ``last`` one.
        dropout: On the vector that the linear module reads.
        linear: Its outputs are the logits.
    """

    def __init__(self, reads: str, width: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.reads = reads
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, outputs)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Logits ``[B, C]`` of hidden states ``[B, S, D]`` with the attention mask ``[B, S]``."""
        logits: Tensor = self.linear(self.dropout(pooled(hidden, mask, self.reads)))
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


def with_head(own: PreTrainedModel, head: nn.Module) -> PreTrainedModel:
    """A classifier of the base model of ``own`` with another head. Both share the base model and its configuration.

    Its parameters are called as those of ``own``, except for the head, which is called ``head``.

    Args:
        own: A classifier of transformers.
        head: Computes logits from the hidden states after the last layer (and the final norm) and the attention mask.

    Raises:
        FrostlineError: ``own`` has no base model inside it.
    """
    base = own.base_model
    if base is own or not isinstance(base, PreTrainedModel):
        raise FrostlineError(
            f"The head of a {own.config.model_type} cannot be replaced, because the model has no part without a head: "
            "leave out head_reads."
        )
    return on_base(base, own.base_model_prefix, head)


def on_base(base: PreTrainedModel, prefix: str, head: nn.Module) -> PreTrainedModel:
    """A classifier of a base model, which is called ``prefix`` in it, with this head."""
    model = _class_for(base)(base.config, prefix, base, head)
    return model.to(base.device).eval()


def _class_for(base: PreTrainedModel) -> Any:
    """The class of such classifiers. It has what transformers knows of the model type, such as how weights are initialized."""
    kinds = [kind for kind in type(base).__mro__[1:] if issubclass(kind, PreTrainedModel)]
    parent: Any = kinds[0]

    class WithHead(parent):  # type: ignore[misc]
        def __init__(self, config: Any, prefix: str, base: PreTrainedModel, head: nn.Module) -> None:
            super().__init__(config)
            self.base_model_prefix = prefix
            self.add_module(prefix, base)
            self.head = head

        def forward(self, attention_mask: Tensor, **inputs: Any) -> SequenceClassifierOutput:
            hidden = self.base_model(attention_mask=attention_mask, **inputs).last_hidden_state
            return SequenceClassifierOutput(logits=self.head(hidden, attention_mask))

    WithHead.__module__ = parent.__module__  # where transformers looks for the attention of the model type
    return WithHead


def with_pooled_head(own: PreTrainedModel, reads: str, width: int) -> PreTrainedModel:
    """The classifier ``own`` with a new head that reads the ``mean`` of all tokens or the ``last`` one.

    It has as many outputs, and the dropout probability of the own head.

    Args:
        own: A classifier of transformers.
        reads: What the head reads.
        width: The width of the hidden states.

    Raises:
        FrostlineError: ``own`` has no base model inside it.
    """
    return with_head(own, PooledHead(reads, width, own.config.num_labels, head_dropout(own)))


def head_dropout(own: PreTrainedModel) -> float:
    """The dropout probability of a classifier's own head; 0 if it has no dropout."""
    inside = {*own.base_model.modules()}
    found = (module.p for module in own.modules() if isinstance(module, nn.Dropout) and module not in inside)
    return next(found, 0.0)


def padding_id(model: PreTrainedModel) -> int | None:
    """The id of the tokens that the head skips when it looks for the last one; None if it goes by the attention mask alone."""
    if isinstance(getattr(model, "head", None), PooledHead):
        return None
    found: int | None = model.config.get_text_config().pad_token_id
    return found
