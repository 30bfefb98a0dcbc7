"""Classifier heads that replace the head of a model type: dropout and one linear module on vectors of texts or of tokens.

The vector of a text is the mean of the hidden states of all tokens, or that of the last token. The attention mask says which
tokens are padding. A BiLSTM can run over the hidden states first.

Shapes: B texts in a batch, S padded length, D width, H units of each direction of the LSTM, C outputs.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from frostline.model.reading import LAST, MEAN, OWN, HeadKind


class PooledHead(nn.Module):
    """Logits of texts from the hidden states of their tokens.

    Attributes:
        kind: What the head reads: the ``mean`` of all tokens, or the ``last`` one.
        dropout: On the vector that the linear module reads.
        linear: Its outputs are the logits.
    """

    def __init__(self, kind: HeadKind, width: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.kind = kind
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, outputs)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Logits ``[B, C]`` of hidden states ``[B, S, D]`` with the attention mask ``[B, S]``."""
        logits: Tensor = self.linear(self.dropout(pooled(hidden, mask, self.kind.reads)))
        return logits


class RecurrentHead(nn.Module):
    """Logits of texts or tokens from a two-layer BiLSTM over hidden states (Devlin et al. 2019, section 5.3).

    Attributes:
        kind: The width of the LSTM. The head reads texts (``mean`` or ``last`` of its outputs), or each token (``type``).
        width: The width of one hidden state, D.
        lstm: The BiLSTM. It does not read padding.
        dropout: On the vectors that the linear module reads.
        linear: Its outputs are the logits.
    """

    def __init__(self, kind: HeadKind, width: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.kind, self.width = kind, width
        self.lstm = nn.LSTM(kind.states * width, kind.lstm_width, num_layers=2, bidirectional=True, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(2 * kind.lstm_width, outputs)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Logits ``[B, C]`` of texts or ``[B, S, C]`` of tokens, of hidden states ``[B, S, states * D]``."""
        texts = pack_padded_sequence(hidden, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(self.lstm(texts)[0], batch_first=True, total_length=mask.shape[1])
        read = outputs if self.kind.reads == OWN else pooled(outputs, mask, self.kind.reads)
        logits: Tensor = self.linear(self.dropout(read))
        return logits


Head = PooledHead | RecurrentHead


def new_head(kind: HeadKind, width: int, outputs: int, dropout: float = 0.0) -> Head:
    """A head of this kind with random values, for hidden states of this width."""
    return (RecurrentHead if kind.lstm_width else PooledHead)(kind, width, outputs, dropout)


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
