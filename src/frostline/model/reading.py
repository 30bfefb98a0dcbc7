"""Which head a classifier has, and what it reads of the hidden states. Imports no torch, because settings are read without it."""

from dataclasses import dataclass
from typing import Final

OWN: Final = "type"  # what the head of the model type reads
MEAN: Final = "mean"  # the mean of all tokens
LAST: Final = "last"  # the last token


@dataclass(frozen=True)
class HeadKind:
    """The head of a classifier. The default is the head of the model type.

    Attributes:
        reads: ``type``, ``mean`` or ``last``.
        lstm_width: The units of each direction of a two-layer BiLSTM over the hidden states; 0: none.
        states: How many last hidden states are concatenated for it.
    """

    reads: str = OWN
    lstm_width: int = 0
    states: int = 1

    @property
    def layers(self) -> int:
        """How many of the last layers must run for it."""
        return self.states - 1


OWN_HEAD: Final = HeadKind()


def opened_by(kind: HeadKind) -> str:
    """The library that opens a saved model with such a head: transformers, sentence-transformers or frostline."""
    if kind == OWN_HEAD:
        return "transformers"
    return "frostline" if kind.lstm_width else "sentence-transformers"
