"""Replace the weights below a cut by NaN. If any result depends on them, it becomes NaN."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel

from frostline.model.anatomy import Anatomy
from frostline.model.places import EMBEDDINGS
from frostline.model.vocabulary import vocabulary_tables


def weights_below(model: PreTrainedModel, anatomy: Anatomy, cut: int) -> dict[str, nn.Parameter]:
    """The parameters of the layers below the cut and the embedding tables of the vocabulary, by name."""
    tables = {f"{path}.weight" for path in vocabulary_tables(model)}
    lower = tuple(f"{anatomy.path}.{number}." for number in range(cut))
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if name.startswith(lower) or (name in tables and anatomy.places[name] == EMBEDDINGS)
    }


@contextmanager
def replaced_by_nan(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """While the context is open, every element of these parameters is NaN. Nothing is copied."""
    before = {parameter: parameter.data for parameter in parameters}
    for parameter, data in before.items():
        parameter.data = torch.full((), torch.nan, dtype=data.dtype, device=data.device).expand(data.shape)
    try:
        yield
    finally:
        for parameter, data in before.items():
            parameter.data = data
