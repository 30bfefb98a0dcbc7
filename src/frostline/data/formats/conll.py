"""CoNLL files: a line per word with its tags, and an empty line after each sentence.

The columns are separated by tabs, or by spaces in a file without tabs. The first column holds the words. A line that is blank,
or only a tab, ends a sentence. Comments and ``-DOCSTART-`` lines are skipped.

A comment begins with ``#`` and has another number of columns than the words have, so that ``#hashtag TAB O`` is a word. Before a
sentence, a line that begins with ``#`` and a space is a comment with any number of columns, as ``# newdoc`` is. If its last
column is also that of another line, as in ``# O``, it is the word ``#`` with its tag.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from frostline import FrostlineError
from frostline.data.formats.encoding import open_text
from frostline.data.formats.endings import ENDINGS
from frostline.data.table import Table

WORDS, TAGS = "tokens", "tags"
DOCUMENT, COMMENT = "-DOCSTART-", "# "
Word = tuple[int, list[str]]  # the number of its line, and its cells


def read_conll(path: Path, tag_column: int | None = None) -> Table:
    """A table with a row per sentence: a list of ``tokens`` and a list of ``tags``.

    In a file with more than two columns, the others are called ``column 2``, ``column 3`` and so on. The row number of a
    sentence is that of its first line.

    Args:
        path: The file.
        tag_column: The column of the tags, counted from 1. By default the second of two.

    Raises:
        FrostlineError: A line has another number of columns than the first one, or there is no such column.
    """
    sentences, width = _sentences(path)
    if tag_column is not None and not 2 <= tag_column <= width:
        choices = "one from 2 on" if width > 1 else "a file with tags"
        raise FrostlineError(
            f"{path}: there is no column of tags {tag_column}, because the lines have {width}; give {choices}."
        )
    tags = tag_column or (2 if width == 2 else None)
    names = [WORDS, *(TAGS if number == tags else f"column {number}" for number in range(2, width + 1))]
    return Table(
        name=str(path),
        columns={name: [[cells[n] for _, cells in words] for words in sentences] for n, name in enumerate(names)},
        rows=np.array([words[0][0] for words in sentences]),
        word_lines=[[line for line, _ in words] for words in sentences],
    )


def looks_like_conll(table: Table) -> bool:
    """Whether a text file that was read as a table with a header has a word and its tags on each line.

    A header of texts and labels has other names than the cells below it, but a tag recurs.
    """
    if Path(table.name).suffix.lower() not in ENDINGS["TSV"]:
        return False
    rows = [list(table.columns), *zip(*map(table.cells, table.columns), strict=True)]
    lines = [" ".join(row).split() for row in rows]
    first, *others = [line for line in lines if line and line[0][0] != "#"] or [[]]
    if len(first) < 2 or len(table.columns) not in (1, len(first)):  # 1: the columns are separated by spaces
        return False
    return {len(line) for line in others} == {len(first)} and first[-1] in {line[-1] for line in others}


def is_writable(word: str) -> bool:
    """Whether a line of a CoNLL file can hold this word."""
    return word not in ("", DOCUMENT) and "\t" not in word


def _sentences(path: Path) -> tuple[list[list[Word]], int]:
    """The words of each sentence, and the number of columns."""
    lines = list(_lines(path))
    split = re.compile("\t" if any("\t" in line for _, line in lines if line[:1] != "#") else r"[ \t]+")
    cells_of = {row: split.split(line) for row, line in lines if line}
    widths = [len(cells_of[row]) for row, line in lines if line and line[0] != "#"]
    width = widths[0] if widths else max(map(len, cells_of.values()), default=0)
    endings = {cells_of[row][-1] for row, line in lines if line and not line.startswith(COMMENT)}
    sentences: list[list[Word]] = []
    inside = False
    for row, line in lines:
        cells = cells_of.get(row)
        if cells is None or cells[0] == DOCUMENT:
            inside = False
            continue
        opens_as_comment = not inside and line.startswith(COMMENT) and cells[-1] not in endings
        if line[0] == "#" and (len(cells) != width or opens_as_comment):
            continue
        if len(cells) != width or not cells[0]:
            found = "no word" if not cells[0] else f"{len(cells)} {'column' if len(cells) == 1 else 'columns'}"
            raise FrostlineError(
                f"{path}, line {row}: the line has {found}, and the first line has {width}; "
                "write a word and its tags, separated by tabs."
            )
        if not inside:
            sentences.append([])
            inside = True
        sentences[-1].append((row, cells))
    if not sentences:
        raise FrostlineError(f"{path}: the file has no words; give a file with a word and its tag on each line.")
    return sentences, width


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, without spaces at their end. A line of white space alone is empty."""
    with open_text(path) as file:
        for row, line in enumerate(file, start=1):
            content = line.rstrip("\r\n").rstrip(" ")
            yield row, content if content.strip(" \t") else ""
