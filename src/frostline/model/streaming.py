"""A model whose layers are read from the model folder when they run, and released after that.

:func:`streamed` makes such a model of one without weights (:func:`frostline.model.loading.skeleton`). Everything outside of the
layers is in memory, and so is the last layer. Another layer is in memory while it runs, while :meth:`Stream.loaded` holds it, or
for good after :meth:`Stream.keep`. At any other time its weights are NaN. A result that used them would therefore be NaN, too.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.model.anatomy import Anatomy, module_lists
from frostline.model.packed_layout import ALIGNED
from frostline.model.weights import Source, is_unread, read_weights, unread

ATTRIBUTE = "weight_stream"  # of a model whose layers are streamed


class Stream:
    """The layers of one model, in its files or in memory.

    Attributes:
        sources: Where the values of all parameters are, by name, except those that no file has.
        align: Whether values that are read from now on get an address that is aligned (:func:`aligned`).
    """

    def __init__(self, model: PreTrainedModel, sources: Mapping[str, Source]) -> None:
        self.sources = sources
        self.align = False
        self._parameters = {name: p for name, p in model.named_parameters() if name in sources}

    @property
    def absent(self) -> set[str]:
        """Names of the parameters that are not in memory now."""
        return {name for name, parameter in self._parameters.items() if is_unread(parameter)}

    def keep(self, names: Collection[str]) -> None:
        """Load these parameters for good."""
        absent = self.absent
        lacking = {name: source for name, source in self.sources.items() if name in absent and name in names}
        for name, value in read_weights(lacking):
            parameter = self._parameters[name]
            converted = value.to(parameter.device, parameter.dtype)
            parameter.data = aligned(converted) if self.align else converted

    def release(self, names: Collection[str]) -> None:
        """Take these parameters out of memory. They must not have changed."""
        for name in names:
            parameter = self._parameters[name]
            parameter.data = unread(parameter.shape, parameter.device, parameter.dtype)

    @contextmanager
    def loaded(self, names: Collection[str]) -> Iterator[None]:
        """While the context is open, these parameters are in memory."""
        absent = self.absent
        lacking = [name for name in names if name in absent]
        try:
            self.keep(lacking)
            yield
        finally:
            self.release(lacking)

    def of(self, other: PreTrainedModel) -> "Stream":
        """The stream of another model with the same parameters, which may have other names there."""
        sources = {id(parameter): self.sources[name] for name, parameter in self._parameters.items()}
        return Stream(other, {name: sources[id(p)] for name, p in other.named_parameters() if id(p) in sources})

    def settle(self, anatomy: Anatomy) -> None:
        """Load the last layer and everything outside of the layers for good.

        A gradient through the last layer shows which part of it the head needs. A backward pass needs its weights.
        """
        self.keep(self.sources.keys() - set(self.in_layers(anatomy, range(anatomy.count - 1))))

    def in_layers(self, anatomy: Anatomy, numbers: Collection[int]) -> list[str]:
        """Names of the parameters of these layers that the files have."""
        inside = tuple(f"{anatomy.path}.{number}." for number in numbers)
        return [name for name in self.sources if name.startswith(inside)]


def streamed(model: PreTrainedModel, sources: Mapping[str, Source], device: torch.device) -> Stream:
    """Move a model without weights to a device, and load everything outside of lists of modules.

    Each module of a list is loaded when it runs. Which of the lists holds the layers is found by running the model.
    :meth:`Stream.settle` then loads the others for good.
    """
    for name, parameter in model.named_parameters():
        data = parameter.data
        parameter.data = unread(data.shape, device, data.dtype) if name in sources else data.to(device)
    for _, buffer in model.named_buffers():
        buffer.data = buffer.data.to(device)
    stream = Stream(model, sources)
    layers = {f"{path}.{number}.": layer for path, stack in module_lists(model) for number, layer in enumerate(stack)}
    stream.keep([name for name in sources if not name.startswith(tuple(layers))])
    for prefix, layer in layers.items():
        layer.forward = _loading(stream, layer, [name for name in sources if name.startswith(prefix)])
    setattr(model, ATTRIBUTE, stream)
    return stream


def stream_of(model: nn.Module) -> Stream | None:
    """The stream of a model whose layers are streamed; None for any other model."""
    found: Stream | None = getattr(model, ATTRIBUTE, None)
    return found


def share_stream(model: nn.Module, other: PreTrainedModel) -> None:
    """If layers of ``model`` are streamed, let ``other``, which has the same layers, know it."""
    stream = stream_of(model)
    if stream is not None:
        setattr(other, ATTRIBUTE, stream.of(other))


def aligned(value: Tensor) -> Tensor:
    """The value, copied if its address is not a multiple of ``ALIGNED``. A file that is mapped into memory aligns nothing."""
    return value.clone() if value.data_ptr() % ALIGNED else value


def _loading(stream: Stream, layer: nn.Module, names: Collection[str]) -> Callable[..., Any]:
    """The forward of a layer, which loads its parameters while it runs."""
    forward = layer.forward

    def load_and_run(*args: Any, **kwargs: Any) -> Any:
        with stream.loaded(names):
            return forward(*args, **kwargs)

    return load_and_run
