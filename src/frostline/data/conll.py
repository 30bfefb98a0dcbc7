"""CoNLL files: a line per word with its tags, and an empty line after each sentence.

The columns are separated by tabs, or by spaces in a file without tabs. The first column holds the words, unless the user names
another one. A line that is blank, or only a tab, ends a sentence. Comments and ``-DOCSTART-`` lines are skipped. Where the first
column numbers the words, so are the ranges (``1-2``) and empty nodes (``1.1``) of CoNLL-U, which are no words.

A comment begins with ``#`` and has another number of columns than the words have, so that ``#hashtag TAB O`` is a word. Before a
sentence, a line that begins with ``#`` and a space is a comment with any number of columns, as ``# newdoc`` is. If its last
column is also that of another line, as in ``# O``, it is the word ``#`` with its tag.
"""

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import CONLL_TAGS, CONLL_WORDS
from frostline.data.table import Table
from frostline.data.text_files import UTF8, open_text
from frostline.data.wording import listed

DOCUMENT, COMMENT = "-DOCSTART-", "# "
NUMBER, RANGE = re.compile(r"\d+"), re.compile(r"\d+[-.]\d+")  # of words in CoNLL-U
NUMBERS = "number the words"
LINE_NUMBER = re.compile(r"\d+([-.:_]\d+)*[.:)]?")
ENTITY_TAG = re.compile(r"O|[BIESLUM][-_].+")
Word = tuple[int, list[str]]  # the number of its line, and its cells


def read_conll(
    path: Path, tag_column: int | None = None, word_column: int | None = None, *, encoding: str = UTF8
) -> Table:
    """A table with a row per sentence: a list of ``tokens`` and a list of ``tags``.

    In a file with more than two columns, the others are called ``column 2``, ``column 3`` and so on. The row number of a sentence
    is that of its first line. Columns are counted from 1. By default the first one has the words, and the other one of two the
    tags. A line with another number of columns than the first one is an error.
    """
    sentences, width, skipped = _sentences(path, word_column, encoding)
    words = (word_column or 1) - 1
    if tag_column is not None and (not 1 <= tag_column <= width or tag_column - 1 == words):
        choices = f"another one than {words + 1}, that of the words" if tag_column - 1 == words else "one from 2 on"
        raise FrostlineError(
            f"{path}: there is no column of tags {tag_column}, because the lines have {width}; give "
            f"{choices if width > 1 else 'a file with tags'}."
        )
    columns = [[[cells[n] for _, cells in of_sentence] for of_sentence in sentences] for n in range(width)]
    tags = None if tag_column is None else tag_column - 1
    if tags is None and width == 2 and not (words == 1 and _instead_of_words(columns[0], width) == NUMBERS):
        tags = 1 - words
    names = [CONLL_WORDS if n == words else CONLL_TAGS if n == tags else f"column {n + 1}" for n in range(width)]
    return Table(
        name=str(path),
        columns={name: columns[n] for n, name in enumerate(names)},
        rows=np.array([of_sentence[0][0] for of_sentence in sentences]),
        word_lines=[[line for line, _ in of_sentence] for of_sentence in sentences],
        notes=skipped,
    )


def _sentences(path: Path, word_column: int | None, encoding: str) -> tuple[list[list[Word]], int, tuple[str, ...]]:
    """The words of each sentence, the number of columns, and notes about lines that are skipped."""
    lines = []  # with their numbers, without spaces at their end; a line of white space alone is empty
    with open_text(path, encoding) as file:
        for row, line in enumerate(file, start=1):
            content = line.rstrip("\r\n").rstrip(" ")
            lines.append((row, content if content.strip(" \t") else ""))
    split = re.compile("\t" if any("\t" in line for _, line in lines if line[:1] != "#") else r"[ \t]+")
    cells_of = {row: split.split(line.lstrip(" ") if split.pattern != "\t" else line) for row, line in lines if line}
    widths = [len(cells_of[row]) for row, line in lines if line and line[0] != "#"]
    width = widths[0] if widths else max(map(len, cells_of.values()), default=0)
    if word_column is not None and word_column > width > 0:
        raise FrostlineError(
            f"{path}: there is no column of words {word_column}, because the lines have {width}; give another one."
        )
    of_words = [
        [cells_of[row] for row, line in part if line[0] != "#" and cells_of[row][0] != DOCUMENT]
        for blank, part in groupby(lines, lambda one: not one[1])
        if not blank
    ]
    columns = [[[cells[n] for cells in part if len(cells) == width] for part in of_words] for n in range(width)]
    first = _instead_of_words(columns[0], width) if columns and word_column != 1 else None
    if first and word_column is None:
        better = next((n for n in range(1, width) if not _instead_of_words(columns[n], width)), None)
        shown = [listed([word for part in columns[n] for word in part][:3]) for n in (0, better or 0)]
        words = "" if better is None else f"pass --word-column {better + 1} ({shown[1]}), or "
        raise FrostlineError(
            f"{path}: the first column ({shown[0]}) seems to {first}, not to hold the words; {words}--word-column 1 if "
            f"these are the words{'' if words else ', or give a file with words'}."
        )
    in_conllu = first == NUMBERS and any(NUMBER.fullmatch(one) for part in columns[0] for one in part)
    endings = {cells_of[row][-1] for row, line in lines if line and not line.startswith(COMMENT)}
    sentences: list[list[Word]] = []
    inside, skipped = False, list[str]()
    for row, line in lines:
        cells = cells_of.get(row)
        if cells is None or cells[0] == DOCUMENT:
            inside = False
            continue
        opens_as_comment = not inside and line.startswith(COMMENT) and cells[-1] not in endings
        if line[0] == "#" and (len(cells) != width or opens_as_comment or first):
            continue
        word = cells[(word_column or 1) - 1] if len(cells) == width else "?"
        if len(cells) != width or not word:
            found = "no word" if not word else f"{len(cells)} {'column' if len(cells) == 1 else 'columns'}"
            raise FrostlineError(
                f"{path}, line {row}: the line has {found}, and the first line has {width}; "
                "write a word and its tags, separated by tabs."
            )
        if in_conllu and RANGE.fullmatch(cells[0]):
            skipped.append(cells[0])
            continue
        if not inside:
            sentences.append([])
            inside = True
        sentences[-1].append((row, cells))
    if not sentences:
        raise FrostlineError(f"{path}: the file has no words; give a file with a word and its tag on each line.")
    note = f"{path}: ranges and empty nodes of CoNLL-U are no words and are skipped ({len(skipped):,}: {listed(skipped, 3)})."
    return sentences, width, (note,) if skipped else ()


def _instead_of_words(column: Sequence[Sequence[str]], width: int) -> str | None:
    """What a column seems to hold instead of words, from its cells in each sentence; None for words.

    It holds numbers, such as ``1``, ``1-2`` and ``1.1``, tags of entities, or cells that are alike in each sentence but for
    digits, such as ``doc1`` or ``w1`` and ``w2``.
    """
    cells = [cell for part in column for cell in part]
    if cells and all(LINE_NUMBER.fullmatch(cell) for cell in cells):
        return NUMBERS
    if any(cell.startswith("B-") for cell in cells) and all(ENTITY_TAG.fullmatch(cell) for cell in cells):
        return "hold tags"
    names = [{re.sub(r"[\W\d_]+", "", cell) for cell in part} for part in column if part]
    if width > 2 and max(map(len, column), default=0) > 1 and all(len(one) == 1 and one != {""} for one in names):
        return "name documents, sentences or words"
    return None
