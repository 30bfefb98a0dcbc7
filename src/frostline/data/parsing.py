"""Parse values that users write as text: numbers, comma-separated lists, durations, names."""

import re
from collections.abc import Iterable
from math import ceil

from frostline import FrostlineError

INTEGER = re.compile(r"[+-]?[0-9]+")
QUOTED = re.compile(r'"((?:[^"]|"")*)"(?=\s*(?:[=,]|$))')
PART = re.compile(rf",\s*(?:{QUOTED.pattern})?[^,]*")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hour", "hours"), 3600),
}  # of a duration, in seconds
DURATION = re.compile(rf"\s*([0-9]*\.?[0-9]+)\s*({'|'.join(UNITS)})?\s*")


def comma_separated(text: str) -> list[str]:
    """The parts of a text between its commas, without surrounding white space.

    As in CSV, a part with commas stands in double quotes, and a double quote inside them is doubled.
    """
    parts = [match[0].strip() for match in PART.finditer(f",{text}")]
    return [_unquoted(part.removeprefix(",").strip()) for part in parts]


def comma_joined(values: Iterable[object]) -> str:
    """The values as :func:`comma_separated` reads them."""
    texts = [str(value) for value in values]
    plain = [text == text.strip() and not {",", '"'} & {*text} for text in texts]
    doubled = [text.replace('"', '""') for text in texts]
    return ",".join(text if one else f'"{twice}"' for text, one, twice in zip(texts, plain, doubled, strict=True))


def _unquoted(part: str) -> str:
    """A part without the quotes at its beginning. ``=VALUE`` may follow them."""
    found = QUOTED.match(part)
    return part if found is None else found[1].replace('""', '"') + part[found.end() :]


def normalized_name(name: str) -> str:
    """The letters and digits of a name in lower case: SST-2, sst2 and sst_2 give the same."""
    return "".join(char for char in name.casefold() if char.isalnum())


def duration_at_least(seconds: float) -> str:
    """A duration as :func:`parse_duration` reads it, rounded up: ``90s`` up to 99 seconds, else minutes."""
    return f"{ceil(seconds)}s" if seconds <= 99 else f"{ceil(seconds / UNITS['min'])}min"


def parse_duration(text: str) -> float:
    """Seconds from ``90``, ``90s``, ``10min`` or ``2h``.

    Raises:
        FrostlineError: The text is not a duration.
    """
    found = DURATION.fullmatch(text)
    if not found:
        raise FrostlineError(f"{text!r} is not a duration: give seconds, or as in 90s, 10min, 2h.")
    return float(found[1]) * UNITS[found[2] or "s"]
