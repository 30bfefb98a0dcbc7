"""The files of a pretrained model: load all weights, or leave those of the layers in the files and stream them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from frostline import FrostlineError
from frostline.model.device import CPU
from frostline.model.model_files import quiet_loading, readable
from frostline.model.shards import floating_type, weight_bytes, weight_files
from frostline.model.skeleton import skeleton
from frostline.model.streaming import move, streamed

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
