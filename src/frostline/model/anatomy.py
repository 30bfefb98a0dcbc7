"""Find the layers of a model and the place of every parameter.

No architecture is known by name. The layers are the ``ModuleList`` with the most parameters whose modules a traced forward
pass reaches. Each module must be called once, in order, and map one vector per token to one vector per token. A model
that does not fit is refused with the reason.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from frostline import FrostlineError
from frostline.data.wording import first_line
from frostline.model.places import EMBEDDINGS, FINAL_NORM, HEAD, POOLER, layer_number, layer_place
from frostline.model.trace import Batch, Call, Trace
from frostline.model.vocabulary import padding_fill, vocabulary_size

CHARACTERS = 1_000  # a model without a vocabulary reads characters: its random tokens are below this number


@dataclass(frozen=True)
class Anatomy:
    """The layers of a model and the place of every parameter.

    Attributes:
        path: The module path of the ``ModuleList`` that holds the layers.
        count: The number of layers, L.
        places: The place of each parameter, by name (:mod:`frostline.model.places`). Parameters that all layers share are in
            ``embeddings``.
        calls: How the model calls each layer.
        width: The width of the hidden states, D.
        idle: Names of parameters whose module does not run.
        norms: Names of the parameters of norms.
        matrices: Names of the weight matrices of linear modules.
    """

    path: str
    count: int
    places: Mapping[str, str]
    calls: tuple[Call, ...]
    width: int
    idle: frozenset[str] = frozenset()
    norms: frozenset[str] = frozenset()
    matrices: frozenset[str] = frozenset()

    def layers(self, model: nn.Module) -> list[nn.Module]:
        stack = model.get_submodule(self.path)
        assert isinstance(stack, nn.ModuleList)
        return list(stack)

    def of_head(self, model: nn.Module) -> "Anatomy":
        """The anatomy of ``model``, which has the same base model in the same place, but another head."""
        names = {name for name, _ in model.named_parameters()}
        base = {name: place for name, place in self.places.items() if place != HEAD and name in names}
        head = dict.fromkeys(names - base.keys(), HEAD)
        matrices = self.matrices & base.keys() | {name for name in head if _is_matrix(model, name)}
        return replace(
            self, places=base | head, idle=self.idle & base.keys(), norms=self.norms & base.keys(), matrices=matrices
        )

    def depth(self, names: Set[str]) -> int | None:
        """How many of the last layers must run to train the parameters ``names``; None if one of them is in the embeddings.

        The number counts from the lowest layer that holds one of ``names``. A run can start from the hidden states below it.
        """
        places = {self.places[name] for name in names}
        if EMBEDDINGS in places:
            return None
        numbers = [number for place in places if (number := layer_number(place)) is not None]
        return self.count - min(numbers, default=self.count)


def position_limit(model: PreTrainedModel) -> int | None:
    """The most tokens per example that the model's positions allow; None if its configuration sets no limit.

    Some types write a number below 1 for "no limit" (XLNet: -1).
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    return int(positions - (first_position(model) or 0))


def first_position(model: PreTrainedModel) -> int | None:
    """The number of an example's first position, if the model numbers them from the one of padding.

    RoBERTa and similar types do: 514 positions allow 512 tokens.
    """
    for path, table in model.named_modules():
        if "position" in path and getattr(table, "padding_idx", None) is not None:
            owner = model.get_submodule(path.rpartition(".")[0])
            return int(getattr(owner, "padding_idx", table.padding_idx)) + 1
    return None


def probe_batch(model: PreTrainedModel, lengths: Sequence[int] = (23, 17, 9), *, seed: int = 0) -> dict[str, Tensor]:
    """A batch of random tokens with these ``lengths``, for models that need only tokens and a mask.

    A model without a vocabulary gets random characters (CANINE). Lengths beyond the model's positions are shortened.
    """
    config = model.config.get_text_config()
    limit = position_limit(model)
    lengths = [length if limit is None else min(length, limit) for length in lengths]
    vocabulary = vocabulary_size(model) or CHARACTERS
    pad = padding_fill(model)
    others = (getattr(config, f"{name}_token_id", None) for name in ("bos", "eos", "sep"))
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(0, vocabulary, mask.shape, generator=generator)
    special = {pad, *others}
    plain = next(i for i in range(vocabulary) if i not in special)
    for token in special - {None}:
        ids[ids == token] = plain
    batch = {"input_ids": torch.where(mask.bool(), ids, pad), "attention_mask": mask}
    return {name: x.to(model.device) for name, x in batch.items()}


