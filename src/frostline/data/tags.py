"""Sentences of words and their tags: a label for each word, in the BIO scheme for entities or plain.

A sentence is stored as a text with a line per word, so that texts and sentences can be compared, held out and written alike. In
the BIO scheme (IOB2), ``B-person`` begins an entity of the type person, ``I-person`` continues it, and ``O`` is outside.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.columns import items_of
from frostline.data.table import Table
from frostline.data.wording import counted, is_storable, quoted

MANY_WORDS = 200  # more than in a sentence


def refuse_one_sentence(tables: Mapping[str, Table]) -> None:
    """Raise an error if a CoNLL file is one sentence because it has no blank line. A short test set may be one sentence."""
    for split, table in tables.items():
        words = len(table.word_lines[0]) if table.word_lines is not None and len(table) == 1 else 0
        if words > MANY_WORDS or (words and split == "train"):
            raise FrostlineError(
                f"{table.name}: the file has one sentence of {counted(words, 'word')}, because it has no "
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
    """The sentence of a list of words. ``location`` and ``remedy`` are for the error.

    Raises:
        FrostlineError: It is not a list of words, it has no words, or a word cannot be stored.
    """
    words = items_of(given, location, "words", remedy)
    if not words:
        raise FrostlineError(f"{location}: the sentence has no words; leave it out.")
    for word in words:
        if not isinstance(word, str):
            raise FrostlineError(f"{location}: the word {quoted(word)} is not a text; write it in quotation marks.")
        if "\n" in word or not is_storable(word):
            raise FrostlineError(
                f"{location}: the word {quoted(word)} contains a line break or half a character; write it again."
            )
    return joined(words)


OUTSIDE, BEGIN, INSIDE = "O", "B-", "I-"
ENTITY = re.compile("[BI]-.+", re.DOTALL)
# Tags of entities in the BIO scheme or a similar one (BIOES, BILOU, BMES), however their prefix is written, or as a suffix.
LIKE_ENTITY = re.compile(r"([BIESLUM])[-_:/.|].+|.+[-_:/.|]([BIESLUM])", re.IGNORECASE | re.DOTALL)
NO_WORD = -100  # fills targets up to the longest sentence; the loss of transformers ignores this number


def are_entities(labels: Sequence[str]) -> bool:
    """Whether the labels are tags of entities in the BIO scheme; otherwise they are plain tags, such as parts of speech."""
    marked = [label for label in labels if label != OUTSIDE]
    return any(label.startswith(BEGIN) for label in marked) and all(map(ENTITY.fullmatch, marked))


def entity_type(tag: str) -> str | None:
    """The type of entity of a tag in the BIO scheme; None outside."""
    return None if tag == OUTSIDE else tag[len(BEGIN) :]


def entity_types(labels: Sequence[str]) -> list[str]:
    """The types of entities of labels in the BIO scheme, in their order."""
    return list(dict.fromkeys(kind for kind in map(entity_type, labels) if kind is not None))


def refuse_odd_tags(where: str, names: Sequence[str]) -> None:
    """Raise an error if one tag is not in the BIO scheme, and most look like it, or ``O`` and ``B-`` and ``I-`` of a type are."""
    marked = [name for name in names if name.upper() != OUTSIDE]
    like = [found for name in marked if (found := LIKE_ENTITY.fullmatch(name))]
    prefixed = any(found[1] for found in like)  # a plain tag may end in such a letter, as NOUN-S does
    begun = any("B" in (found[1] or found[2]).upper() for found in like) or (prefixed and len(marked) < len(names))
    continued = {f"{INSIDE}{name[len(BEGIN) :]}" for name in filter(ENTITY.fullmatch, names) if name.startswith(BEGIN)}
    of_entities = OUTSIDE in names and not continued.isdisjoint(names)
    if not are_entities(names) and (of_entities or (begun and 2 * len(like) > len(marked))):
        odd = next((name for name in names if name != OUTSIDE and not ENTITY.fullmatch(name)), like[0][0])
        raise FrostlineError(
            f"{where}: tags look like the BIO scheme of entities, but {quoted(odd)} is not in it, or no tag begins with "
            f"{BEGIN}; write {OUTSIDE}, {BEGIN}TYPE at the first word of an entity and {INSIDE}TYPE at others, or remove the "
            "prefixes or suffixes if the tags are not of entities."
        )


def refuse_wrong_tags(
    table: Table, column: str, tags: Sequence[Sequence[str]], sentences: Sequence[str], *, entities: bool
) -> None:
    """Raise an error if a sentence has another number of tags than words, or one of the ``entities`` begins without ``B-``."""
    for n, (own, sentence) in enumerate(zip(tags, sentences, strict=True)):
        words = words_of(sentence)
        if len(own) != len(words):
            raise FrostlineError(
                f"{table.location(n, column)}: the numbers of tags ({len(own)}) and words ({len(words)}) differ; give each "
                "word one tag."
            )
        for word, (before, tag) in enumerate(pairwise([OUTSIDE, *own]) if entities else ()):
            if tag.startswith(INSIDE) and entity_type(before) != entity_type(tag):
                begin = f"{BEGIN}{entity_type(tag)}"
                raise FrostlineError(
                    f"{table.location(n, column, word)}: the word {quoted(words[word])} has the tag {quoted(tag)}, and no "
                    f"{begin} is before it; write {begin} at the first word of every entity (IOB2), or correct the tag before."
                )


def filled(rows: Sequence[Sequence[int]] | npt.NDArray[Any], width: int) -> npt.NDArray[np.int64]:
    """The indices of tags of sentences, ``[N, width]``, filled up with ``NO_WORD``."""
    targets = np.full((len(rows), width), NO_WORD, np.int64)
    for n, row in enumerate(rows):
        targets[n, : len(row)] = row
    return targets


def ordered_tags(names: Iterable[str]) -> tuple[str, ...]:
    """Tags of entities ordered by type, ``O`` first; others by code point."""
    tags = tuple(names)
    by_type = are_entities(tags)
    return tuple(sorted(tags, key=lambda tag: (by_type and tag != OUTSIDE, tag[len(BEGIN) :] if by_type else "", tag)))
