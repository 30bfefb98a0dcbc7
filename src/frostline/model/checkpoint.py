"""The files of a pretrained model: load all weights, or leave those of the layers in the files and stream them.

Build a model as transformers loads it, but without the values of its weights.

Which weight of a file becomes which parameter is not known here. transformers is given a stand-in for each weight, and where it
puts them is read from the model. A checkpoint whose weights it must compute from others is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from frostline import FrostlineError
from frostline.model.device import CPU
from frostline.model.model_files import quiet_loading, readable
from frostline.model.shards import (
    Source,
    floating_type,
    is_unread,
    read_weight,
    shapes_in,
    unread,
    weight_bytes,
    weight_files,
)
from frostline.model.streaming import move, streamed


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


Streams = Callable[[int], bool]  # from the bytes of all weights in memory to whether the layers are streamed


def never_streams(needed: int) -> bool:
    """All weights are loaded."""
    return False


def read_config(name: str, folder: Path, problem: str, *, trust_remote_code: bool = False) -> PreTrainedConfig:
    """The configuration in a folder. An error about it names the model, and has the ``problem``.

    Raises:
        FrostlineError: It cannot be read, or names kernels of the hub, which are code, and ``trust_remote_code`` is not set.
    """
    # without the argument, transformers would ask on the terminal whether to run code
    config = readable(lambda: AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code), name, problem)
    for one in (config, *(getattr(config, part, None) for part in getattr(config, "sub_configs", ()))):
        for kind in ("_attn_implementation", "_experts_implementation"):
            kernels = str(getattr(one, kind, ""))
            if "/" in kernels and not trust_remote_code:
                raise FrostlineError(
                    f"The configuration of {name} asks to run the kernels {kernels} of the hub, which are code: remove them from "
                    "its config.json, or read that code and add --trust-remote-code."
                )
    return config


@dataclass(frozen=True)
class Checkpoint:
    """What transformers needs to make a model from a folder.

    Attributes:
        name: The name of the model for errors.
        folder: The folder.
        kind: The class that loads it, such as ``AutoModel``.
        config: Its configuration.
        dtype: The type of its parameters.
        unloadable: What an error says if transformers cannot load it.
        trust_remote_code: Whether to run code that comes with the model.
        options: Other arguments of ``from_pretrained``.
    """

    name: str
    folder: Path
    kind: Any
    config: PreTrainedConfig
    dtype: torch.dtype
    unloadable: str
    trust_remote_code: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self, streams: Streams, device: torch.device | str = CPU) -> tuple[PreTrainedModel, Any]:
        """The model in eval mode, and transformers' report of missing and mismatched weights.

        Raises:
            FrostlineError: transformers cannot load it, or its layers cannot be streamed.
        """
        needed = readable(lambda: weight_bytes(weight_files(self.folder), self.dtype), self.name, self.unloadable)
        if not streams(needed):
            model, info = self._read(None)
            model.to(device)
            return model.eval(), info
        made = skeleton(self.name, self.folder, self._read, self.dtype)
        move(made.model, made.sources, torch.device(device))
        streamed(made.model, made.sources)
        return made.model.eval(), made.info

    def _read(self, values: Mapping[str, Any] | None) -> tuple[PreTrainedModel, Any]:
        """The model with these ``values`` instead of the weights in the folder, if they are given."""
        kind, options = self.kind, {"config": self.config, "dtype": self.dtype, "output_loading_info": True}

        def load() -> Any:
            if values is None:
                trust = {"trust_remote_code": self.trust_remote_code}
                return kind.from_pretrained(self.folder, use_safetensors=True, **options, **self.options, **trust)
            known = kind._model_mapping[type(self.config)]
            model, info = known.from_pretrained(None, state_dict=values, **options, **self.options)
            model.name_or_path = model.config.name_or_path = str(self.folder)
            return model, info

        if values is not None and type(self.config) not in kind._model_mapping:
            raise FrostlineError(
                f"The weights of {self.name} cannot be streamed, because transformers itself has no such model: load the whole "
                "model with --no-stream."
            )
        with quiet_loading():
            return readable(load, self.name, self.unloadable)  # type: ignore[no-any-return]


def saved_checkpoint(folder: Path, kind: Any, unloadable: str, *, trust_remote_code: bool) -> Checkpoint:
    """The model that was saved in a folder, with the parameters of the type that they have there.

    transformers takes that type from the configuration, or else from the first weights.

    Raises:
        FrostlineError: The configuration or the weights cannot be read.
    """
    name, files = str(folder), weight_files(folder)
    config = read_config(name, folder, unloadable, trust_remote_code=trust_remote_code)
    dtype = config.dtype
    if not isinstance(dtype, torch.dtype):
        dtype = readable(lambda: floating_type(files), name, unloadable)
    return Checkpoint(name, folder, kind, config, dtype, unloadable, trust_remote_code)
