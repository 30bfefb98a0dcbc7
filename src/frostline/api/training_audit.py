"""An audit of any training in PyTorch: what is frozen, what moves, and what the frozen parts cost.

>>> with frostline.audit(model) as watch:
...     for batch in batches:
...         step(batch)
>>> print(watch.result)

It watches the model and every ``torch.optim`` optimizer that steps inside of the block, and changes neither. The parts of a
model are the layers in its lists of modules, and the largest modules outside of them. A value has moved if its bytes differ.
"""

import json
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from transformers import TrainerCallback

from frostline import FrostlineError
from frostline.data.wording import counted
from frostline.model.model_files import checkpoint_files
from frostline.model.weights import Source, digest_of, read_weight, shapes_in
from frostline.report.plain_text import size_of, table_lines
from frostline.sweeps.progress import LOG

SHOWN = 3  # names in a sentence
BLOCK = 1 << 22  # numbers that are compared at a time
# what older versions of transformers wrote otherwise, and constants that they wrote and newer ones leave out
OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
CONSTANTS = ("embeddings.position_ids", "embeddings.token_type_ids")
MODEL = "the model itself"  # the name of a part that has the parameters outside of all modules


@dataclass
class Part:
    """A layer, or another part of a model. Counts are of numbers in its parameters; a shared tensor counts in its first part.

    Attributes:
        trained: Require gradients in a step.
        held: Are held by an optimizer.
        moved_first, moved: Are in a tensor whose bytes changed in the first step, or in all steps.
        backward: Whether the backward pass runs through this part.
        dropout: Whether dropout is active in it while training.
        seconds: Of its forward passes in the same time as the audit's. On a GPU they do not wait for the computation.
        bytes: Of its parameters.
    """

    name: str
    parameters: int = 0
    trained: int = 0
    held: int = 0
    moved_first: int = 0
    moved: int = 0
    backward: bool = False
    dropout: bool = False
    seconds: float = 0.0
    bytes: int = 0


@dataclass(frozen=True)
class Finding:
    """Something that is not as it seems, or costs more than it needs.

    Attributes:
        kind: ``no step``, ``nothing trained``, ``moved though frozen``, ``not in the optimizer``, ``no gradient``,
            ``did not move``, ``statistics moved``, ``tied``, ``backward for nothing``, ``low parameter`` or ``frozen dropout``.
        wrong: Whether something else is trained than what requires gradients. Other findings cost time, or are worth knowing.
        text: What, where, and what to do.
        names: The parameters, buffers or parts.
    """

    kind: str
    wrong: bool
    text: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{'WRONG' if self.wrong else 'Note'}, {self.kind}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class TrainingAudit:
    """What an audit has found.

    Attributes:
        parts: In the order in which the forward pass calls them.
        steps: Steps of the optimizers that hold parameters of the model; of several, one step of each counts as one.
        seconds: From the first step to the last one, because the first one takes longer; or of the only step.
        findings: The wrong ones first.
        below: The parts below everything that is trained, whose output could be cached.
    """

    parts: list[Part]
    steps: int
    seconds: float
    findings: list[Finding]
    below: list[str]

    @property
    def ok(self) -> bool:
        """Whether exactly what requires gradients is trained."""
        return not any(finding.wrong for finding in self.findings)

    @property
    def verdict(self) -> str:
        """What has moved, and what the parts below cost, in two sentences."""
        moved, still = ([part.name for part in self.parts if bool(part.moved) is wanted] for wanted in (True, False))
        numbers, all_numbers = (sum(getattr(part, name) for part in self.parts) for name in ("moved", "parameters"))
        after, counts = f"After {counted(self.steps, 'step')}", f"{numbers:,} of {all_numbers:,} parameters"
        if not moved:
            return f"{after}, nothing has moved."
        first = f"{after}, {named(moved)} moved ({counts}), and {named(still or moved)} did not, to the bit."
        if not still:
            first = f"{after}, something has moved in all parts ({counts}): none is frozen."
        if not any(part.seconds for part in self.parts):
            return (
                f"{first} No forward pass of a part was seen, as in a compiled model, so what ran backward, dropped values and "
                "took time is not known: audit the model without torch.compile."
            )
        if not self.below:
            return f"{first} No part lies below everything that requires gradients, so nothing can be cached."
        below = [part for part in self.parts if part.name in self.below]
        share = sum(part.seconds for part in below) / self.seconds
        size = size_of(sum(part.bytes for part in below))
        return (
            f"{first} Forward passes through {named(self.below)} took {100 * share:.0f} % of the time: with their output "
            f"cached, and their dropout off, training would take {100 - 100 * share:.0f} %, and {size} of weights less."
        )

    def to_json(self) -> str:
        """All of it as JSON."""
        return json.dumps({**asdict(self), "ok": self.ok, "verdict": self.verdict}, indent=1, ensure_ascii=False)

    def __str__(self) -> str:
        rows = [
            {
                "part": part.name,
                "parameters": part.parameters,
                "trained": part.trained,
                "in optimizer": part.held,
                "moved in step 1": part.moved_first,
                "moved": part.moved,
                "backward": "yes" if part.backward else "",
                "dropout": "yes" if part.dropout else "",
                "forward": f"{part.seconds:.3f} s",
            }
            for part in self.parts
        ]
        return "\n".join((*table_lines(rows, tuple(rows[0])), *map(str, self.findings), self.verdict))


