"""Reads flags with several values, which are separated by commas or given several times."""

from collections.abc import Sequence

from frostline import FrostlineError
from frostline.data.wording import comma_separated


def split_words(words: Sequence[str] | None) -> list[str] | None:
    """All values of a flag, or None if it was not given."""
    return [part for some in words for part in comma_separated(some) if part] if words else None


def split_pairs(flag: str, words: Sequence[str] | None) -> dict[str, str]:
    """``a=b,c=d`` as a dictionary.

    Raises:
        FrostlineError: A part is not of the form NAME=VALUE.
    """
    found = {}
    for word in (part for some in words or () for part in comma_separated(some)):
        name, equals, value = word.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise FrostlineError(f"{flag} {word!r} is no pair: give NAME=VALUE; separate several with commas.")
        found[name.strip()] = value.strip()
    return found
