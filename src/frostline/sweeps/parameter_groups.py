"""What a plan shows of the parameters of runs: their groups, trained and frozen, and notes on what is unusual about them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from torch import nn

from frostline.data.wording import ranges
from frostline.model.anatomy import Anatomy, parameters_in, topmost_modules
from frostline.model.terms import LAYER, POOLER, layer_number
from frostline.statistics.recipe import Recipe
from frostline.training.experiment import Experiment
from frostline.training.run import Run
from frostline.training.start import matrix_of, planned
from frostline.training.updates import optimizer_groups


@dataclass(frozen=True)
class Group:
    """Parameters with the same treatment: a group of the optimizer, or the frozen parameters of one place."""

    trained: bool
    places: tuple[str, ...]  # embeddings, layer 4 .. 5, final norm, pooler, head
    parameters: int
    tensors: int
    learning_rates: tuple[float, ...]  # all learning rates of the grid; empty if the group is frozen
    weight_decay: float | None
    modules: tuple[str, ...]  # the topmost modules with no other parameters; paths of consecutive layers are merged


def groups_by_tune(runs: Sequence[Run], experiment: Experiment) -> dict[Recipe, tuple[Group, ...]]:
    """The groups of each value of ``tune``. Those of its first seed, if it trains other layers with each seed."""
    alike: dict[Recipe, dict[float | None, Run]] = {}
    for run in runs:
        alike.setdefault(run.recipe, {}).setdefault(run.learning_rate, run)
    found = {}
    for tune, by_rate in alike.items():
        some = list(by_rate.values())
        own = experiment.for_run(some[0]).pretrained
        found[tune] = groups_of(some, own.model, own.anatomy)
    return found


def notes_on_seeds(runs: Sequence[Run], anatomy: Anatomy) -> Iterator[str]:
    """A note on each value of ``tune`` that trains other layers with each seed."""
    alike: dict[Recipe, dict[int, Run]] = {}
    for run in runs:
        alike.setdefault(run.recipe, {}).setdefault(run.seed, run)
    for by_seed in alike.values():
        first, *others = by_seed.values()
        if not (others and first.way.drawn):
            continue
        parts = []
        for seed, run in by_seed.items():
            places = {anatomy.places[name] for name in run.parameters(anatomy)}
            layers = {place: number for place in places if (number := layer_number(place)) is not None}
            parts.append(f"{', '.join(merged_paths(sorted(layers, key=layers.__getitem__), LAYER))} (seed {seed})")
        yield (
            f"{first.recipe} trains other layers with each seed: {'; '.join(parts)}. The plan shows the parameters of seed "
            f"{first.seed}."
        )


def notes_on_modules(run: Run, anatomy: Anatomy, new: Set[str]) -> Iterator[str]:
    """Notes on a run that trains named modules. ``new`` are the names of newly initialized parameters."""
    named, trained = parameters_in(anatomy, run.way.modules or ()), run.parameters(anatomy)
    if unnamed := topmost_modules(sorted(trained - named), named):
        yield f"Named parts: also trained, because they are newly initialized: {', '.join(unnamed)}."
    frozen = sorted(name for name in new - trained if anatomy.places[name] == POOLER)
    if pooler := topmost_modules(frozen, trained):
        yield f"Named parts: newly initialized, but not trained unless named: {', '.join(pooler)}."
    layers = {place for name in trained if layer_number(place := anatomy.places[name]) is not None}
    count, depth, last = anatomy.count, anatomy.depth(trained), len(layers)
    if depth is None:
        yield f"Named parts: they include embeddings, so all {count} layers run in each step."
    elif depth > last:
        yield (
            f"Named parts: they are not the last layers: {depth} of {count} layers must run in each step although only "
            f"{last} of them {'is' if last == 1 else 'are'} trained. Tuning the last {_layers(last)} instead would run only "
            f"{last}."
        )
    elif not anatomy.within(layers) <= trained:
        yield (
            f"Named parts: they are only a part of the last {_layers(depth)}, which must run in each step. Tuning all of "
            "them costs little more."
        )


def _layers(count: int) -> str:
    """The words that follow "the last"."""
    return "layer" if count == 1 else f"{count} layers"


def groups_of(runs: Sequence[Run], model: nn.Module, anatomy: Anatomy) -> tuple[Group, ...]:
    """The groups of runs that differ only in their learning rate: first those of the optimizer, then the frozen ones.

    A matrix that gets a low-rank update is frozen itself, so it counts beside its factors, as in PEFT.
    """
    parameters = dict(model.named_parameters())
    names, given = runs[0].parameters(anatomy), planned(runs[0], model, anatomy)
    known = {id(p): name for name, p in given.items()}
    sizes = {name: p.numel() for name, p in {**parameters, **given}.items()}
    found = []
    for same in zip(*(optimizer_groups(run, anatomy, given) for run in runs), strict=True):
        inside = [known[id(p)] for p in same[0]["params"]]
        rates = tuple(dict.fromkeys(group["lr"] for group in same))
        found.append(_group(inside, names, rates, same[0]["weight_decay"], sizes, anatomy))
    frozen = frozenset(parameters) - given.keys()
    for kind in dict.fromkeys(_kind(anatomy.places[name]) for name in parameters):
        inside = [name for name in parameters if name in frozen and _kind(anatomy.places[name]) == kind]
        if inside:
            found.append(_group(inside, frozen, (), None, sizes, anatomy))
    return tuple(found)


def _group(
    inside: Sequence[str],
    alike: frozenset[str],
    rates: tuple[float, ...],
    decay: float | None,
    sizes: Mapping[str, int],
    anatomy: Anatomy,
) -> Group:
    """The group of the parameters ``inside``; ``alike`` are all that change, or all that are frozen."""
    changed = list(dict.fromkeys(map(matrix_of, inside)))
    places = list(dict.fromkeys(anatomy.places[name] for name in changed))
    modules: dict[str, None] = {}
    for place in places:
        others = {name for name, where in anatomy.places.items() if where != place or name not in alike}
        of_place = [name for name in changed if anatomy.places[name] == place]
        modules |= dict.fromkeys(topmost_modules(of_place, others))
    return Group(
        trained=bool(rates),
        places=merged_paths(places, LAYER),
        parameters=sum(sizes[name] for name in inside),
        tensors=len(inside),
        learning_rates=rates,
        weight_decay=decay,
        modules=merged_paths(modules, f"{anatomy.path}."),
    )


def _kind(place: str) -> str:
    return place if layer_number(place) is None else LAYER


def merged_paths(paths: Iterable[str], prefix: str) -> tuple[str, ...]:
    """Merge paths that differ only in the number after ``prefix``, and then paths with the same numbers.

    Examples: ``layer.0 .. 9.output``, ``layer.0 .. 9.{attention, output}``.
    """
    numbers: dict[str, list[int]] = {}  # what follows the number -> the numbers
    found: dict[str, list[str]] = {}  # beginning of a path -> what follows it
    for path in paths:
        number, dot, rest = path.removeprefix(prefix).partition(".")
        if path.startswith(prefix) and number.isdecimal():
            numbers.setdefault(dot + rest, []).append(int(number))
        else:
            found.setdefault(path, [""])
    for rest, several in numbers.items():
        for first, last in ranges(several):
            found.setdefault(f"{prefix}{first}" + f" .. {last}" * (last > first), []).append(rest)
    inside = {head: ", ".join(rest.removeprefix(".") for rest in rests) for head, rests in found.items()}
    return tuple(f"{head}.{{{inside[head]}}}" if len(rests) > 1 else head + rests[0] for head, rests in found.items())
