"""The layers of a model, and the place of every parameter.

Nothing here knows an architecture by name. The layers are the ``ModuleList`` with the most parameters whose modules a traced
forward pass calls once each, in order, with one vector per token in and out. What does not fit is refused with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline import FrostlineError
from frostline.model.trace import Batch, Call, Trace

EMBEDDINGS, FINAL_NORM, POOLER, HEAD = "embeddings", "final norm", "pooler", "head"
LAYER = "layer "  # followed by its number: the place of the parameters of a layer
CHARACTERS = 1_000  # random tokens of a model without a vocabulary (it reads characters) are below this number


@dataclass(frozen=True)
class Anatomy:
    """The layers of a model and the place of every parameter.

    ``places`` maps each parameter to exactly one place: ``embeddings`` (also for what all layers share), ``layer 0`` to
    ``layer L-1``, ``final norm``, ``pooler`` or ``head``.
    """

    path: str  # of the ModuleList
    count: int  # L
    places: Mapping[str, str]
    calls: tuple[Call, ...]  # one a layer
    width: int  # D
    idle: frozenset[str] = frozenset()  # parameters of modules that do not run

    def layers(self, model: nn.Module) -> list[nn.Module]:
        stack = model.get_submodule(self.path)
        assert isinstance(stack, nn.ModuleList)
        return list(stack)

    def depth(self, names: Set[str]) -> int | None:
        """The number of layers from the lowest one that holds any of ``names`` to the top; None if embeddings hold one.

        A run that trains ``names`` may start from hidden states below that many layers.
        """
        places = {self.places[name] for name in names}
        if EMBEDDINGS in places:
            return None
        return max(
            (self.count - int(place.removeprefix(LAYER)) for place in places if place.startswith(LAYER)), default=0
        )


def probe_batch(model: PreTrainedModel, lengths: Sequence[int] = (23, 17, 9), *, seed: int = 0) -> dict[str, Tensor]:
    """A batch of random tokens of these ``lengths``, for models that need only tokens and a mask.

    A model without a vocabulary reads characters (CANINE). A limit of positions below 1 means no limit (XLNet: -1).
    """
    config = model.config.get_text_config()
    positions = getattr(config, "max_position_embeddings", None) or 0
    lengths = [min(length, positions) if positions > 0 else length for length in lengths]
    vocabulary = getattr(config, "vocab_size", None) or CHARACTERS
    pad = config.pad_token_id if config.pad_token_id is not None else 0
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(0, vocabulary, mask.shape, generator=generator)
    special = {pad, config.bos_token_id, config.eos_token_id, getattr(config, "sep_token_id", None)}
    plain = next(i for i in range(vocabulary) if i not in special)
    for token in special - {None}:
        ids[ids == token] = plain
    batch = {"input_ids": torch.where(mask.bool(), ids, pad), "attention_mask": mask}
    return {name: x.to(model.device) for name, x in batch.items()}


def find_layers(model: PreTrainedModel, batch: Batch | None = None) -> Anatomy:
    """Find the layers of ``model`` by a traced forward pass of ``batch`` (random tokens by default).

    Raises:
        FrostlineError: The type cannot be cut, with the reason.
    """
    kind = model.config.model_type
    if model.config.is_encoder_decoder:
        raise FrostlineError(
            f"A model of type {kind!r} cannot be cut: it is an encoder-decoder, whose later layers read the "
            "encoder's output beside the hidden states. Choose an encoder or a decoder."
        )
    batch = probe_batch(model) if batch is None else batch
    stacks = _stacks(model)
    problem = (
        "its largest list of modules holds no layers that are called as modules"
        if stacks
        else "it has no list of layers"
    )
    for path, stack in stacks:
        trace = Trace(model, stack)
        trace.run(batch)
        if not trace.reached:  # a list for images, or a list of embeddings
            continue
        problem = trace.complaint() or trace.parallel(path, [other for other, _ in stacks if other != path])
        if problem:
            break
        return Anatomy(
            path=path,
            count=len(stack),
            places=dict(_places(model, path, trace.owners, trace.left[-1])),
            calls=tuple(trace.calls),
            width=trace.width,
            idle=frozenset(n for n, _ in model.named_parameters() if n.rpartition(".")[0] not in trace.owners),
        )
    raise FrostlineError(f"A model of type {kind!r} cannot be cut: {problem}. Choose another model.")


def _stacks(model: nn.Module) -> list[tuple[str, nn.ModuleList]]:
    """Module lists that are in no other list, the one with the most parameters first."""
    lists = {name: m for name, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m)}
    outer = {name: m for name, m in lists.items() if not any(name.startswith(f"{other}.") for other in lists)}
    return sorted(outer.items(), key=lambda pair: -sum(p.numel() for p in pair[1].parameters()))


def _places(model: PreTrainedModel, path: str, owners: Mapping[str, int], last: int) -> Iterator[tuple[str, str]]:
    """The place of each parameter: in a layer, outside the base model, or by when its module ran."""
    prefix = model.base_model_prefix
    base = f"{prefix}." if prefix and hasattr(model, prefix) else ""
    for name, _ in model.named_parameters():
        owner, _, _ = name.rpartition(".")
        if name.startswith(f"{path}."):
            yield name, f"{LAYER}{name.removeprefix(f'{path}.').split('.')[0]}"
        elif not name.startswith(base):
            yield name, HEAD
        elif owners.get(owner, 0) <= last:
            yield name, EMBEDDINGS
        elif "norm" in type(model.get_submodule(owner)).__name__.lower() and "pool" not in owner:
            yield name, FINAL_NORM
        else:
            yield name, POOLER if base else HEAD


def count_parameters(model: nn.Module, names: frozenset[str] | None = None) -> int:
    """The number of parameters of ``model``, or of those with these names."""
    return sum(p.numel() for name, p in model.named_parameters() if names is None or name in names)
