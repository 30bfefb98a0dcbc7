"""Doing without the weights that a run does not read.

What runs from kept hidden states reads nothing of the layers below them, nor the table of token embeddings. Such a parameter
keeps its name and shape and lets its memory go: one number stands for all, and that is not a number, so that whatever
should read it after all is known by its result.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel

from frostline.model.anatomy import EMBEDDINGS, Anatomy


def unread(model: PreTrainedModel, anatomy: Anatomy, cut: int | None) -> dict[str, nn.Parameter]:
    """The parameters that the model does not need from ``cut`` on: those of lower layers, and tables as long as the
    vocabulary. None: it needs all."""
    if cut is None:
        return {}
    words = model.config.get_text_config().vocab_size
    tables = {
        f"{path}.weight"
        for path, module in model.named_modules()
        if isinstance(module, nn.Embedding) and module.num_embeddings == words
    }
    lower = tuple(f"{anatomy.path}.{number}." for number in range(cut))
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if name.startswith(lower) or (name in tables and anatomy.places[name] == EMBEDDINGS)
    }


def take_away(parameters: Iterable[nn.Parameter]) -> None:
    """Let their memory go; shape, type and device stay."""
    for parameter in parameters:
        parameter.data = torch.full((), torch.nan, dtype=parameter.dtype, device=parameter.device).expand(
            parameter.shape
        )


@contextmanager
def absent(parameters: Mapping[str, nn.Parameter]) -> Iterator[None]:
    """Without them while the context is open."""
    before = {name: parameter.data for name, parameter in parameters.items()}
    take_away(parameters.values())
    try:
        yield
    finally:
        for name, data in before.items():
            parameters[name].data = data
