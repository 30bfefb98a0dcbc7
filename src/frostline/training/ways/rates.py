"""How a way changes the optimizer: its learning rates by layer, and its options.

Layer-wise decay of learning rates is discriminative fine-tuning of ULMFiT (Howard and Ruder 2018, arXiv:1801.06146).
"""

from typing import Any

from frostline.model.anatomy import Anatomy
from frostline.model.terms import EMBEDDINGS, layer_number
from frostline.training.ways.way import Way


def layer_factor(way: Way, place: str, anatomy: Anatomy) -> float:
    """The factor of the learning rate in a place: 1 for the last layer and all that follows it."""
    return way.layer_decay ** _layers_above(place, anatomy)


def adam_options(way: Way) -> dict[str, Any]:
    """The options of parameter groups of AdamW that differ from its defaults."""
    return {} if way.bias_correction else {"bias_correction": False}


def _layers_above(place: str, anatomy: Anatomy) -> int:
    """The number of layers above a place: 0 for the last layer and all that follows it, L for the embeddings."""
    number = layer_number(place)
    if number is None:
        return anatomy.count if place == EMBEDDINGS else 0
    return anatomy.count - 1 - number
