"""Sentences of words and their tags: a label for each word, in the BIO scheme for entities or plain.

A sentence is stored as a text with a line per word, so that texts and sentences can be compared, held out and written alike. In
the BIO scheme (IOB2), ``B-person`` begins an entity of the type person, ``I-person`` continues it, and ``O`` is outside.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from frostline import FrostlineError
from frostline.data.columns import is_list, items_of
from frostline.data.labels import named, refuse_similar_labels
from frostline.data.table import Table, is_storable
from frostline.data.wording import INTEGER, comma_joined, did_you_mean, listed, quoted

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
# Tags of entities in the BIO scheme or a similar one (BIOES, BILOU, BMES), however their prefix is written.
LIKE_ENTITY = re.compile(r"([BIESLUM])[-_](.+)", re.IGNORECASE)
NAMED = 30  # tags that a message lists, to be copied
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


def tag_names(table: Table, column: str, given: Sequence[str] | None) -> tuple[str, ...]:
    """All tags in the order of their indices: those that are given, those of a ``ClassLabel``, or those in the table.

    Tags in the table are ordered by type of entity, ``O`` first.

    Raises:
        FrostlineError: The tags are numbers without names, there are fewer than two, one of those given appears twice, or most
            look like the BIO scheme and one is not in it.
    """
    where = "--labels" if given else f"{table.name}, column {quoted(column)}"
    names = tuple(given or table.class_names.get(column, ()))
    if len(set(names)) < len(names):
        raise FrostlineError(f"--labels names {quoted(max(names, key=names.count))} more than once; name each once.")
    if not names:
        found = {tag for tags in _tag_lists(table, column) for tag in tags if isinstance(tag, str)}
        if all(map(INTEGER.fullmatch, found)):
            raise FrostlineError(
                f"{where}: the tags are numbers without names; name them in the order of the numbers with --labels, such as "
                "--labels O,B-person,I-person."
            )
        if len(found) < 2:
            raise FrostlineError(
                f"{where}: every word has the tag {quoted(next(iter(found)))}; give sentences with at least two different tags, "
                "or name another column with --label-column."
            )
        names = _ordered(found)
    entities = are_entities(names)
    marked = [name for name in names if name.upper() != OUTSIDE]
    like = [name for name in marked if LIKE_ENTITY.fullmatch(name)]
    begun = any(name[0].upper() == "B" for name in like) or len(marked) < len(names)
    if not entities and begun and 2 * len(like) > len(marked):
        odd = next((name for name in names if name != OUTSIDE and not ENTITY.fullmatch(name)), like[0])
        raise FrostlineError(
            f"{where}: most tags look like the BIO scheme of entities, but {quoted(odd)} is not in it, or no tag begins with "
            f"{BEGIN}; write {OUTSIDE}, {BEGIN}TYPE at the first word of an entity and {INSIDE}TYPE at others, or remove the "
            "prefixes if the tags are not of entities."
        )
    refuse_similar_labels(
        where, names, what="tag", fold_case=entities
    )  # the case of plain tags can matter, as in Czech
    return names


def refuse_new_tags(tables: Iterable[Table], column: str, labels: Sequence[str]) -> None:
    """Raise an error if a table has a tag that is none of the ``labels``, those of the training data."""
    new: dict[str, str] = {}  # the place of each new tag
    for table in tables:
        if column not in table.columns or has_no_tags(table, column):
            continue
        classes = table.class_names.get(column)
        for n, tags in enumerate(_tag_lists(table, column)):
            for word, tag in enumerate(named(one, labels, classes) for one in tags):
                if tag not in labels and not INTEGER.fullmatch(tag):
                    new.setdefault(tag, table.location(n, column, word))
    if new:
        tag, place = next(iter(new.items()))
        other_types = [
            label for label in labels if entity_type(label) != entity_type(tag)
        ]  # a spelling has another type
        meant, every = did_you_mean(tag, other_types), _ordered([*labels, *new])
        correct = f"{meant}; correct it, or" if meant else ";"
        named_all = len(every) <= NAMED
        remedy = f"pass --labels {comma_joined(every)} to include it" if named_all else "name all tags with --labels"
        raise FrostlineError(f"{place}: the training data have no tag {quoted(tag)}{correct} {remedy}.")


def tag_indices(table: Table, column: str, labels: Sequence[str], sentences: Sequence[str]) -> npt.NDArray[np.int64]:
    """The index of each word's tag, ``[N, W]``, filled up with ``NO_WORD``. W is the number of words of the longest sentence.

    Raises:
        FrostlineError: A list of tags is missing or has another length than its sentence, a tag is unknown, or an entity begins
            without ``B-``.
    """
    index, entities = {label: n for n, label in enumerate(labels)}, are_entities(labels)
    classes = table.class_names.get(column)
    rows = []
    for n, (tags, sentence) in enumerate(zip(_tag_lists(table, column), sentences, strict=True)):
        words = words_of(sentence)
        if len(tags) != len(words):
            raise FrostlineError(
                f"{table.location(n, column)}: the numbers of tags ({len(tags)}) and words ({len(words)}) differ; give each "
                "word one tag."
            )
        names_of_tags = [named(tag, labels, classes) for tag in tags]
        unknown = next((k for k, tag in enumerate(names_of_tags) if tag not in index), None)
        if unknown is not None:
            tag = tags[unknown]
            raise FrostlineError(
                f"{table.location(n, column, unknown)}: the tag {quoted(tag)} of the word {quoted(words[unknown])} is none of "
                f"the {len(index)} tags ({listed(labels)}){did_you_mean(str(tag), labels)}; correct it, or name all "
                "tags with --labels."
            )
        rows.append([index[tag] for tag in names_of_tags])
        for word, (before, tag) in enumerate(pairwise([OUTSIDE, *names_of_tags]) if entities else ()):
            if tag.startswith(INSIDE) and entity_type(before) != entity_type(tag):
                begin = f"{BEGIN}{entity_type(tag)}"
                raise FrostlineError(
                    f"{table.location(n, column, word)}: the word {quoted(words[word])} has the tag {quoted(tag)}, and no "
                    f"{begin} is before it; write {begin} at the first word of every entity (IOB2), or correct the tag before."
                )
    return filled(rows, max(map(len, rows)))


def filled(rows: Sequence[Sequence[int]] | npt.NDArray[Any], width: int) -> npt.NDArray[np.int64]:
    """The indices of tags of sentences, ``[N, width]``, filled up with ``NO_WORD``."""
    targets = np.full((len(rows), width), NO_WORD, np.int64)
    for n, row in enumerate(rows):
        targets[n, : len(row)] = row
    return targets


def has_no_tags(table: Table, column: str) -> bool:
    """Whether no sentence has tags, as in published test files."""
    return all(cell is None or (is_list(cell) and not len(cell)) for cell in table.cells(column))


def _tag_lists(table: Table, column: str) -> list[list[Any]]:
    found = []
    for n, cell in enumerate(table.cells(column)):
        remedy = "write a list with a tag for each word, or name another column with --label-column"
        tags = items_of(cell, table.location(n, column), "tags", remedy)
        for word, tag in enumerate(tags):
            if tag is None or tag == "" or not isinstance(tag, str | Integral):
                wrong = (
                    "a word has no tag"
                    if tag in (None, "")
                    else f"the tag {quoted(tag)} is neither a text nor a number"
                )
                raise FrostlineError(
                    f"{table.location(n, column, word)}: {wrong}; write one tag for each word, such as {OUTSIDE}."
                )
        found.append(tags)
    return found


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Tags of entities ordered by type, ``O`` first; others by code point."""
    tags = tuple(names)
    by_type = are_entities(tags)
    return tuple(sorted(tags, key=lambda tag: (by_type and tag != OUTSIDE, tag[len(BEGIN) :] if by_type else "", tag)))