def named(names: Sequence[str]) -> str:
    """Parts or parameters in a sentence: ``bert.embeddings and layers 0 to 3``."""
    numbers, words = dict[str, list[int]](), list[str]()
    for name in names:
        path, _, last = name.rpartition(".")
        if last.isdigit():
            numbers.setdefault(path, []).append(int(last))
        if not last.isdigit() or len(numbers[path]) == 1:
            words.append(path if last.isdigit() else name)
    texts = [_layers(word, sorted(numbers[word]), len(numbers) > 1) if word in numbers else word for word in words]
    more = [f"{len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
    *most, last = [*texts[:SHOWN], *more]
    return f"{', '.join(most)} and {last}" if most else last


def _layers(path: str, numbers: list[int], with_path: bool) -> str:
    a_range = len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1))
    which = f"{numbers[0]} to {numbers[-1]}" if a_range else " and ".join(map(str, numbers))
    return f"layer{'s' * (len(numbers) > 1)} {which}" + (f" of {path}" if with_path else "")


def parts_of(names: Iterable[str]) -> dict[str, str]:
    """The part of each parameter, from the names of all: numbers in names are places in lists of layers, the first one counts."""
    paths = {name: name.split(".")[:-1] for name in names}
    lists = {tuple(path[:n]) for path in paths.values() for n, word in enumerate(path) if word.isdigit()}
    around = {path[:n] for path in lists for n in range(len(path) + 1)}
    return {name: ".".join(_of_part(path, around)) or MODEL for name, path in paths.items()}


def _of_part(path: Sequence[str], around: set[tuple[str, ...]]) -> Sequence[str]:
    """The first segments of a path: up to a number (or several in a row), or to the first module that has no list of layers."""
    ends = (n for n, word in enumerate(path, 1) if word.isdigit() or tuple(path[:n]) not in around)
    end = next(ends, len(path))
    while end < len(path) and path[end - 1].isdigit() and path[end].isdigit():
        end += 1  # a layer in a list of a list, as in Funnel
    return path[:end]


