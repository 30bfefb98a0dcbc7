"""Numbers as the page and the card print them. What is not known is a dash, never a number."""

import os
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import PurePath
from typing import Any

from frostline.data.folding import lasting

UNKNOWN = "–"
UNBROKEN = "\u00a0"  # no line ends between a number and its unit


def score(value: float | None) -> str:
    """A metric, three decimals."""
    return UNKNOWN if value is None else f"{value:.3f}".replace("-", "−")


def percent(share: float | None) -> str:
    """A share, as per cent with one decimal."""
    return UNKNOWN if share is None else f"{100 * share:.1f}{UNBROKEN}%".replace("-", "−")


def difference(value: float | None) -> str:
    """A difference of two scores, with its sign."""
    return UNKNOWN if value is None else f"{value:+.3f}".replace("-", "−")


def difference_interval(low: float | None, high: float | None) -> str:
    """The interval of a difference."""
    return UNKNOWN if low is None or high is None else f"{difference(low)} to {difference(high)}"


def p_value(value: float | None) -> str:
    """A p-value; very small ones only as such."""
    return UNKNOWN if value is None else "< 0.001" if value < 0.0005 else f"{value:.3f}"


def count(value: float | None) -> str:
    """A whole number."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def yes_no(value: bool | None) -> str:
    """Whether something is so."""
    return UNKNOWN if value is None else "yes" if value else "no"


def score_interval(low: float | None, high: float | None) -> str:
    """The interval of a score."""
    return UNKNOWN if low is None or high is None else f"{score(low)} to {score(high)}"


def percent_interval(low: float | None, high: float | None) -> str:
    """The interval of a share; a side that has no bound says so."""
    if low is None and high is None:
        return UNKNOWN
    sides = ("no bound" if side is None else percent(side).removesuffix(f"{UNBROKEN}%") for side in (low, high))
    return f"{' to '.join(sides)}{UNBROKEN}%"


def seconds(value: float | None) -> str:
    """A duration as one says it."""
    return UNKNOWN if value is None else lasting(value).replace(" ", UNBROKEN)


def size(count: float | None) -> str:
    """Bytes, in powers of ten."""
    return _scaled(count, ("B", "kB", "MB", "GB", "TB"))


def parameters(count: int | None) -> str:
    """How many parameters."""
    return _scaled(count, ("", "k", "M", "G", "T"))


def _scaled(count: float | None, units: Sequence[str]) -> str:
    """A count in three digits with its unit."""
    if count is None:
        return UNKNOWN
    power = 0
    while count >= 999.5 and power < len(units) - 1:
        count, power = count / 1000, power + 1
    digits = 0 if power == 0 or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:.{digits}f}{UNBROKEN}{units[power]}".rstrip()


def times(factor: float | None) -> str:
    """How many times cheaper."""
    if factor is None:
        return UNKNOWN
    return f"{factor:.0f}×" if factor >= 9.95 else f"{factor:.1f}×"


def ratio(value: float | None) -> str:
    """How many times one is the other."""
    return UNKNOWN if value is None else f"{value:.2f}"


def rate(value: float) -> str:
    """A learning rate, as short as it is exact."""
    return f"{value:g}" if value >= 0.001 else f"{Decimal(repr(value)):e}"


def trainable(name: str) -> str:
    """k in words: what the results table calls ``last 0``, ``last 3``, ``all`` or ``named``."""
    return {"last 0": "head only", "last 1": "last layer", "named": "named parts"}.get(name, name)


def layers(numbers: Sequence[int]) -> str:
    """Layers in a row: ``5``, ``3 to 6``."""
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def depth(name: str) -> str:
    """k as an axis labels it: 0, 3, all, named."""
    return name.removeprefix("last ")


def metric(name: str) -> str:
    """A metric as one says it."""
    known = {
        "f1": "F1",
        "f1_macro": "macro F1",
        "matthews_correlation": "Matthews correlation",
        "spearmanr": "Spearman’s ρ",
    }
    return known.get(name, name.replace("_", " "))


def model_name(model: str) -> str:
    """A hub name as it is; of a folder only the end that says something, so that no path of a machine is shown."""
    if not (os.path.isabs(model) or model.startswith((".", "~")) or "\\" in model):
        return model
    parts = [part for part in PurePath(model).parts if part not in ("model", "/", ".", "..", "~")]
    return parts[-1] if parts else "model"


def target(share: float) -> str:
    """A target share as a round number of per cent."""
    return f"{100 * share:g}{UNBROKEN}%"


def goal(point: Mapping[str, Any]) -> str:
    """Where enough begins, at an operating point: a share, or a difference."""
    return f"−{point['margin']:g}" if point["margin"] is not None else target(point["target"])


def unbroken(sentence: str) -> str:
    """A sentence in which no line ends before a per cent sign."""
    return re.sub(r"(?<=\d) (?=%)", UNBROKEN, sentence)


def cell_of(size: Mapping[str, Any], name: str | None) -> Mapping[str, Any] | None:
    """The cell of a train size by its printed k."""
    return next((cell for cell in size["cells"] if cell["trainable"] == name), None)
