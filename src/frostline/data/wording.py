"""How names, numbers and durations are written in messages."""

import difflib
from collections.abc import Iterable


def quoted(value: object, limit: int = 60) -> str:
    """The value's ``repr``, shortened to ``limit`` characters: it makes control characters and odd spaces visible."""
    shown = repr(value)
    return shown if len(shown) <= limit else shown[: limit - 4] + "..." + shown[-1]


def listed(values: Iterable[object], limit: int = 12) -> str:
    """The values quoted and separated by commas: ``'a', 'b', 'c' and 4 more``."""
    all_values = list(values)
    shown = ", ".join(quoted(value) for value in all_values[:limit])
    return shown if len(all_values) <= limit else f"{shown} and {len(all_values) - limit:,} more"


def nearest(name: str, known: Iterable[str]) -> str:
    """``, the nearest is 'label'`` if one of the known names is similar, else an empty string."""
    by_visible = {visible(one): one for one in known}
    close = difflib.get_close_matches(visible(name), list(by_visible), n=1, cutoff=0.6)
    return f", the nearest is {quoted(by_visible[close[0]])}" if close else ""


def visible(name: str) -> str:
    """The name in one case and without white space, which readers overlook."""
    return "".join(name.split()).casefold()


def capitalized(text: str) -> str:
    """The text with its first letter in upper case and every other letter as it is."""
    return f"{text[:1].upper()}{text[1:]}"


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of consecutive numbers, in rising order, as pairs of the first and the last number."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def duration(seconds: float) -> str:
    """A rounded duration with its unit: ``9.5 s``, ``42 s``, ``3 min 20 s``, ``45 min``, ``2.5 h``."""
    if seconds < 119.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 595:
        minutes, rest = divmod(round(seconds / 10), 6)
        return f"{minutes} min" + (f" {10 * rest} s" if rest else "")
    return f"{seconds / 60:.0f} min" if seconds < 7170 else f"{seconds / 3600:.1f} h"
