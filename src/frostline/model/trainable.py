"""What a run trains: the last k layers, everything, or modules that are named.

A new way to choose what is trained is a new value of ``frostline.model.tune.Tune`` and a branch of
:meth:`Trainable.parameters`. Everything else follows from the names of the parameters: the cut, the exactness check, the cost and
the audit.
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass

from frostline import FrostlineError
from frostline.model.anatomy import FINAL_NORM, HEAD, LAYER, POOLER, Anatomy
from frostline.model.module_paths import parameters_in, topmost_modules
from frostline.model.tune import Tune


@dataclass(frozen=True)
class Trainable:
    """The choice of what is trained. The classifier head is always trained, because it is newly initialized.

    Args:
        tune: The number of last layers; ``all`` for everything; ``named`` for ``modules``.
        modules: Module paths or whole segments of them, for ``named``.
        pooler: Whether a pooler is trained with the head.
    """

    tune: Tune
    modules: tuple[str, ...] | None = None
    pooler: bool = True

    @classmethod
    def last(cls, layers: int | None, *, pooler: bool = True) -> "Trainable":
        """The last ``layers`` layers; None is full: everything."""
        return cls("all" if layers is None else layers, pooler=pooler)

    def parameters(self, anatomy: Anatomy) -> frozenset[str]:
        """Names of the trained parameters.

        The final norm belongs to the last layer, so it is frozen at k = 0.

        Raises:
            FrostlineError: More layers than the model has, or a name that matches no module.
        """
        if self.tune == "all":
            return frozenset(name for name, place in anatomy.places.items() if self.pooler or place != POOLER)
        if self.tune == "named":
            assert self.modules
            return parameters_in(anatomy, self.modules) | _in_places(anatomy, {HEAD})
        if not 0 <= self.tune <= anatomy.count:
            raise FrostlineError(
                f"{self.tune} tuned layers were requested, but the model has {anatomy.count}: "
                f"give numbers from 0 to {anatomy.count}, or `all`."
            )
        layers = {f"{LAYER}{n}" for n in range(anatomy.count - self.tune, anatomy.count)}
        return _in_places(anatomy, {HEAD, *layers, *[POOLER] * self.pooler, *[FINAL_NORM] * bool(layers)})

    def depth(self, anatomy: Anatomy) -> int | None:
        """The number of layers from the lowest trained one to the top; None if embeddings are trained."""
        return anatomy.depth(self.parameters(anatomy))

    def notes(self, anatomy: Anatomy, new: Set[str]) -> Iterator[str]:
        """What a user should know about named modules before they are trained; ``new`` are newly initialized parameters."""
        if self.modules is None:
            return
        named, trained = parameters_in(anatomy, self.modules), self.parameters(anatomy)
        if unnamed := topmost_modules(sorted(trained - named), named):
            yield f"Named parts: also trained, because they are newly initialized: {', '.join(unnamed)}."
        frozen = sorted(name for name in new - trained if anatomy.places[name] == POOLER)
        if pooler := topmost_modules(frozen, trained):
            yield f"Named parts: newly initialized, but not trained unless named: {', '.join(pooler)}."
        if note := _cost_note(anatomy, trained):
            yield f"Named parts: {note}"


def _in_places(anatomy: Anatomy, places: Set[str]) -> frozenset[str]:
    return frozenset(name for name, place in anatomy.places.items() if place in places)


def _cost_note(anatomy: Anatomy, names: Set[str]) -> str | None:
    """What named modules cost if they are not simply the last layers; else None."""
    layers = {anatomy.places[name] for name in names if anatomy.places[name].startswith(LAYER)}
    count, reach, trained = anatomy.count, anatomy.depth(names), len(layers)
    if reach is None:
        return f"embeddings are among them, so nothing is frozen below: all {count} layers run in each step."
    if reach > trained:
        return (
            f"they are not the last layers: {reach} of {count} layers must run in each step although only {trained} of "
            f"them {'is' if trained == 1 else 'are'} trained. Tuning the last {_layers(trained)} instead would run only "
            f"{trained}."
        )
    if not _in_places(anatomy, layers) <= names:
        return (
            f"they are only a part of the last {_layers(reach)}, which must run in each step. Tuning all of "
            "them costs little more."
        )
    return None


def _layers(count: int) -> str:
    return "layer" if count == 1 else f"{count} layers"
