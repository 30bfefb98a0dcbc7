"""What settings, reports and saved models call the parts of a model. Imports no torch, because they are read without it.

Every parameter is in exactly one place: ``embeddings``, ``layer 0`` to ``layer L-1``, ``final norm``, ``pooler`` or ``head``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

EMBEDDINGS, FINAL_NORM, POOLER, HEAD = "embeddings", "final norm", "pooler", "head"
LAYER = "layer "  # followed by the layer's number, counted from 0


def layer_place(number: int) -> str:
    """The place of the parameters of layer ``number``."""
    return f"{LAYER}{number}"


def layer_number(place: str) -> int | None:
    """The number of the layer at ``place``; None if the place is not a layer."""
    return int(place.removeprefix(LAYER)) if place.startswith(LAYER) else None


def layer_numbers(places: Iterable[str]) -> list[int]:
    """The numbers of the layers among these places."""
    return [number for place in places if (number := layer_number(place)) is not None]


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


# transformers reads a key `temperature` as a setting of text generation, and drops it when it saves a classifier.
TEMPERATURE: Final = "calibration_temperature"  # what the logits are divided by
THRESHOLD: Final = "decision_threshold"  # the smallest probability from which the label is predicted
THRESHOLD_LABEL: Final = "decision_threshold_label"  # the label that it is about
THRESHOLDS: Final = "decision_thresholds"  # that of each label, if a text can have several
OUTPUT_KEYS = (TEMPERATURE, THRESHOLD, THRESHOLD_LABEL, THRESHOLDS)
