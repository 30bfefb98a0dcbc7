"""A pretrained model that many runs share: its weights, and how they are restored before each run."""

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from frostline.fast.mapped_pages import release_mapped_pages
from frostline.fast.optimizer import clear_gradients
from frostline.fast.switch import enabled
from frostline.model.anatomy import Anatomy
from frostline.model.unread import take_away, unread


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
    read: Callable[[], PreTrainedModel]  # loads the model once more from the checkpoint
    use_cache: bool | None = None  # the configuration's own value (training sets it to False); None: it has none
    _changed: dict[str, Tensor] = field(
        default_factory=dict
    )  # pretrained values of parameters that were trained in a copy
    _absent: dict[str, nn.Parameter] = field(default_factory=dict)  # parameters whose memory is released

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
        release_mapped_pages(self._changed.values())
        self._initialize_new(generator_seed)
        for name, parameter in parameters.items():
            parameter.requires_grad_(name in names)
        return {name: p for name, p in parameters.items() if name in names}

    def restore(self, names: Set[str] | None = None) -> None:
        """Restore the pretrained values of ``names`` (None: all); drop the trained copies and all gradients."""
        for name in list(self._changed if names is None else names):
            self.model.get_parameter(name).data = self._changed.pop(name)
        clear_gradients(self.model.parameters())

    def load_weights(self, cut: int | None) -> None:
        """Load the weights that the model needs from ``cut`` on (None: all), if they were released before."""
        needed = self._absent.keys() - unread(self.model, self.anatomy, cut).keys()
        if needed:
            for name, value in self._values(needed).items():
                self._absent[name].data = value.to(self._absent[name].device)
                del self._absent[name]

    def release_weights(self, cut: int | None) -> None:
        """Release the memory of weights that the model does not need from ``cut`` on."""
        more = {n: p for n, p in unread(self.model, self.anatomy, cut).items() if n not in self._absent}
        if not more or not enabled("unread"):
            return
        self._absent |= more
        take_away(more.values())
        for name in more:
            self._changed.pop(name, None)
        if self.model.device.type == "cpu":
            self._remap()

    def _remap(self) -> None:
        """Map the weight files again: the old mapping holds memory for everything that was ever read from it."""
        there = {name: p for name, p in self.model.named_parameters() if name not in self._absent}
        for name, value in self._values(there.keys()).items():
            if name in self._changed:
                self._changed[name] = value
            else:
                there[name].data = there[name].data.clone() if name in self.new else value

    def _values(self, names: Set[str]) -> dict[str, Tensor]:
        """Pretrained values of these parameters, read from the checkpoint."""
        with torch.random.fork_rng(devices=[]):
            return {name: p.detach() for name, p in self.read().named_parameters() if name in names}

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
        """A digest of every byte of the frozen parameters (not trained, not new, not released)."""
        import xxhash

        digest = xxhash.xxh3_128()
        for name, parameter in self.model.named_parameters():
            if name not in trained and name not in self.new and name not in self._absent:
                digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()
