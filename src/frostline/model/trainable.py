"""Choose the parameters that a run trains: the last k layers, other layers, everything, or named modules.

To add a new choice, add a value to a field of :class:`Trainable` and a branch to :meth:`Trainable.parameters`. The cut, the
exactness check, the cost and the audit follow from the names that this method returns.
"""

import random
from collections.abc import Iterator, Set
from dataclasses import dataclass

from frostline import FrostlineError
from frostline.model.anatomy import Anatomy, parameters_in, topmost_modules
from frostline.model.terms import FINAL_NORM, HEAD, POOLER, layer_number, layer_place
from frostline.statistics.recipe import FULL, NAMED, Recipe


@dataclass(frozen=True)
class Trainable:
    """Which part of a model is trained. The classifier head is trained, because it is newly initialized.

    Attributes:
        recipe: The number of last layers to train, k; ``full`` to train everything; ``named`` to train ``modules``.
        modules: Module paths, or whole segments of paths, for ``named``.
        pooler: Whether the pooler is trained with the last layers or with everything.
        layers: Which layers these are: the ``last``, ``first`` or ``middle`` ones, ``spread`` over the model at equal distances,
            or ``random``. With each, as many parameters are trained.
        only: ``all`` of their parameters, their ``biases``, the parameters of their ``norms``, or the ``matrices`` of their
            linear modules, without embeddings. Head and pooler are trained as a whole.
        seed: Draws the random layers.
        head: Whether the head is trained; False if nothing is.
        pooler_with_modules: Whether the pooler is trained with ``modules``, too.
    """

    recipe: Recipe
    modules: tuple[str, ...] | None = None
    pooler: bool = True
    layers: str = "last"
    only: str = "all"
    seed: int = 0
    head: bool = True
    pooler_with_modules: bool = False

    def parameters(self, anatomy: Anatomy) -> frozenset[str]:
        """Names of the trained parameters.

        The final norm is trained with the last layer, so it is frozen at k = 0.

        Raises:
            FrostlineError: The model has fewer layers, or a name matches no module.
        """
        if self.recipe == NAMED:
            assert self.modules
            beside = {HEAD, *[POOLER] * self.pooler_with_modules}
            return parameters_in(anatomy, self.modules) | _in_places(anatomy, beside)
        head = _in_places(anatomy, {*[HEAD] * self.head, *[POOLER] * self.pooler})
        return head | self._kept(self._below_head(anatomy), anatomy)

    def _below_head(self, anatomy: Anatomy) -> frozenset[str]:
        """All parameters of the chosen layers, with the embeddings for full fine-tuning."""
        if self.recipe == FULL:
            return _in_places(anatomy, {*anatomy.places.values()} - {HEAD, POOLER})
        assert self.recipe.k is not None
        if self.recipe.k > anatomy.count:
            raise FrostlineError(
                f"{self.recipe.k} tuned layers were requested, but the model has {anatomy.count}: "
                f"give numbers from 0 to {anatomy.count}, or `full`."
            )
        count, k = anatomy.count, self.recipe.k
        if self.layers == "random":
            numbers = random.Random(self.seed).sample(range(count), k)
        elif self.layers == "spread":
            numbers = [count - 1 - n * count // k for n in range(k)]
        else:
            lowest = {"last": count - k, "first": 0, "middle": (count - k) // 2}[self.layers]
            numbers = list(range(lowest, lowest + k))
        return _in_places(anatomy, {*map(layer_place, numbers), *[FINAL_NORM] * bool(numbers)})

    def _kept(self, names: frozenset[str], anatomy: Anatomy) -> frozenset[str]:
        """Those of the parameters that ``only`` keeps."""
        if self.only == "norms":
            return names & anatomy.norms
        if self.only == "matrices":
            return frozenset(n for n in names & anatomy.matrices if layer_number(anatomy.places[n]) is not None)
        return frozenset(name for name in names if self.only == "all" or name.endswith(".bias"))

    def depth(self, anatomy: Anatomy) -> int | None:
        """How many of the last layers must run in training; None if embeddings are trained (:meth:`Anatomy.depth`)."""
        return anatomy.depth(self.parameters(anatomy))

    def notes(self, anatomy: Anatomy, new: Set[str]) -> Iterator[str]:
        """Notes for the user about named modules, before training.

        Args:
            anatomy: The model's layers.
            new: Names of newly initialized parameters.
        """
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
    """Names of the parameters in these places."""
    return frozenset(name for name, place in anatomy.places.items() if place in places)


def _cost_note(anatomy: Anatomy, names: Set[str]) -> str | None:
    """What it costs to train the parameters ``names``; None if they are exactly the last layers."""
    layers = {place for name in names if layer_number(place := anatomy.places[name]) is not None}
    count, depth, trained = anatomy.count, anatomy.depth(names), len(layers)
    if depth is None:
        return f"they include embeddings, so all {count} layers run in each step."
    if depth > trained:
        return (
            f"they are not the last layers: {depth} of {count} layers must run in each step although only {trained} of "
            f"them {'is' if trained == 1 else 'are'} trained. Tuning the last {_layers(trained)} instead would run only "
            f"{trained}."
        )
    if not _in_places(anatomy, layers) <= names:
        return (
            f"they are only a part of the last {_layers(depth)}, which must run in each step. Tuning all of "
            "them costs little more."
        )
    return None


def _layers(count: int) -> str:
    """The words that follow "the last"."""
    return "layer" if count == 1 else f"{count} layers"