def find_layers(model: PreTrainedModel, batch: Batch | None = None) -> Anatomy:
    """Find the layers of ``model`` in a traced forward pass of ``batch`` (by default random tokens).

    Raises:
        FrostlineError: The model cannot be cut. The message says why.
    """
    kind = model.config.model_type
    if model.config.is_encoder_decoder:
        raise FrostlineError(
            f"A model of type {kind!r} cannot be cut: it is an encoder-decoder, whose later layers read the "
            "encoder's output beside the hidden states. Choose an encoder or a decoder."
        )
    batch = probe_batch(model) if batch is None else batch
    stacks = module_lists(model)
    problem = (
        "its largest list of modules holds no layers that are called as modules"
        if stacks
        else "it has no list of layers"
    )
    for path, stack in stacks:
        trace = Trace(model, stack)
        try:
            trace.run(batch)
        except (AttributeError, TypeError, ValueError) as error:
            problem = f"it does not run on tokens and their mask alone ({first_line(error).rstrip('.')})"
            break
        if not trace.reached:  # for example the layers of an image encoder, or a list of embeddings
            continue
        problem = trace.refusal() or trace.parallel_lists(path, [other for other, _ in stacks if other != path])
        if problem:
            break
        return Anatomy(
            path=path,
            count=len(stack),
            places=dict(_places(model, path, trace.first_called, trace.after_layer[-1])),
            calls=tuple(trace.calls),
            width=trace.width,
            idle=frozenset(n for n, _ in model.named_parameters() if n.rpartition(".")[0] not in trace.first_called),
            norms=frozenset(n for n, _ in model.named_parameters() if _in_norm(model, n)),
            matrices=frozenset(n for n, _ in model.named_parameters() if _is_matrix(model, n)),
        )
    raise FrostlineError(f"A model of type {kind!r} cannot be cut: {problem}. Choose another model.")


def module_lists(model: nn.Module) -> list[tuple[str, nn.ModuleList]]:
    """The module lists that no other list contains, by path; the one with the most parameters comes first."""
    lists = {name: m for name, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m)}
    outer = {name: m for name, m in lists.items() if not any(name.startswith(f"{other}.") for other in lists)}
    return sorted(outer.items(), key=lambda pair: -sum(p.numel() for p in pair[1].parameters()))


def _places(
    model: PreTrainedModel, path: str, first_called: Mapping[str, int], after_layers: int
) -> Iterator[tuple[str, str]]:
    """The place of each parameter.

    A parameter in the list of layers is in its layer, one outside the base model is in the head. All others are placed by
    their module's first call (``first_called``): until the last layer returns (``after_layers``) they are embeddings, later
    final norm or pooler.
    """
    prefix = model.base_model_prefix
    base = f"{prefix}." if prefix and hasattr(model, prefix) else ""
    for name, _ in model.named_parameters():
        owner, _, _ = name.rpartition(".")
        if name.startswith(f"{path}."):
            yield name, layer_place(int(name.removeprefix(f"{path}.").split(".")[0]))
        elif not name.startswith(base):
            yield name, HEAD
        elif first_called.get(owner, 0) <= after_layers:
            yield name, EMBEDDINGS
        elif _in_norm(model, name) and "pool" not in owner:
            yield name, FINAL_NORM
        else:
            yield name, POOLER if base else HEAD


def _in_norm(model: nn.Module, name: str) -> bool:
    """Whether a parameter belongs to a norm."""
    return "norm" in type(model.get_submodule(name.rpartition(".")[0])).__name__.lower()


def _is_matrix(model: nn.Module, name: str) -> bool:
    """Whether a parameter is the weight of a linear module."""
    owner, _, leaf = name.rpartition(".")
    return leaf == "weight" and isinstance(model.get_submodule(owner), (nn.Linear, Conv1D))


def count_parameters(model: nn.Module, names: frozenset[str] | None = None) -> int:
    """The number of parameters of ``model``; with ``names``, of these parameters only."""
    return sum(p.numel() for name, p in model.named_parameters() if names is None or name in names)
