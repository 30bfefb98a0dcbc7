"""A pretrained model that many runs share. Each run starts from its pretrained weights."""

from collections.abc import Set
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from frostline.fast.optimizer import clear_gradients
from frostline.model.anatomy import Anatomy, paths_to
from frostline.model.device import CPU
from frostline.model.heads import with_head
from frostline.model.streaming import Stream, stream_of
from frostline.model.terms import HEAD, OWN_HEAD, HeadKind
from frostline.model.weights import is_unread

HASHED_HERE = ("cpu", "mps")  # devices whose parameters are read for a digest; others compute checksums themselves
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes


@dataclass
class Pretrained:
    """A model with its pretrained weights, which it restores before each run.

    Attributes:
        name: The hub name or folder that the user gave.
        folder: Where the model's files are.
        revision: The commit of a hub model; None for a folder.
        depth: How many of its first layers were kept; None: all.
        model: The classifier.
        tokenizer: Its tokenizer.
        anatomy: Its layers and the place of each parameter.
        weights: A digest of configuration and weights, and of code that comes with the model if it runs.
        vocabulary: A digest of the tokenizer's files and settings.
        max_length: The most tokens per example unless the user sets another limit.
        new: Names of parameters that each run initializes from its seed: the head, and all that the checkpoint lacks.
        use_cache: The configuration's own value, because training sets it to False; None if it has none.
        head: The kind of its head.
    """

    name: str
    folder: Path
    revision: str | None
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    anatomy: Anatomy
    weights: str
    vocabulary: str
    max_length: int
    new: frozenset[str]
    use_cache: bool | None = None
    depth: int | None = None
    head: HeadKind = OWN_HEAD
    _pretrained: dict[str, Tensor] = field(default_factory=dict)  # the pretrained values of parameters that hold a copy
    _by_head: dict[HeadKind, "Pretrained"] = field(default_factory=dict)  # the same weights with other heads

    def with_head(self, kind: HeadKind) -> "Pretrained":
        """The same pretrained weights, in the same memory, with a head of another kind.

        Raises:
            FrostlineError: The head of this model type cannot be replaced.
        """
        if kind == self.head:
            return self
        if kind not in self._by_head:
            self._by_head[self.head] = self
            assert self.head == OWN_HEAD
            model = with_head(self.model, kind, self.anatomy)
            anatomy = self.anatomy.of_head(model)
            head = {name for name, place in anatomy.places.items() if place == HEAD}
            new = frozenset(head | (self.new & anatomy.places.keys()))
            self._by_head[kind] = replace(self, model=model, anatomy=anatomy, new=new, head=kind)
        return self._by_head[kind]

    def start_run(
        self, names: frozenset[str], generator_seed: int, reinitialized: Set[str] = frozenset()
    ) -> dict[str, nn.Parameter]:
        """Make exactly ``names`` trainable, restore all pretrained values, and initialize new parameters from the seed.

        Args:
            names: Names of the parameters to train.
            generator_seed: The seed of all new values.
            reinitialized: Those of ``names`` that also get new values, although the checkpoint has them.

        Returns:
            The trainable parameters by name.
        """
        self.restore(self._pretrained.keys() - names)  # the run does not train these, so they need no copy
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, value in self._pretrained.items():
                parameters[name].copy_(value)
        for name in names - self.new - self._pretrained.keys():
            value = parameters[name].data
            parameters[name].data = value.clone()  # if this runs out of memory, nothing has changed yet
            self._pretrained[name] = value
        self._initialize(self.new, generator_seed)
        # another seed, so that the head does not depend on ``reinitialized``
        self._initialize(reinitialized, generator_seed + 1)
        for name, parameter in parameters.items():
            parameter.requires_grad_(name in names)
        return {name: p for name, p in parameters.items() if name in names}

    def restore(self, names: Set[str] | None = None) -> None:
        """Restore the pretrained values of ``names`` (None: all), and delete their trained copies and all gradients."""
        for name in list(self._pretrained if names is None else names):
            self.model.get_parameter(name).data = self._pretrained.pop(name)
        clear_gradients(self.model.parameters())

    def pretrained_value(self, name: str) -> Tensor:
        """The pretrained value of a parameter that the current run trains."""
        return self._pretrained[name]

    def _initialize(self, names: Set[str], seed: int) -> None:
        """Initialize parameters as transformers does. Their values depend on the seed only, not on the device."""

        def holds_only_new(path: str) -> bool:
            return all(f"{path}.{name}" in names for name, _ in self.model.get_submodule(path).named_parameters())

        modules = sorted({name.rpartition(".")[0] for name in names})
        # some types give the parameters of an inner module other values for the module around it
        outer = {one for path in modules for one in paths_to(path)} - {*modules}
        around = [path for path in sorted(outer, key=lambda path: (-path.count("."), path)) if holds_only_new(path)]
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed the generators of GPUs
            for path, inner in [*((path, False) for path in modules), *((path, True) for path in around)]:
                module = self.model.get_submodule(path)
                drawn = _on_cpu(module, inner=inner)
                for one in (drawn, *drawn.parameters(recurse=inner)):
                    setattr(one, "_is_hf_initialized", False)  # noqa: B010
                self.model._init_weights(drawn)
                for name, value in drawn.named_parameters(recurse=inner):
                    if f"{path}.{name}".removeprefix(".") in names:
                        module.get_parameter(name).copy_(value)

    @property
    def stream(self) -> Stream | None:
        """Where the layers that are not in memory come from; None if the whole model is in memory."""
        return stream_of(self.model)

    def frozen_digest(self, trained: frozenset[str]) -> str:
        """A digest of all parameters that are neither trained nor new.

        Of a parameter that is not in memory, it contains the name and one NaN instead of the values.
        """
        import xxhash

        digest, on_gpu = xxhash.xxh3_128(), list[Tensor]()
        for name, parameter in self.model.named_parameters():
            if name not in trained and name not in self.new:
                value = parameter.detach()
                if is_unread(value):
                    digest.update(name.encode())
                    value = value[(0,) * value.dim()].reshape(1)
                if value.device.type in HASHED_HERE:
                    digest.update(value.cpu().contiguous().view(torch.uint8).numpy().data)
                else:
                    on_gpu += _checksums(value)
        if on_gpu:
            digest.update(torch.stack(on_gpu).cpu().numpy().data)
        return digest.hexdigest()


def _checksums(x: Tensor) -> list[Tensor]:
    """Two numbers for all values of a tensor, computed on its device: the sum of their bits as integers, and torch's hash.

    The hash is the exclusive or of all values, so equal ones cancel in pairs. The sum notices if they all change alike.
    """
    bits = x.view(INTEGERS[x.element_size()])
    return [bits.sum(dtype=torch.int64), torch.hash_tensor(x).view(torch.int64)]


def _on_cpu(module: nn.Module, *, inner: bool) -> nn.Module:
    """A copy of a module whose parameters are on the CPU. It shares hooks, and the modules inside unless ``inner``."""
    copied: dict[int, Any] = {
        id(p): nn.Parameter(torch.empty_like(p, device=CPU).copy_(p), p.requires_grad)
        for p in module.parameters(recurse=inner)
    }
    copied |= {id(held): held for one in module.modules() for name, held in vars(one).items() if "hooks" in name}
    return deepcopy(module, copied if inner else copied | {id(child): child for child in module.children()})
