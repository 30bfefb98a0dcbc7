"""The places of parameters in a model. Imports no torch, because reports read places from result files.

Every parameter is in exactly one place: ``embeddings``, ``layer 0`` to ``layer L-1``, ``final norm``, ``pooler`` or ``head``.
"""

EMBEDDINGS, FINAL_NORM, POOLER, HEAD = "embeddings", "final norm", "pooler", "head"
LAYER = "layer "  # followed by the layer's number, counted from 0


def layer_place(number: int) -> str:
    """The place of the parameters of layer ``number``."""
    return f"{LAYER}{number}"


def layer_number(place: str) -> int | None:
    """The number of the layer at ``place``; None if the place is not a layer."""
    return int(place.removeprefix(LAYER)) if place.startswith(LAYER) else None
