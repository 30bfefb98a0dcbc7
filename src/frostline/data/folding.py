"""How texts and numbers are taken and said: lists with commas, stretches without a gap, durations, a capital in front."""

import re
from collections.abc import Iterable

from frostline import FrostlineError


def plain(name: str) -> str:
    """A name without case and all that is neither letter nor digit: SST-2, sst2 and sst_2 are one."""
    return "".join(char for char in name.casefold() if char.isalnum())


def capital(text: str) -> str:
    """Text with a capital letter in front."""
    return f"{text[:1].upper()}{text[1:]}"


def between_commas(text: str) -> list[str]:
    """What stands between the commas of a text, without the blanks around it."""
    return [part.strip() for part in text.split(",")]


def stretches(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as stretches without a gap: first and last of each."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def lasting(seconds: float) -> str:
    """A duration as one says it."""
    if seconds < 119.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 595:
        minutes, rest = divmod(round(seconds / 10), 6)
        return f"{minutes} min" + (f" {10 * rest} s" if rest else "")
    return f"{seconds / 60:.0f} min" if seconds < 7170 else f"{seconds / 3600:.1f} h"


def folded(paths: Iterable[str], start: str) -> tuple[str, ...]:
    """Texts that differ only in the number after ``start`` as one, and those of the same numbers as one:
    ``layer.0 .. 9.output``, ``layer.0 .. 9.{attention, output}``."""
    numbers: dict[str, list[int]] = {}
    found: dict[str, list[str]] = {}  # what a text begins with -> what follows
    for path in paths:
        number, dot, rest = path.removeprefix(start).partition(".")
        if path.startswith(start) and number.isdecimal():
            numbers.setdefault(dot + rest, []).append(int(number))
        else:
            found.setdefault(path, [""])
    for rest, several in numbers.items():
        for first, last in stretches(several):
            found.setdefault(f"{start}{first}" + f" .. {last}" * (last > first), []).append(rest)
    inside = {head: ", ".join(rest.removeprefix(".") for rest in rests) for head, rests in found.items()}
    return tuple(f"{head}.{{{inside[head]}}}" if len(rests) > 1 else head + rests[0] for head, rests in found.items())


def read_seconds(text: str) -> float:
    """``90``, ``90s``, ``10min`` or ``2h`` in seconds.

    Raises:
        FrostlineError: it is no duration.
    """
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(s|sec|min|m|h)?\s*", text)
    if not found:
        raise FrostlineError(f"{text!r} is no duration: give seconds, or as in 90s, 10min, 2h.")
    return float(found[1]) * {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600}[found[2] or "s"]
