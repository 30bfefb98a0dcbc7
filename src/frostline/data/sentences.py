"""Sentences of words, for token classification.

A sentence is stored as a text with a line per word. Texts and sentences can then be compared, held out and written alike.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from frostline import FrostlineError
from frostline.data.columns import items_of
from frostline.data.table import Table, is_storable
from frostline.data.wording import quoted

MANY_WORDS = 200  # more than in a sentence


def refuse_one_sentence(tables: Mapping[str, Table]) -> None:
    """Raise an error if a CoNLL file is one sentence because it has no blank line. A short test set may be one sentence."""
    for split, table in tables.items():
        words = len(table.word_lines[0]) if table.word_lines is not None and len(table) == 1 else 0
        if words > MANY_WORDS or (words and split == "train"):
            raise FrostlineError(
                f"{table.name}: the file has one sentence of {words:,} {'word' if words == 1 else 'words'}, because it has no "
                "blank line; write a blank line after each sentence."
            )


def joined(words: Iterable[str]) -> str:
    """The sentence of these words."""
    return "\n".join(words)


def words_of(sentence: str) -> list[str]:
    """The words of a sentence."""
    return sentence.split("\n")


def sentences(table: Table, column: str) -> tuple[str, ...]:
    """The sentences in a column of lists of words.

    Raises:
        FrostlineError: As :func:`sentence`, with the row.
    """
    remedy = "write a list such as ['Anna', 'lives'], or name another column with --text-column"
    return tuple(sentence(cell, table.location(n, column), remedy) for n, cell in enumerate(table.cells(column)))


def sentence(given: Any, location: str, remedy: str) -> str:
    """The sentence of a list of words.

    Args:
        given: The list.
        location: Where it is, for the error.
        remedy: What to do if it is no list, for the error.

    Raises:
        FrostlineError: It is not a list of words, it has no words, or a word cannot be stored.
    """
    words = items_of(given, location, "words", remedy)
    if not words:
        raise FrostlineError(f"{location}: the sentence has no words; leave it out.")
    if wrong := [word for word in words if not isinstance(word, str)]:
        raise FrostlineError(f"{location}: the word {quoted(wrong[0])} is not a text; write it in quotation marks.")
    if broken := [word for word in words if "\n" in word or not is_storable(word)]:
        raise FrostlineError(
            f"{location}: the word {quoted(broken[0])} contains a line break or half a character; write it again."
        )
    return joined(words)
