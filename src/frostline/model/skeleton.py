"""Build a model as transformers loads it, but without the values of its weights.

Which weight of a file becomes which parameter is not known here. transformers is given a stand-in for each weight, and where it
puts them is read from the model. A checkpoint whose weights it must compute from others is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from frostline import FrostlineError
from frostline.model.shards import Source, is_unread, read_weight, shapes_in, unread, weight_files


@dataclass(frozen=True)
class Skeleton:
    """A model whose weights are not in memory.

    Attributes:
        model: The model. Parameters in ``sources`` are :func:`frostline.model.shards.unread`; all others have their values.
        info: transformers' report of missing and mismatched weights.
        sources: Where the values of parameters are, by name.
    """

    model: PreTrainedModel
    info: Any
    sources: Mapping[str, Source]


class _StandIn:
    """Stands for a weight in a file, for as long as transformers only asks for all of it."""

    def __init__(self, value: Tensor) -> None:
        self.value = value

    def __getitem__(self, index: Any) -> Tensor:
        return self.value


class _Untouched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, every operation that computes with a stand-in is refused and recorded."""

    def __init__(self, sources: Mapping[int, Source]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sources, self.touched = sources, set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        computes = not any(one.alias_info for one in func._schema.returns)  # a view has the memory of its input
        given = {_storage(x) for x in tree_leaves((args, kwargs))} & self.sources.keys() if computes else set()
        if given:
            self.touched |= {self.sources[one].key for one in given}
            raise RuntimeError("a weight is computed from others")
        return func(*args, **(kwargs or {}))


def skeleton(
    name: str,
    folder: Path,
    load: Callable[[Mapping[str, Any]], tuple[PreTrainedModel, Any]],
    dtype: torch.dtype = torch.float32,
) -> Skeleton:
    """A model without its weights.

    Args:
        name: The model's name for errors.
        folder: Its folder.
        load: Loads the model with these values of weights, by their names in the files.
        dtype: The type of the model's parameters.

    Raises:
        FrostlineError: transformers computes weights of this model from others.
    """
    values: dict[str, _StandIn] = {}
    by_storage: dict[int, Source] = {}
    for source, shape, floating in shapes_in(weight_files(folder)):
        value = unread(shape, dtype=dtype) if floating and shape else read_weight(source)
        values[source.key] = _StandIn(value)
        if is_unread(value):
            by_storage[_storage(value)] = source
    watch = _Untouched(by_storage)
    try:
        with watch:
            model, info = load(values)
    except FrostlineError:
        if not watch.touched:
            raise
    if watch.touched:
        raise FrostlineError(
            f"The weights of {name} cannot be streamed: transformers computes some of them from others in its files "
            f"({min(watch.touched)}). Load the whole model with --no-stream, or write it anew with save_pretrained(..., "
            "save_original_format=False)."
        )
    for _, buffer in model.named_buffers():  # they are small
        if _storage(buffer) in by_storage:
            buffer.data = read_weight(by_storage[_storage(buffer)]).to(buffer.dtype)
    sources = {name: by_storage[_storage(p)] for name, p in model.named_parameters() if _storage(p) in by_storage}
    return Skeleton(model, info, sources)


def _storage(x: Any) -> int:
    """What identifies the memory of a tensor; 0 for anything else."""
    return int(x.untyped_storage()._cdata) if isinstance(x, Tensor) else 0
