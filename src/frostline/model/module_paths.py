"""Find the modules that ``--tune-modules`` names.

A name is one or more whole, consecutive segments of a module's path. ``layer.1`` stands for ``bert.encoder.layer.1`` and
everything inside it, but not for ``layer.10``.
"""

from collections.abc import Iterable

from frostline import FrostlineError
from frostline.data.wording import similar_names
from frostline.model.anatomy import Anatomy


def parameters_in(anatomy: Anatomy, modules: Iterable[str]) -> frozenset[str]:
    """Names of the parameters in these modules and in all modules inside them.

    Raises:
        FrostlineError: A name matches no module. The message lists the nearest names.
    """
    found: set[str] = set()
    for module in modules:
        inside = {name for name in anatomy.places if _matches(module, module_of(name))}
        if not inside:
            raise _no_match(anatomy, module)
        found |= inside
    return frozenset(found)


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


def _matches(module: str, path: str) -> bool:
    """Whether ``path`` contains the whole segments of ``module``, one after the other."""
    return f".{module}." in f".{path}."


def _no_match(anatomy: Anatomy, module: str) -> FrostlineError:
    """The error for a name that matches no module. It lists the nearest names with as many segments, or with one fewer."""
    paths = {module_of(name) for name in anatomy.places}

    def nearest(length: int) -> list[str]:
        segments = [path.split(".") for path in paths]
        known = {".".join(path[n : n + length]) for path in segments for n in range(len(path) - length + 1)}
        return similar_names(module, sorted(known), limit=3)

    length = len(module.split("."))
    near = nearest(length) or nearest(length - 1) or sorted({path.split(".")[0] for path in paths})
    return FrostlineError(
        f"tune_modules: no module with parameters is called {module!r}; the nearest are {', '.join(near)}. "
        f"Give module paths or whole segments of them; the {anatomy.count} layers are {anatomy.path}.0 to "
        f"{anatomy.path}.{anatomy.count - 1}, numbered from 0."
    )
