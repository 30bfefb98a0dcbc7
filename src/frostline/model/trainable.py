"""What a run trains: the last k layers, everything, or parts that are named by the paths of their modules.

A named part is some whole segments of a module's path, one after the other: ``layer.1`` is ``bert.encoder.layer.1``
with what is in it, never ``layer.10``. The classifier is trained whether it is named or not, since it is drawn anew.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence, Set

from frostline import FrostlineError
from frostline.model.anatomy import HEAD, LAYER, POOLER, Anatomy
from frostline.training.fields import Tune
from frostline.training.specification import RunSpec


def trained(spec: RunSpec, anatomy: Anatomy) -> frozenset[str]:
    """Names of the parameters that a run trains."""
    return parameters_of(spec.tune, anatomy, spec.tune_modules, tune_pooler=spec.tune_pooler)


def depth(spec: RunSpec, anatomy: Anatomy) -> int | None:
    """Layers from the lowest one that a run trains something of to the top; None: embeddings are trained."""
    return anatomy.depth(trained(spec, anatomy))


def parameters_of(
    tune: Tune, anatomy: Anatomy, modules: Sequence[str] | None = None, *, tune_pooler: bool = True
) -> frozenset[str]:
    """Names of the parameters trained at one value of ``tune``; ``modules`` are the parts that ``named`` stands for."""
    if tune == "named":
        assert modules
        return named(anatomy, modules) | {name for name, place in anatomy.places.items() if place == HEAD}
    return anatomy.tuned(None if tune == "all" else tune, tune_pooler=tune_pooler)


def named(anatomy: Anatomy, modules: Iterable[str]) -> frozenset[str]:
    """Names of the parameters in these modules and in what is in them.

    Raises:
        FrostlineError: one of them is none, with the nearest that are.
    """
    found: set[str] = set()
    for part in modules:
        inside = {name for name in anatomy.places if _matches(part, owner(name))}
        if not inside:
            raise _nothing_there(anatomy, part)
        found |= inside
    return frozenset(found)


def owner(parameter: str) -> str:
    """The path of the module that a parameter stands in."""
    return parameter.rpartition(".")[0]


def _matches(part: str, path: str) -> bool:
    """Whether the segments of ``part`` stand, whole and in this order, one after the other in ``path``."""
    return f".{part}." in f".{path}."


def _nothing_there(anatomy: Anatomy, part: str) -> FrostlineError:
    """With what is nearest among as many segments as were given, or one fewer (a parameter's module), or all."""
    paths = {owner(name) for name in anatomy.places}

    def nearest(length: int) -> list[str]:
        parts = [path.split(".") for path in paths]
        known = {".".join(path[n : n + length]) for path in parts for n in range(len(path) - length + 1)}
        return difflib.get_close_matches(part, sorted(known), 3)

    length = len(part.split("."))
    near = nearest(length) or nearest(length - 1) or sorted({path.split(".")[0] for path in paths})
    return FrostlineError(
        f"tune_modules: no module that holds parameters is called {part!r}; the nearest are {', '.join(near)}. "
        f"Give module paths or whole segments of them; the {anatomy.count} layers are {anatomy.path}.0 to "
        f"{anatomy.path}.{anatomy.count - 1}, numbered from 0."
    )


def remarks(spec: RunSpec, anatomy: Anatomy, new: Set[str]) -> Iterator[str]:
    """What the user of named parts should know before they are trained; ``new`` are the parameters drawn anew."""
    if spec.tune_modules is None:
        return
    given, names = named(anatomy, spec.tune_modules), trained(spec, anatomy)
    if unnamed := topmost(sorted(names - given), given):
        yield f"Named parts: trained although not named, since it is drawn anew: {', '.join(unnamed)}."
    if pooler := topmost(sorted(name for name in new - names if anatomy.places[name] == POOLER), names):
        yield f"Named parts: drawn anew, but not trained unless it is named: {', '.join(pooler)}."
    if cost := _cost(anatomy, names):
        yield f"Named parts: {cost}"


def _cost(anatomy: Anatomy, names: Set[str]) -> str | None:
    """What named parts cost that are not the last layers; None where they are."""
    touched = len({anatomy.places[name] for name in names if anatomy.places[name].startswith(LAYER)})
    count, reach = anatomy.count, anatomy.depth(names)
    if reach is None:
        return f"embeddings are among them, so nothing is frozen below: all {count} layers run in each step, nothing is saved."
    if reach > touched:
        instead = "layer" if touched == 1 else f"{touched} layers"
        return (
            f"they are not the last layers: {reach} of {count} layers must run in each step although only {touched} of "
            f"them {'is' if touched == 1 else 'are'} trained; tuning the last {instead} instead would run only {touched}."
        )
    if not {name for name in anatomy.tuned(reach) if anatomy.places[name].startswith(LAYER)} <= names:
        last = "layer" if reach == 1 else f"{reach} layers"
        return f"they are only some of the last {last}, which must run whole in each step: tuning all of them costs little more."
    return None


def topmost(names: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """The topmost modules that hold parameters of ``names`` and none of ``others``, in the order of ``names``."""
    barred = {path for name in others for path in _upwards(name)}
    return tuple(dict.fromkeys(next(path for path in _upwards(name) if path not in barred) for name in names))


def _upwards(name: str) -> list[str]:
    """Paths of the modules around a parameter, the outermost first, and its own name at the end."""
    segments = name.split(".")
    return [".".join(segments[: n + 1]) for n in range(len(segments))]