class audit:
    """Watch a training: ``with frostline.audit(model) as watch: ...``. After the block, ``watch.result`` has what was found.

    All parameters are read at the begin, after the first step, and at the end.

    Args:
        model: Any module. It may be part of another one, such as ``torch.nn.parallel.DistributedDataParallel``.

    Attributes:
        result: A :class:`TrainingAudit`; None before the end, and if the block ends in an error.

    Raises:
        FrostlineError: It is no module, has no parameter, or one without values. Or the audit is used twice.
    """

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, nn.Module):
            raise FrostlineError(f"An audit needs a torch.nn.Module, not {type(model).__name__}.")
        self.model = model
        self.result: TrainingAudit | None = None
        self.parameters = dict(model.named_parameters(remove_duplicate=False))
        if not self.parameters:
            raise FrostlineError(f"{type(model).__name__} has no parameter to audit.")
        if any(parameter.is_meta or is_lazy(parameter) for parameter in self.parameters.values()):
            raise FrostlineError(f"{type(model).__name__} has parameters without values: load them before the audit.")
        self.place = parts_of(self.parameters)
        self.parts = {name: Part(name) for name in dict.fromkeys(self.place.values())}
        self.steps, self.seconds = 0, 0.0
        self._stepped_once = set[int]()  # optimizers in the current step, which ends when one of them steps again
        # The seconds of each part until the first step, in which much is done for the first time, and until the last one.
        self._first_step, self._in_steps = dict[str, float](), dict[str, float]()
        self._hooks, self._called_at = list[Any](), dict[str, float]()
        self._called = dict[str, None]()
        # Identities of parameters, because a shared one has several names.
        self._trained, self._held, self._with_gradient = set[int](), set[int](), set[int]()
        self._largest_rate, self._first = 0.0, frozenset[str]()

    def __enter__(self) -> Self:
        if self.result or self._hooks:
            raise FrostlineError("An audit watches one training: make another one with frostline.audit(model).")
        self._before, self._statistics = self._digests(), self._buffers()
        for name in self.parts:
            around = name == MODEL or any(other.startswith(f"{name}.") for other in self.parts)
            if not around:
                module = self.model.get_submodule(name)
                self._hooks.append(module.register_forward_pre_hook(self._begins(name)))
                self._hooks.append(module.register_forward_hook(self._returns(name)))
        self._hooks.append(register_optimizer_step_pre_hook(self._steps))
        self._hooks.append(register_optimizer_step_post_hook(self._stepped))
        self._begun = perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        if kind is None:
            self.result = self._found()

    def close(self) -> None:
        """Watch no longer."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _digests(self) -> dict[str, str]:
        return {name: digest_of(parameter) for name, parameter in self.parameters.items()}

    def _buffers(self) -> dict[str, str]:
        return {name: digest_of(buffer) for name, buffer in self.model.named_buffers()}

    def _begins(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, *_: Any) -> None:
            if torch.compiler.is_compiling():  # what is compiled stays so after the audit
                return
            if module.training or torch.is_grad_enabled():  # not what is only predicted
                self._called_at[name] = perf_counter()

        return hook

    def _returns(self, name: str) -> Callable[..., None]:
        part = self.parts[name]

        def hook(module: nn.Module, _: Any, output: Any) -> None:
            if torch.compiler.is_compiling():
                return
            begun = self._called_at.pop(name, None)
            if begun is not None:
                part.seconds += perf_counter() - begun
                part.dropout |= any(map(_drops, module.modules()))
                part.backward |= any(tensor.requires_grad for tensor in _tensors(output))
                self._called[name] = None

        return hook

    def _steps(self, optimizer: Optimizer, *_: Any) -> None:
        """Before a step: what this optimizer holds, and what has a gradient."""
        ours = {id(parameter) for parameter in self.parameters.values()}
        for group in optimizer.param_groups:
            held = [parameter for parameter in group["params"] if id(parameter) in ours]
            self._held |= {id(parameter) for parameter in held}
            self._with_gradient |= {id(parameter) for parameter in held if parameter.grad is not None}
            self._largest_rate = max([self._largest_rate, *(float(group.get("lr", 1.0)) for _ in held[:1])])
        self._trained |= {id(parameter) for parameter in self.parameters.values() if parameter.requires_grad}

    def _stepped(self, optimizer: Optimizer, *_: Any) -> None:
        held = [
            parameter
            for group in optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) in self._held
        ]
        self._with_gradient |= {id(parameter) for parameter in held if parameter.grad is not None}  # of a closure
        if held:
            if not self.steps or id(optimizer) in self._stepped_once:
                self.steps += 1
                self._stepped_once.clear()
            self._stepped_once.add(id(optimizer))
            self.seconds = perf_counter() - self._begun
            self._in_steps = {name: part.seconds for name, part in self.parts.items()}
            if self.steps == 1:
                self._first = self._moved()
                self._first_step = self._in_steps
                self._first_ended = perf_counter()

    def _moved(self) -> frozenset[str]:
        return frozenset(name for name, digest in self._digests().items() if digest != self._before[name])

    def _found(self) -> TrainingAudit:
        order = {name: n for n, name in enumerate(self._called)}
        own = dict[int, str]()  # of each tensor its name in the part that is called first
        for name in sorted(self.parameters, key=lambda name: order.get(self.place[name], len(order))):
            own.setdefault(id(self.parameters[name]), name)
        moved = self._moved()
        for key, name in own.items():
            part, parameter = self.parts[self.place[name]], self.parameters[name]
            count = parameter.numel()
            part.parameters += count
            part.bytes += count * parameter.element_size()
            part.trained += count * (key in self._trained)
            part.held += count * (key in self._held)
            part.moved_first += count * (name in self._first)
            part.moved += count * (name in moved)
        seconds = self.seconds
        for name, until_last in self._in_steps.items():  # what runs after the last step does not count
            self.parts[name].seconds = until_last - (self._first_step[name] if self.steps > 1 else 0.0)
        if self.steps > 1:
            seconds -= self._first_ended - self._begun
        parts = sorted(self.parts.values(), key=lambda part: order.get(part.name, len(order)))
        parts = [part for part in parts if part.parameters]
        lowest = next((n for n, part in enumerate(parts) if part.trained or part.backward or part.moved), len(parts))
        below = [part.name for part in parts[:lowest] if part.name in order] if self.steps else []
        findings = sorted(
            self._findings(parts, {name: key for key, name in own.items()}, moved),
            key=lambda finding: not finding.wrong,
        )
        return TrainingAudit(parts=parts, steps=self.steps, seconds=seconds, findings=findings, below=below)

    def _findings(self, parts: Sequence[Part], key: Mapping[str, int], moved: frozenset[str]) -> Iterator[Finding]:
        if not self.steps:
            yield Finding(
                "no step", True, "No optimizer of torch.optim that holds its parameters has taken a step.", ()
            )
            return
        trained = [name for name in key if key[name] in self._trained]
        held = [name for name in trained if key[name] in self._held]
        if not trained:
            yield Finding("nothing trained", True, "No parameter requires gradients.", ())
        yield from _about(
            [name for name in key if name in moved and key[name] not in self._trained],
            ("moved though frozen", True),
            "moved, but required no gradient. The optimizer had an old one, or other code wrote the values: freeze before the "
            "first step, and give the optimizer only what requires gradients",
        )
        yield from _about(
            [name for name in trained if key[name] not in self._held],
            ("not in the optimizer", True),
            "required gradients, but no optimizer that stepped had them: make the optimizer after you unfreeze",
        )
        without = [name for name in held if key[name] not in self._with_gradient]
        some = {self.place[name] for name in trained if key[name] in self._with_gradient}
        cut = {part.name for part in parts if part.name in self._called and part.name not in some and not part.backward}
        yield from _about(
            [name for name in without if self.place[name] in cut],
            ("no gradient", True),
            "got no gradient, because the output of the part required none. Reentrant checkpointing does so if its input "
            "requires none: use use_reentrant=False, or model.enable_input_require_grads()",
        )
        rest = [name for name in without if self.place[name] not in cut]
        unused = [name for name in rest if self.place[name] in some or self.place[name] not in self._called]
        called = [*self._called]
        above = called[next((n for n, part in enumerate(called) if part in some), len(called)) :]
        for beside in (False, True):  # a branch that the head of a type does not use, such as the pooler of BigBird
            yield from _about(
                [name for name in rest if name not in unused and (self.place[name] in above) is beside],
                ("no gradient", not beside),
                "got no gradient, although the part ran: the loss does not depend on it",
            )
        yield from _about(unused, ("no gradient", False), "got no gradient: the model did not use this")
        still = [name for name in held if name not in moved and name not in without]
        if self._largest_rate:
            yield from _about(
                still,
                ("did not move", len(still) == len(held)),
                "had a gradient, but did not move: the gradient or the learning rate was zero, or the steps were too small for "
                "the precision of the weights",
            )
        elif held:
            text = "The learning rate was zero in every step, as at the begin of a warm-up: watch more steps."
            yield Finding("did not move", False, text, ())
        frozen = {part.name for part in parts if not part.trained}
        buffers = self._buffers()
        places = parts_of([*self.parameters, *buffers])
        yield from _about(
            [
                name
                for name, digest in buffers.items()
                if digest != self._statistics.get(name) and places[name] in frozen
            ],
            ("statistics moved", True),
            "moved, and belongs to a frozen part: call eval() of this part after model.train()",
        )
        yield from self._tied()
        yield from _costs(parts, self._called, moving=bool(self._largest_rate))

    def _tied(self) -> Iterator[Finding]:
        """A tensor that two parts share, of which one is trained otherwise and the other frozen, or has nothing else."""
        names_of = dict[int, list[str]]()
        for name, parameter in self.parameters.items():
            names_of.setdefault(id(parameter), []).append(name)
        mixed = 0 < len(self._trained) < len(names_of)
        for shared, names in names_of.items():
            parts = {self.place[name] for name in names}
            if len(parts) == 1:
                continue
            others = [
                {
                    key in self._trained
                    for key, (one, *_) in names_of.items()
                    if self.place[one] == part and key != shared
                }
                for part in parts
            ]
            if ({True} in others and {False} in others) or (mixed and set() in others):
                state = "trained" if shared in self._trained else "frozen"
                yield from _about(
                    names, ("tied", False), f"share one tensor, which is therefore {state} in all of these parts"
                )


def _costs(parts: Sequence[Part], called: Container[str], *, moving: bool) -> Iterator[Finding]:
    """What makes the backward pass longer, and what prevents caching. Without ``moving``, the learning rate was zero.

    Where a part lies that is not ``called``, such as a soft prompt, is not known.
    """
    order = {part.name: n for n, part in enumerate(parts)}
    learns = {part.name for part in parts if part.moved or (part.trained and not moving)}
    unplaced = [name for name in order if name in learns and name not in called]
    lowest = 0 if unplaced else next((n for n, part in enumerate(parts) if part.name in learns), len(parts))
    yield from _about(
        [part.name for part in parts[:lowest] if part.backward],
        ("backward for nothing", False),
        "ran backward, but nothing moved there or below: freeze it all, and let no code make inputs require gradients",
    )
    through = [part.name for part in parts[lowest:] if part.backward and not part.trained]
    if through:
        below = [name for name in order if name in learns and order[name] < order[through[0]]]
        reason = f"{named(below)} below moved" if below else "inputs required gradients"
        if unplaced and not below:
            reason = f"{named(unplaced)} moved, whose place is not known, or {reason}"
        yield from _about(through, ("low parameter", False), f"ran backward, though frozen, because {reason}")
    yield from _about(
        [part.name for part in parts if part.dropout and not part.trained],
        ("frozen dropout", False),
        "dropped values, though frozen, so the output differed in every step: call eval() after model.train(), or nothing can be "
        "cached",
    )


def _about(names: Iterable[str], kind: tuple[str, bool], what: str) -> Iterator[Finding]:
    """A finding about these names, if there are any."""
    names = tuple(names)
    if names:
        yield Finding(*kind, f"{named(names)} {what}.", names)


def _tensors(output: Any) -> Iterator[Tensor]:
    """The tensors in what a module returns."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping | list | tuple):
        for one in output.values() if isinstance(output, Mapping) else output:
            yield from _tensors(one)


