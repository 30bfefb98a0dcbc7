"""Values of k and names of ways that are relative to L, the number of layers: ``0..L/2, full``, ``transferred-0..L``."""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from frostline import FrostlineError
from frostline.data.parsing import comma_separated
from frostline.statistics.recipe import FULL, NAMED, Recipe
from frostline.training.ways.names import NAMED_WAYS, NUMBERED_WAYS

TERM = r"(?:\d+|\d*L)(?:/[1-9]\d*)?"  # 3, L, 2L/3
TERM_PARTS = re.compile(r"(?P<factor>\d*)(?P<layers>L?)(/(?P<divisor>\d+))?")
RANGE = re.compile(rf"((?P<kind>[a-z][a-z0-9-]*)-)?(?P<first>{TERM})(\.\.(?P<last>{TERM})(:(?P<step>[1-9]\d*))?)?")
WORDS = (FULL, NAMED, *NAMED_WAYS)


def tune_values(expression: str | Sequence[Any], layers: int) -> list[Recipe]:
    """Values of k from terms separated by commas, or from a list of terms.

    ``0..L/2, full`` is every k from 0 to half of the layers, and full fine-tuning. ``0..L:2`` is every second k. ``2L/3`` is two
    thirds of the layers. Fractions are rounded down. The result has numbers first, in ascending order and without duplicates.
    ``lora-0..L/2`` is one way to tune for each of these numbers. ``transferred-L`` is full fine-tuning.

    Args:
        expression: The terms, as text or as a list.
        layers: The number of layers of the model, L.

    Raises:
        FrostlineError: A term cannot be read.
    """
    text = expression if isinstance(expression, str) else ",".join(map(str, expression))
    found: list[Recipe] = []
    for part in comma_separated(text):
        with suppress(ValueError):  # such as L/2 and 0..L
            recipe = Recipe(part)
            if recipe.k is not None or recipe in WORDS:
                found.append(recipe)
                continue
        match = RANGE.fullmatch(part)
        if match is None or match["kind"] not in (None, *NUMBERED_WAYS):
            raise FrostlineError(
                f"--tune {part!r} is not a number of layers: give numbers, shares of L such as L/2, ranges such as 0..L or "
                "0..L:2, full, named, or ways to tune such as lora-2, separated by commas."
            )
        first, last = (_term_value(match[name] or match["first"], layers) for name in ("first", "last"))
        numbers = range(first, last + 1, int(match["step"] or 1))
        found += [_way(match["kind"], k, layers) if match["kind"] else Recipe(k) for k in numbers]
    ks = sorted({one.k for one in found if one.k is not None})
    return [*map(Recipe, ks), *dict.fromkeys(one for one in found if one.k is None)]


def _way(kind: str, count: int, layers: int) -> Recipe:
    return FULL if kind == "transferred" and count >= layers else Recipe(f"{kind}-{count}")


def _term_value(term: str, layers: int) -> int:
    match = TERM_PARTS.fullmatch(term)
    assert match is not None
    factor = int(match["factor"] or 1) * (layers if match["layers"] else 1)
    return factor // int(match["divisor"] or 1)
