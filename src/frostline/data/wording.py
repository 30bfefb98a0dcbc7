"""How names and values are shown in the one sentence of an error."""

import difflib
from collections.abc import Iterable


def quoted(value: object, limit: int = 60) -> str:
    """The value as Python writes it, shortened: control characters and odd spaces can be seen."""
    shown = repr(value)
    return shown if len(shown) <= limit else shown[: limit - 4] + "..." + shown[-1]


def listed(values: Iterable[object], limit: int = 12) -> str:
    """'a', 'b', 'c' and 4 more."""
    all_values = list(values)
    shown = ", ".join(quoted(value) for value in all_values[:limit])
    return shown if len(all_values) <= limit else f"{shown} and {len(all_values) - limit:,} more"


def nearest(name: str, known: Iterable[str]) -> str:
    """ ", the nearest is 'label'" where one of the known names is close, else nothing."""
    by_folded = {folded(one): one for one in known}
    close = difflib.get_close_matches(folded(name), list(by_folded), n=1, cutoff=0.6)
    return f", the nearest is {quoted(by_folded[close[0]])}" if close else ""


def folded(name: str) -> str:
    """The name without what people do not see: case and white space."""
    return "".join(name.split()).casefold()