def _drops(module: nn.Module) -> bool:
    """Whether a module drops values now: as a dropout module, or by a function with a rate that it keeps."""
    if isinstance(module, _DropoutNd):
        return module.training and module.p > 0
    rates = (value for name, value in vars(module).items() if "dropout" in name and isinstance(value, float))
    return module.training and any(rate > 0 for rate in rates)


@dataclass
class Moved:
    """The weights of a part in two checkpoints.

    Attributes:
        names: Of all tensors of the part.
        moved: Those with other bytes, unless these are the same numbers in another type.
        largest: The largest change of one number among them.
        retyped: Those with the same numbers in another type, such as float32 for float16.
        alone: Those that one checkpoint lacks.
        reshaped: Those with another shape.
    """

    part: str
    names: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    largest: float = 0.0
    retyped: list[str] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    reshaped: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether both checkpoints have the same bytes."""
        return not (self.moved or self.retyped or self.alone or self.reshaped)


def audit_folders(before: str | Path, after: str | Path) -> list[Moved]:
    """Compare the weights of two checkpoints part by part, to the bit. No model is loaded.

    Args:
        before, after: Folders with safetensors files, or names on the hub. One of them may be without a head.

    Raises:
        FrostlineError: One has no such files, or they have no weight of the same name and shape.
    """
    old, new = (_weights(folder) for folder in (before, after))
    one, other = _prefix(old, new), _prefix(new, old)
    old = {one + name: source for name, source in old.items()}
    new = {other + name: source for name, source in new.items()}
    parts = dict[str, Moved]()
    for name, place in parts_of(dict.fromkeys([*new, *old])).items():
        part = parts.setdefault(place, Moved(place))
        part.names.append(name)
        values = [read_weight(side[name]) for side in (old, new) if name in side]
        if len(values) < 2:
            part.alone.append(name)
        elif values[0].shape != values[1].shape:
            part.reshaped.append(name)
        elif (other_type := values[0].dtype != values[1].dtype) or digest_of(values[0]) != digest_of(values[1]):
            change = _largest_change(*values)
            (part.retyped if other_type and change == 0 else part.moved).append(name)
            part.largest = max(part.largest, change, key=lambda x: (x != x, x))  # NaN counts
    if all(len(one.alone) + len(one.reshaped) == len(one.names) for one in parts.values()):
        raise FrostlineError(
            f"{before} and {after} have no weight of the same name and shape: give two checkpoints of one model."
        )
    return [*parts.values()]


def _weights(folder: str | Path) -> dict[str, Source]:
    """The weights of a checkpoint by the name that transformers gives them."""
    found = dict[str, Source]()
    for source, _, _ in shapes_in(checkpoint_files(str(folder))):
        name = source.key
        for old, new in OLD_NAMES.items():
            name = name.replace(old, new)
        if not name.endswith(CONSTANTS):
            found[name] = source
    return found


def _prefix(base: Iterable[str], whole: Iterable[str]) -> str:
    """What stands before the names of a model without a head in the names of one with a head; mostly nothing."""
    names = set(whole)
    counts = {
        one: sum(one + name in names for name in base) for one in ("", *{f"{name.split('.')[0]}." for name in names})
    }
    return max(counts, key=lambda one: counts[one])


def _largest_change(one: Tensor, other: Tensor) -> float:
    """The largest difference of two numbers at the same place. Only a block at a time is held in another type."""
    old, new = one.flatten(), other.flatten()
    places = (slice(n, n + BLOCK) for n in range(0, len(old), BLOCK))
    changes = [float((new[some].double() - old[some].double()).abs().max()) for some in places]
    return max(changes, key=lambda x: (x != x, x), default=0.0)


class AuditCallback(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """An audit for transformers' Trainer: ``Trainer(..., callbacks=[frostline.AuditCallback()])``.

    What is found is logged at the end: wrong findings as warnings, the rest as information.

    Args:
        steps: How many steps are watched; None: all.

    Attributes:
        result: A :class:`TrainingAudit`; None before the end.
    """

    def __init__(self, steps: int | None = None) -> None:
        self.steps = steps
        self.watch: audit | None = None

    @property
    def result(self) -> TrainingAudit | None:
        """What was found."""
        return self.watch.result if self.watch else None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **_: Any) -> None:
        """Begin."""
        if self.watch:
            self.watch.close()  # of a training that ended in an error
        self.watch = audit(model).__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End after enough steps."""
        if self.watch and self.steps is not None and self.watch.steps >= self.steps:
            self.on_train_end(args, state, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End."""
        if self.watch and self.watch.result is None:
            self.watch.__exit__(None)
            if (result := self.watch.result) is not None:
                for finding in result.findings:
                    LOG.log(logging.WARNING if finding.wrong else logging.INFO, "%s", finding)
                LOG.info("%s", result.verdict)
