"""Numbers as pages, tables, sentences and the model card print them. An unknown value is printed as a dash."""

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal

from frostline.data.wording import duration

UNKNOWN, NO_BOUND = "–", "no bound"
UNBROKEN = "\u00a0"  # a space between a number and its unit, where no line breaks


def score(value: float | None) -> str:
    """A score with three decimals."""
    return UNKNOWN if value is None else f"{value:z.3f}".replace("-", "−")


def threshold(probability: float) -> str:
    """A threshold from 0 to 1. It has at least three decimals, and as many as it takes not to look like 0 or 1 unless it is."""
    distance = min(probability, 1 - probability)
    digits = max(3, 1 - math.floor(math.log10(distance))) if distance > 0 else 3
    return f"{probability:.{digits}f}".rstrip("0").ljust(5, "0")


def percent(share: float | None) -> str:
    """A share in percent with one decimal."""
    return UNKNOWN if share is None else f"{percent_number(share)}{UNBROKEN}%"


def percent_number(share: float | None) -> str:
    """A share in percent without the percent sign."""
    return UNKNOWN if share is None else f"{100 * share:z.1f}".replace("-", "−")


def probability(value: float) -> str:
    """A probability in percent, without digits that a simulation does not have."""
    return "more than 99 %" if value > 0.99 else "less than 1 %" if value < 0.01 else f"{100 * value:.0f} %"


def short_probability(value: float | None) -> str:
    """The same for a column of a table: ``>99 %``, ``71 %``."""
    return UNKNOWN if value is None else probability(value).replace("more than ", ">").replace("less than ", "<")


def points(value: float | None) -> str:
    """Hundredths of a score with one decimal."""
    return UNKNOWN if value is None else f"{value:z.1f}".replace("-", "−")


def difference(value: float | None) -> str:
    """A difference of two scores, with its sign and three decimals."""
    return UNKNOWN if value is None else f"{value:+z.3f}".replace("-", "−")


def p_value(value: float | None) -> str:
    """A p-value with three decimals; ``< 0.001`` if it is smaller."""
    return UNKNOWN if value is None else "< 0.001" if value < 0.0005 else f"{value:.3f}"


def count(value: float | None) -> str:
    """A whole number."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def interval(low: float | None, high: float | None, show: Callable[[float], str] = score) -> str:
    """An interval, by default of a score, whose ends are printed with ``show``."""
    if show is percent:
        return percent_interval(low, high)
    return UNKNOWN if low is None or high is None else f"{show(low)} to {show(high)}"


def percent_interval(low: float | None, high: float | None) -> str:
    """The confidence interval of a share; an unbounded side is printed as ``no bound``."""
    if low is None and high is None:
        return UNKNOWN
    sides = (NO_BOUND if side is None else percent_number(side) for side in (low, high))
    return f"{' to '.join(sides)}{UNBROKEN}%"


def seconds(value: float | None) -> str:
    """A duration with its unit."""
    return UNKNOWN if value is None else duration(value).replace(" ", UNBROKEN)


def size(count: float | None) -> str:
    """A number of bytes, in powers of ten."""
    return _scaled(count, ("B", "kB", "MB", "GB", "TB"))


def parameters(count: int | None) -> str:
    """A number of parameters."""
    return _scaled(count, ("", "k", "M", "G", "T"))


def _scaled(count: float | None, units: Sequence[str]) -> str:
    """A count with three significant digits and its unit."""
    if count is None:
        return UNKNOWN
    power = 0
    while count >= 999.5 and power < len(units) - 1:
        count, power = count / 1000, power + 1
    digits = 0 if power == 0 or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:.{digits}f}{UNBROKEN}{units[power]}".rstrip()


def times(factor: float | None) -> str:
    """A factor: ``2.5×``."""
    if factor is not None and 0 < factor < 0.05:
        return "<0.1×"
    return UNKNOWN if factor is None else f"{factor:.{0 if factor >= 9.95 else 1}f}×"


def operations(value: float) -> str:
    """A number of operations: ``1.2e+08``."""
    return "none" if value == 0 else f"{value:.1e}"


def learning_rate(value: float) -> str:
    """The shortest exact form of a learning rate."""
    return f"{value:g}" if value >= 0.001 else f"{Decimal(repr(value)):e}"


def layers(numbers: Sequence[int]) -> str:
    """A range of layers: ``5``, ``3 to 6``."""
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def target(share: float) -> str:
    """A target share in percent, without trailing zeros."""
    return f"{100 * share:g}{UNBROKEN}%"


def unbroken(sentence: str) -> str:
    """The sentence with a non-breaking space between every number and its percent sign, or its unit of time or memory."""
    return re.sub(r"(?<=\d) (?=%|(?:s|min|h|kB|MB|GB|TB)\b)", UNBROKEN, sentence)
