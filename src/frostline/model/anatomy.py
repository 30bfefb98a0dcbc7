"""Find the layers of a model and the place of every parameter; name its modules, and set their training modes.

No architecture is known by name. The layers are the ``ModuleList`` with the most parameters whose modules a traced forward
pass reaches. Each module must be called once, in order, and map one vector per token to one vector per token. A model
that does not fit is refused with the reason.

A name that ``--tune-modules`` gives is one or more whole, consecutive segments of a module's path. ``layer.1`` stands for
``bert.encoder.layer.1`` and everything inside it, but not for ``layer.10``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.pytorch_utils import Conv1D
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from frostline import FrostlineError
from frostline.data.wording import first_line, similar_names
from frostline.model.terms import EMBEDDINGS, FINAL_NORM, HEAD, POOLER, layer_numbers, layer_place
from frostline.model.tokens import padding_fill, vocabulary_size

Batch = Mapping[str, Tensor]  # the model's inputs, [B, S] each, padded on the right


@dataclass(frozen=True)
class Call:
    """How the model calls one of its layers.

    Attributes:
        hidden: The argument that carries the hidden states: its position or its name.
        per_token: Other arguments with one entry per token (positions, rotary tables): their positions or names.
        wrap: The type that the layer returns: ``tuple`` or ``list``; None for a bare tensor.
        length: The number of returned items, of which the hidden states are the first.
    """

    hidden: int | str
    per_token: tuple[int | str, ...]
    wrap: type | None
    length: int

    def hidden_in(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The hidden states among the arguments of a call."""
        return args[self.hidden] if isinstance(self.hidden, int) else kwargs[self.hidden]

    def output(self, hidden: Tensor) -> Any:
        """``hidden`` as the layer would return it: wrapped like its own output, with None for all other outputs."""
        return hidden if self.wrap is None else self.wrap([hidden, *[None] * (self.length - 1)])


