"""What a run trains, by its one name: ``last 2``, ``head only``, ``full``, ``named``, or that of a way such as ``lora-2``.

Where several training lengths are compared, they are part of the name: ``last 2 for 10 epochs``.

Settings, tables, files and messages all use this type. Imports no torch, because settings are read without it.
"""

import re
from contextlib import suppress
from operator import index
from typing import Any, Final, Self, SupportsIndex

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Recipe(str):
    """The name of what a run trains. It is a string in JSON, CSV and TOML, and equal to its printed form.

    ``Recipe`` reads all forms: 2, ``2``, ``last-2`` and ``last 2``; 0, ``head``, ``head-only`` and ``head only``; ``full`` and
    ``all``; ``named``; and names of ways. Each may end in a training length: ``last 2 for 10 epochs``.
    """

    __slots__ = ()

    def __new__(cls, given: str | SupportsIndex) -> Self:
        """Read a recipe.

        Raises:
            ValueError: It cannot be read.
        """
        return super().__new__(cls, _name_of(given))

    @property
    def trained(self) -> "Recipe":
        """What is trained, without the training length."""
        return Recipe(self.partition(" for ")[0])

    @property
    def epochs(self) -> float | None:
        """The training length in the name; None where only one is compared."""
        return float(self.partition(" for ")[2].split()[0]) if " for " in self else None

    @property
    def length(self) -> str:
        """The training length in words, such as ``10 epochs``; empty where only one is compared."""
        return str(self.partition(" for ")[2])

    def for_epochs(self, epochs: float | None) -> "Recipe":
        """The same with this training length in its name; None: with none."""
        return self.trained if epochs is None else Recipe(f"{self.trained} for {float(epochs)!r} epochs")

    @property
    def k(self) -> int | None:
        """The number of last layers that are trained; None for ``full``, ``named`` and ways, which have none."""
        return 0 if self.startswith("head only") else int(self.split()[1]) if self.startswith("last ") else None

    @property
    def is_full(self) -> bool:
        """Whether this is full fine-tuning, of any length."""
        return self.trained == FULL

    @property
    def is_k(self) -> bool:
        """Whether this is a number of last layers, or full fine-tuning."""
        return self.k is not None or self.is_full

    @property
    def is_way(self) -> bool:
        """Whether this is the name of a way to tune (:mod:`frostline.model.ways`)."""
        return not self.is_k and self.trained != NAMED

    @property
    def order(self) -> tuple[bool, bool, bool, int, str, float]:
        """The order in tables: k = 0, 1, ..., full fine-tuning, ways, named modules; of each the shortest training first."""
        return self.trained == NAMED, self.is_way, self.is_full, self.k or 0, str(self.trained), self.epochs or 0.0

    @property
    def short(self) -> str:
        """As a user types it and an axis shows it: ``0``, ``2``, ``full``."""
        return str(self.trained) if self.k is None else str(self.k)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls, serialization=core_schema.to_string_ser_schema())


def _name_of(given: str | SupportsIndex) -> str:
    text = given if isinstance(given, str) else ""
    if length := re.fullmatch(r"(.+) for (\d+(?:\.\d+)?(?:e[+-]\d+)?) epochs?", text):
        epochs = repr(float(length[2])).removesuffix(".0")
        return f"{_name_of(length[1])} for {epochs} {'epoch' if epochs == '1' else 'epochs'}"
    if number := re.fullmatch(r"(?:last[ -])?(\d{1,9})", text):
        given = int(number[1])
    if isinstance(given, str):
        if text in ("head", "head-only", "head only"):
            return "head only"
        if text in ("all", "full"):
            return "full"
        if re.fullmatch("[a-z][a-z0-9-]*", text):
            return text
    elif not isinstance(given, bool | float):
        with suppress(TypeError):  # an array has no one number
            if (k := index(given)) >= 0:
                return f"last {k}" if k else "head only"
    raise ValueError("give numbers of layers such as 2, head, full, named, or names of ways such as lora-2")


HEAD_ONLY: Final = Recipe(0)  # the newly initialized head is trained, and no layer
FULL: Final = Recipe("full")  # full fine-tuning: every layer and the embeddings
AUTO: Final = "auto"  # in a search every k, so no recipe has this name
NAMED: Final = Recipe("named")  # the modules of ``--tune-modules``, and the head
