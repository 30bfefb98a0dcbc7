"""Sentences of words, for token classification.

A sentence is stored as a text with a line per word. Texts and sentences can then be compared, held out and written alike.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from frostline import FrostlineError
from frostline.data.columns import is_list
from frostline.data.table import Table
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
    if not is_list(cell):
        found = "the list of words is missing" if cell is None else f"{quoted(cell)} is not a list of words"
        raise FrostlineError(
            f"{table.location(index, column)}: {found}; write a list such as ['Anna', 'lives'], or name another column with "
            "--text-column."
        )
    words = list(cell)
    if not words:
        raise FrostlineError(f"{table.location(index, column)}: the sentence has no words; remove the row.")
    wrong = next((word for word in words if not isinstance(word, str)), None)
    if wrong is not None or None in words:
        raise FrostlineError(
            f"{table.location(index, column)}: the word {quoted(wrong)} is not a text; write it in quotation marks."
        )
    broken = next((word for word in words if "\n" in word or not _is_storable(word)), None)
    if broken is not None:
        raise FrostlineError(
            f"{table.location(index, column)}: the word {quoted(broken)} contains a line break or half a character; write it "
            "again."
        )
    return words


def _is_storable(word: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in word)