class Trace:
    """A forward pass in eval mode: the order of module calls, and how each layer is called. The model is left as it was.

    Attributes:
        first_called: By module path: the number of the module's first call.
        order: The numbers of the layers, in the order of their calls.
        after_layer: For each layer call: how many module calls had begun when it returned.
        calls: How each layer is called.
        inputs: By module path: what each linear module reads in its first call.
        width: The width of the hidden states.
        reached: Whether a module of the list gets a floating-point tensor with three dimensions, like hidden states.
        problem: Why some layer cannot be cut; empty if all can.
    """

    def __init__(self, model: PreTrainedModel, layers: nn.ModuleList, batch: Batch) -> None:
        self.layers = layers
        self.first_called: dict[str, int] = {}
        self.order: list[int] = []
        self.after_layer: list[int] = []
        self.calls: list[Call] = []
        self.inputs: dict[str, Tensor] = {}
        self.width, self.reached, self.problem = 0, False, ""
        numbers, mode = count(1), model.training
        self._last = 0
        model.eval()

        def begun(name: str, module: nn.Module, args: tuple[Any, ...]) -> None:
            self._last = next(numbers)
            self.first_called.setdefault(name, self._last)
            if type(module) is nn.Linear and args:
                self.inputs.setdefault(name, args[0])

        try:
            with ExitStack() as hooks, torch.no_grad():
                for name, module in model.named_modules():
                    hooks.callback(module.register_forward_pre_hook(partial(begun, name)).remove)
                for number, layer in enumerate(layers):
                    enter, leave = partial(self._enter, number), partial(self._leave, batch["input_ids"].shape)
                    hooks.callback(layer.register_forward_pre_hook(enter, with_kwargs=True).remove)
                    hooks.callback(layer.register_forward_hook(leave, with_kwargs=True).remove)
                model(**batch)
        finally:
            model.train(mode)

    def _enter(self, number: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before layer ``number`` runs."""
        self.order.append(number)
        given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        self.reached |= any(x.is_floating_point() and x.dim() == 3 for x in given)

    def _leave(
        self, grid: torch.Size, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> None:
        """After a layer has run; ``grid`` is the shape ``[B, S]`` of the batch."""
        self.after_layer.append(self._last)
        named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
        hidden = next((key for key, x in named if _is_hidden(x, grid)), None)
        wrap = next((kind for kind in (tuple, list) if type(out) is kind), None)
        first = out[0] if wrap else out
        if hidden is None or not _is_hidden(first, grid):
            given = next((tuple(x.shape) for _, x in named if isinstance(x, Tensor)), "no tensor")
            returned = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
            self.problem = (
                f"its layers do not take and return one vector per token (for a batch of {tuple(grid)} tokens they "
                f"are given {given} and return {returned})"
            )
            return
        if dict(named)[hidden].shape != first.shape:
            self.problem = "the width of its hidden states changes from layer to layer"
        self.width = first.shape[-1]
        per_token = tuple(key for key, x in named if key != hidden and _is_per_token(x, grid))
        self.calls.append(Call(hidden, per_token, wrap, len(out) if wrap else 1))

    def refusal(self, path: str, others: Sequence[str]) -> str:
        """Why the list at ``path`` does not hold layers that run one after the other; empty if it does.

        A layer can be spread over several lists: modules of ``others`` then run between the first and the last module of this
        list.
        """
        parameters = [id(p) for layer in self.layers for p in set(layer.parameters())]
        if len(self.order) > len(set(self.order)) or len(parameters) > len(set(parameters)):
            return "it shares weights between layers, so no layer is tuned alone"
        if self.order != list(range(len(self.layers))):
            return f"its layers are not called one after the other, but in the order {self.order}"
        if self.problem:
            return self.problem
        between = range(self.first_called[f"{path}.0"] + 1, self.after_layer[-1] + 1)
        inside = [name for name, number in self.first_called.items() if number in between]
        parallel = [other for other in others if any(name.startswith(f"{other}.") for name in inside)]
        names = ", ".join(one.rpartition(".")[2] for one in (path, *parallel))
        return f"its layers are spread over parallel lists of modules ({names})" if parallel else ""


def _is_hidden(x: Any, grid: torch.Size) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point() and x.dim() == 3 and x.shape[:2] == grid


def _is_per_token(x: Any, grid: torch.Size) -> bool:
    if isinstance(x, tuple):
        return bool(x) and all(_is_per_token(item, grid) for item in x)
    return isinstance(x, Tensor) and x.dim() in (2, 3, 4) and x.shape[0] in (1, grid[0]) and x.shape[1] == grid[1]


CHARACTERS = 1_000  # a model without a vocabulary reads characters: its random tokens are below this number


@dataclass(frozen=True)
class Anatomy:
    """The layers of a model and the place of every parameter.

    Attributes:
        path: The module path of the ``ModuleList`` that holds the layers.
        count: The number of layers, L.
        places: The place of each parameter, by name (:mod:`frostline.model.terms`). Parameters that all layers share are in
            ``embeddings``.
        calls: How the model calls each layer.
        width: The width of the hidden states, D.
        idle: Names of parameters whose module does not run.
        norms: Names of the parameters of norms.
        matrices: Names of the weight matrices of linear modules.
        joint: Paths of linear modules that read the same tensor, such as those of queries, keys and values.
    """

    path: str
    count: int
    places: Mapping[str, str]
    calls: tuple[Call, ...]
    width: int
    idle: frozenset[str] = frozenset()
    norms: frozenset[str] = frozenset()
    matrices: frozenset[str] = frozenset()
    joint: tuple[tuple[str, ...], ...] = ()

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

    def within(self, places: Set[str]) -> frozenset[str]:
        """Names of the parameters in these places."""
        return frozenset(name for name, place in self.places.items() if place in places)

    def depth(self, names: Set[str]) -> int | None:
        """How many of the last layers must run to train the parameters ``names``; None if one of them is in the embeddings.

        The number counts from the lowest layer that holds one of ``names``. A run can start from the hidden states below it.
        """
        places = {self.places[name] for name in names}
        if EMBEDDINGS in places:
            return None
        return self.count - min(layer_numbers(places), default=self.count)


LONGEST = 512  # tokens of an example, unless the user or the model sets another limit


def text_limit(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The most tokens of a text: what both the model's positions and its tokenizer allow, or LONGEST if none has a limit."""
    least = min(tokenizer.model_max_length, position_limit(model) or VERY_LARGE_INTEGER)
    return LONGEST if least >= VERY_LARGE_INTEGER else int(least)


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
        try:
            trace = Trace(model, stack, batch)
        except (AttributeError, TypeError, ValueError) as error:
            problem = f"it does not run on tokens and their mask alone ({first_line(error).rstrip('.')})"
            break
        if not trace.reached:  # for example the layers of an image encoder, or a list of embeddings
            continue
        problem = trace.refusal(path, [other for other, _ in stacks if other != path])
        if problem:
            break
        return Anatomy(
            path=path,
            count=len(stack),
            places=dict(_places(model, path, trace.first_called, trace.after_layer[-1])),
            calls=tuple(trace.calls),
            width=trace.width,
            idle=frozenset(n for n, _ in model.named_parameters() if module_of(n) not in trace.first_called),
            norms=frozenset(n for n, _ in model.named_parameters() if _in_norm(model, n)),
            matrices=frozenset(n for n, _ in model.named_parameters() if _is_matrix(model, n)),
            joint=_joint(trace.inputs),
        )
    raise FrostlineError(f"A model of type {kind!r} cannot be cut: {problem}. Choose another model.")


def _joint(inputs: Mapping[str, Tensor]) -> tuple[tuple[str, ...], ...]:
    by_input: dict[int, list[str]] = {}
    for path, x in inputs.items():
        by_input.setdefault(id(x), []).append(path)
    return tuple(tuple(paths) for paths in by_input.values() if len(paths) > 1)


def module_lists(model: nn.Module) -> list[tuple[str, nn.ModuleList]]:
    """The module lists that no other list contains, by path; the one with the most parameters comes first."""
    lists = {name: m for name, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m)}
    outer = {name: m for name, m in lists.items() if not any(name.startswith(f"{other}.") for other in lists)}
    return sorted(outer.items(), key=lambda pair: -sum(p.numel() for p in pair[1].parameters()))


