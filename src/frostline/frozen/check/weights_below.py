"""Whether anything reads the weights below a cut: they are replaced by NaN, which shows in whatever is computed from them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel

from frostline.model.anatomy import EMBEDDINGS, Anatomy


def weights_below(model: PreTrainedModel, anatomy: Anatomy, cut: int) -> dict[str, nn.Parameter]:
    """By name: the parameters of the layers below the cut, and the tables as long as the vocabulary."""
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


@contextmanager
def replaced_by_nan(parameters: Iterable[nn.Parameter]) -> Iterator[None]:
    """While the context is open, every element of these parameters is NaN. No memory is copied."""
    before = {parameter: parameter.data for parameter in parameters}
    for parameter, data in before.items():
        parameter.data = torch.full((), torch.nan, dtype=data.dtype, device=data.device).expand(data.shape)
    try:
        yield
    finally:
        for parameter, data in before.items():
            parameter.data = data
