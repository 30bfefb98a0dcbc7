"""Sentences of words, for token classification.

A sentence is stored as a text with a line per word. Texts and sentences can then be compared, held out and written alike.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from frostline import FrostlineError
from frostline.data.columns import items_of
from frostline.data.table import Table, is_storable
from frostline.data.wording import quoted


def joined(words: Iterable[str]) -> str:
    """The sentence of these words."""
    return "\n".join(words)


def words_of(sentence: str) -> list[str]:
    """The words of a sentence."""
    return sentence.split("\n")


def sentences(table: Table, column: str) -> tuple[str, ...]:
    """The sentences in a column of lists of words.

    Raises:
        FrostlineError: A cell is not a list of words, has no words, or a word cannot be stored.
    """
    return tuple(joined(_words(table, column, n, cell)) for n, cell in enumerate(table.cells(column)))


def _words(table: Table, column: str, index: int, cell: Any) -> Sequence[str]:
    location = table.location(index, column)
    remedy = "write a list such as ['Anna', 'lives'], or name another column with --text-column"
    words = items_of(cell, location, "words", remedy)
    if not words:
        raise FrostlineError(f"{location}: the sentence has no words; remove the row.")
    if wrong := [word for word in words if not isinstance(word, str)]:
        raise FrostlineError(f"{location}: the word {quoted(wrong[0])} is not a text; write it in quotation marks.")
    if broken := [word for word in words if "\n" in word or not is_storable(word)]:
        raise FrostlineError(
            f"{location}: the word {quoted(broken[0])} contains a line break or half a character; write it again."
        )
    return words