def _places(
    model: PreTrainedModel, path: str, first_called: Mapping[str, int], after_layers: int
) -> Iterator[tuple[str, str]]:
    """The place of each parameter.

    A parameter in the list of layers is in its layer, one outside the base model is in the head. All others are placed by their
    module's first call: until the last layer returns they are embeddings, later final norm or pooler.
    """
    prefix = model.base_model_prefix
    base = f"{prefix}." if prefix and hasattr(model, prefix) else ""
    for name, _ in model.named_parameters():
        owner = module_of(name)
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
    return "norm" in type(model.get_submodule(module_of(name))).__name__.lower()


def _is_matrix(model: nn.Module, name: str) -> bool:
    """Whether a parameter is the weight of a linear module."""
    owner, _, leaf = name.rpartition(".")
    return leaf == "weight" and isinstance(model.get_submodule(owner), (nn.Linear, Conv1D))


def count_parameters(model: nn.Module, names: frozenset[str] | None = None) -> int:
    """The number of parameters of ``model``; with ``names``, of these parameters only."""
    return sum(p.numel() for name, p in model.named_parameters() if names is None or name in names)


def parameters_in(anatomy: Anatomy, modules: Iterable[str]) -> frozenset[str]:
    """Names of the parameters in these modules and in all modules inside them.

    Raises:
        FrostlineError: A name matches no module. The message lists the nearest names.
    """
    found: set[str] = set()
    for module in modules:
        inside = {name for name in anatomy.places if f".{module}." in f".{module_of(name)}."}
        if not inside:
            paths = {module_of(name) for name in anatomy.places}
            near = _nearest(module, paths) or sorted({path.split(".")[0] for path in paths})
            raise FrostlineError(
                f"tune_modules: no module with parameters is called {module!r}; the nearest are {', '.join(near)}. "
                f"Give module paths or whole segments of them; the {anatomy.count} layers are {anatomy.path}.0 to "
                f"{anatomy.path}.{anatomy.count - 1}, numbered from 0."
            )
        found |= inside
    return frozenset(found)


def _nearest(module: str, paths: Set[str]) -> list[str]:
    """The nearest names of modules with as many segments, or else with one fewer."""
    for length in (len(module.split(".")), len(module.split(".")) - 1):
        segments = [path.split(".") for path in paths]
        known = {".".join(path[n : n + length]) for path in segments for n in range(len(path) - length + 1)}
        if near := similar_names(module, sorted(known), limit=3):
            return near
    return []


def module_of(parameter: str) -> str:
    """The path of the module that holds a parameter."""
    return parameter.rpartition(".")[0]


def paths_to(name: str) -> list[str]:
    """The paths of the modules that contain a parameter or module, from the outermost one down; its own path comes last."""
    segments = name.split(".")
    return [".".join(segments[: n + 1]) for n in range(len(segments))]


def topmost_modules(names: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """The topmost modules that hold parameters of ``names`` but none of ``others``, in the order of ``names``."""
    excluded = {path for name in others for path in paths_to(name)}
    return tuple(dict.fromkeys(next(path for path in paths_to(name) if path not in excluded) for name in names))


def set_train_mode(model: PreTrainedModel, anatomy: Anatomy, trained: frozenset[str]) -> None:
    """Set train mode for trained modules and for modules outside the base model, and eval mode for frozen modules.

    A layer or the embeddings are in train mode as a whole if one of their parameters is in ``trained``. Frozen modules
    inside them are in eval mode.
    """
    places = {anatomy.places[name] for name in trained}
    model.train(EMBEDDINGS in places)
    for number, layer in enumerate(anatomy.layers(model)):
        layer.train(layer_place(number) in places)
    for path in set(map(module_of, trained)):
        model.get_submodule(path).training = True
    base = getattr(model, model.base_model_prefix, None)
    in_base = set() if base is None else set(base.modules())
    for module in model.modules():
        if module is not model and module not in in_base:
            module.training = True
    for module in frozen_modules(model, trained):
        module.training = False


def frozen_modules(model: nn.Module, trained: Set[str]) -> Iterator[nn.Module]:
    """All modules that have parameters but no trained ones, and the modules inside them."""
    trained_ids = {id(p) for name, p in model.named_parameters() if name in trained}
    holders, trained_holders = set[str](), set[str]()  # paths of modules with parameters, and with trained ones
    for name, p in model.named_parameters(remove_duplicate=False):
        holders.update(_from_root(name))
        if id(p) in trained_ids:
            trained_holders.update(_from_root(name))
    frozen = holders - trained_holders
    for path, module in model.named_modules():
        if not frozen.isdisjoint(_from_root(path)):
            yield module


def _from_root(name: str) -> list[str]:
    """The path of the model itself, which is empty, and those from there to a parameter or module."""
    return ["", *paths_to(name)]
