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
from pathlib import Path

import numpy as np

from frostline import FrostlineError
from frostline.data.columns import CONLL_TAGS, CONLL_WORDS
from frostline.data.table import Table
from frostline.data.text_files import read_text
from frostline.data.wording import counted, listed

DOCUMENT, COMMENT = "-DOCSTART-", "# "
RANGE, NUMBER = re.compile(r"\d+[-.]\d+"), re.compile(r"\d+([-.:_]\d+)*[.:)]?")  # of words
Word = tuple[int, list[str]]  # the number of its line, and its cells


def read_conll(path: Path, tag_column: int | None, word_column: int | None, *, encoding: str | None) -> Table:
    """A table with a row per sentence: a list of ``tokens`` and a list of ``tags``.

    In a file with more than two columns, the others are called ``column 2``, ``column 3`` and so on. The row number of a sentence
    is that of its first line. Columns are counted from 1. By default the first one has the words, and the other one of two the
    tags. A line with another number of columns than the first one is an error.
    """
    words, tags = (word_column or 1) - 1, None if tag_column is None else tag_column - 1
    sentences, width = _sentences(path, words, encoding)
    if tags is not None and (tags >= width or tags == words):
        choices = f"another one than {words + 1}, that of the words" if tags == words else "one from 2 on"
        raise FrostlineError(
            f"{path}: there is no column of tags {tag_column}, because the lines have {width}; give "
            f"{choices if width > 1 else 'a file with tags'}."
        )
    columns = [[[cells[n] for _, cells in of_sentence] for of_sentence in sentences] for n in range(width)]
    if word_column is None and _are_no_words(columns[0], width):
        better = next((n for n in range(1, width) if not _are_no_words(columns[n], width)), None)
        first, other = (listed([word for part in columns[n] for word in part][:3]) for n in (0, better or 0))
        instead = "" if better is None else f"--word-column {better + 1} ({other}), or "
        raise FrostlineError(
            f"{path}: the first column ({first}) seems to number the words or to name their documents; pass {instead}"
            "--word-column 1 if these are the words."
        )
    numbered = words > 0 and all(NUMBER.fullmatch(cell) for part in columns[0] for cell in part)
    if tags is None and width == 2 and not numbered:
        tags = 1 - words
    skipped = list[str]()
    if numbered and any(cell.isdecimal() for part in columns[0] for cell in part):  # CoNLL-U
        skipped = [cell for part in columns[0] for cell in part if RANGE.fullmatch(cell)]
        kept = ([word for word in part if not RANGE.fullmatch(word[1][0])] for part in sentences)
        sentences = [part for part in kept if part]
        columns = [[[cells[n] for _, cells in part] for part in sentences] for n in range(width)]
    names = [CONLL_WORDS if n == words else CONLL_TAGS if n == tags else f"column {n + 1}" for n in range(width)]
    note = f"{path}: ranges and empty nodes of CoNLL-U are no words and are skipped ({len(skipped):,}: {listed(skipped, 3)})."
    return Table(
        name=str(path),
        columns=dict(zip(names, columns, strict=True)),
        rows=np.array([part[0][0] for part in sentences]),
        word_lines=[[line for line, _ in part] for part in sentences],
        notes=(note,) if skipped else (),
    )


def _sentences(path: Path, words: int, encoding: str | None) -> tuple[list[list[Word]], int]:
    """The words of each sentence, which are in the column with this index, and the number of columns."""
    lines = [line.removesuffix("\r").rstrip(" ") for line in read_text(path, encoding).split("\n")]
    tabs = any("\t" in line for line in lines if not line.startswith("#"))
    rows = [line.split("\t") if tabs else re.split(r"[ \t]+", line.lstrip(" ")) for line in lines]
    filled = [(line, cells) for line, cells in zip(lines, rows, strict=True) if line.strip(" \t")]
    width = next(
        (len(cells) for line, cells in filled if line[0] != "#"), max((len(one) for _, one in filled), default=0)
    )
    if words >= width > 0:
        raise FrostlineError(
            f"{path}: there is no column of words {words + 1}, because the lines have {width}; give another one."
        )
    endings = {cells[-1] for line, cells in filled if not line.startswith(COMMENT)}
    sentences: list[list[Word]] = []
    inside = False
    for number, (line, cells) in enumerate(zip(lines, rows, strict=True), start=1):
        if not line.strip(" \t") or cells[0] == DOCUMENT:
            inside = False
            continue
        opens_as_comment = not inside and line.startswith(COMMENT) and cells[-1] not in endings
        if line[0] == "#" and (len(cells) != width or opens_as_comment):
            continue
        if len(cells) != width or not cells[words]:
            found = counted(len(cells), "column") if len(cells) != width else "no word"
            raise FrostlineError(
                f"{path}, line {number}: the line has {found}, and the first line has {width}; "
                "write a word and its tags, separated by tabs."
            )
        if not inside:
            sentences.append([])
            inside = True
        sentences[-1].append((number, cells))
    if not sentences:
        raise FrostlineError(f"{path}: the file has no words; give a file with a word and its tag on each line.")
    return sentences, width


def _are_no_words(column: Sequence[Sequence[str]], width: int) -> bool:
    """Whether all cells are numbers, or those of a sentence alike but for digits, such as ``doc1``, or ``w1`` and ``w2``."""
    if all(NUMBER.fullmatch(cell) for part in column for cell in part):
        return True
    names = [{re.sub(r"[\W\d_]+", "", cell) for cell in part} for part in column]
    return width > 2 and max(map(len, column)) > 1 and all(len(one) == 1 and one != {""} for one in names)
