"""A pretrained model that many runs share: its weights, and how they are restored before each run."""

from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from frostline.fast.optimizer import clear_gradients
from frostline.model.anatomy import Anatomy


@dataclass
class Pretrained:
    """A model with its pretrained weights, and everything needed to restore them before each run."""

    name: str
    folder: Path
    revision: str | None
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    anatomy: Anatomy
    weights: str  # digest of configuration and weights
    vocabulary: str  # digest of the tokenizer's files
    max_length: int  # the most tokens that the model takes, at most LONGEST
    new: frozenset[str]  # parameters missing from the checkpoint, initialized from each run's seed
    use_cache: bool | None = None  # the configuration's own value (training sets it to False); None: it has none
    _changed: dict[str, Tensor] = field(
        default_factory=dict
    )  # pretrained values of parameters that were trained in a copy

    def start_run(self, names: frozenset[str], generator_seed: int) -> dict[str, nn.Parameter]:
        """Make exactly ``names`` trainable, restore their pretrained values, and initialize the head from the seed.

        Returns:
            The trainable parameters by name.
        """
        self.restore(self._changed.keys() - names)  # a parameter that this run does not train needs no copy
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in self._changed.items():
                parameters[name].copy_(value)
        for name in names - self.new - self._changed.keys():
            value = parameters[name].data
            parameters[name].data = value.clone()  # may run out of memory; nothing has changed then
            self._changed[name] = value
        self._initialize_new(generator_seed)
        for name, parameter in parameters.items():
            parameter.requires_grad_(name in names)
        return {name: p for name, p in parameters.items() if name in names}

    def restore(self, names: Set[str] | None = None) -> None:
        """Restore the pretrained values of ``names`` (None: all); drop the trained copies and all gradients."""
        for name in list(self._changed if names is None else names):
            self.model.get_parameter(name).data = self._changed.pop(name)
        clear_gradients(self.model.parameters())

    def _initialize_new(self, seed: int) -> None:
        """Initialize new parameters as transformers does, from this seed alone."""
        modules = sorted({name.rpartition(".")[0] for name in self.new})
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            for path in modules:
                module = self.model.get_submodule(path)
                old = {name: p.detach().clone() for name, p in module.named_parameters(recurse=False)}
                for tensor in (module, *module.parameters(recurse=False)):
                    tensor._is_hf_initialized = False
                self.model._init_weights(module)
                for name, value in old.items():
                    if f"{path}.{name}".removeprefix(".") not in self.new:
                        module.get_parameter(name).copy_(value)

    def frozen_digest(self, trained: frozenset[str]) -> str:
        """A digest of every byte of the frozen parameters (not trained, not new)."""
        import xxhash

        digest = xxhash.xxh3_128()
        for name, parameter in self.model.named_parameters():
            if name not in trained and name not in self.new:
                digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()
