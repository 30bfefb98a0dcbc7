"""Modules found by their paths, as ``--tune-modules`` names them.

A name is one or more whole segments of a module's path, in order: ``layer.1`` is ``bert.encoder.layer.1`` with everything
inside, never ``layer.10``.
"""

import difflib
from collections.abc import Iterable

from frostline import FrostlineError
from frostline.model.anatomy import Anatomy


def parameters_in(anatomy: Anatomy, modules: Iterable[str]) -> frozenset[str]:
    """Names of the parameters in these modules and in everything inside them.

    Raises:
        FrostlineError: A name matches no module; the message lists the nearest that exist.
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


def topmost_modules(names: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """The topmost modules that hold parameters of ``names`` and none of ``others``, in the order of ``names``."""
    excluded = {path for name in others for path in _paths_down_to(name)}
    return tuple(dict.fromkeys(next(path for path in _paths_down_to(name) if path not in excluded) for name in names))


def _matches(module: str, path: str) -> bool:
    """Whether the segments of ``module`` occur, whole and in this order, in ``path``."""
    return f".{module}." in f".{path}."


def _no_match(anatomy: Anatomy, module: str) -> FrostlineError:
    """The error with the nearest names of as many segments as were given, or of one fewer."""
    paths = {module_of(name) for name in anatomy.places}

    def nearest(length: int) -> list[str]:
        parts = [path.split(".") for path in paths]
        known = {".".join(path[n : n + length]) for path in parts for n in range(len(path) - length + 1)}
        return difflib.get_close_matches(module, sorted(known), 3)

    length = len(module.split("."))
    near = nearest(length) or nearest(length - 1) or sorted({path.split(".")[0] for path in paths})
    return FrostlineError(
        f"tune_modules: no module that holds parameters is called {module!r}; the nearest are {', '.join(near)}. "
        f"Give module paths or whole segments of them; the {anatomy.count} layers are {anatomy.path}.0 to "
        f"{anatomy.path}.{anatomy.count - 1}, numbered from 0."
    )


def _paths_down_to(name: str) -> list[str]:
    """The paths of the modules around a parameter, the outermost first, and the parameter's own name at the end."""
    segments = name.split(".")
    return [".".join(segments[: n + 1]) for n in range(len(segments))]
