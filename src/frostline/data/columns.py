"""Find the columns of the text, of the second text of a pair, and of the label. An ambiguous choice is an error."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from frostline import FrostlineError
from frostline.data.kinds import CLASSIFICATION, ENDINGS, MULTI_LABEL, TOKENS
from frostline.data.table import Table, is_missing
from frostline.data.wording import NUMBER, comma_joined, listed, quoted

# Common column names, including those of GLUE and of its original files. Compared case-insensitively.
TEXTS = (
    *("text", "sentence", "document", "review", "content", "comment", "tweet", "message", "utterance", "query"),
    *("body", "headline", "review_body", "review_text", "comment_text", "reviewtext"),
)
PAIRS = (
    ("text", "text_pair"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("question", "passage"),
    ("#1 string", "#2 string"),
)
LABELS = (
    *("label", "labels", "class", "target", "gold_label", "quality", "is_duplicate", "score", "similarity"),
    *("similarity_score", "relatedness_score", "rating", "stars", "sentiment", "polarity", "category", "intent"),
)
WORDS = ("tokens", "words")
CONLL_WORDS, CONLL_TAGS = "tokens", "tags"  # the columns of words and tags of a CoNLL file
TAGS = ("ner_tags", "tags", "labels", "ner", "pos_tags", "upos")
# Cells of a column that says of each text whether it has one label.
INDICATORS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
# Lists as Python, JSON, numpy, Spark and PostgreSQL write them. In a list of texts, each item is a number or quoted.
ITEM = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d[\d.]*)"""
TEXT_LIST = re.compile(rf"(\w+\()?[\[({{]\s*({ITEM}([,\s]+{ITEM})*,?)?\s*[\])}}](, dtype=\w+\)|\))?", re.DOTALL)
LABEL_LIST = re.compile(r"""(\w+\()?([\[({]).*[,'"].*[\])}]|\[[-\d.\s]*\]|\{\}|\(\)|\w+\(\[.*\)""", re.DOTALL)
SEPARATORS = "\t;|,"  # of columns
NAME_COLUMNS = "name the columns with --column-names"
HEADER_WORDS = 6  # a name of a column has no more
LOOKED_AT = 1000  # rows that show what a column holds
LABEL_SETS = ("labels", "label", "tags", "topics", "categories", "genres", "emotions")


COMMON_NAMES = {*TEXTS, *chain.from_iterable(PAIRS), *LABELS, *WORDS, *TAGS, *LABEL_SETS, "id", "idx", "index"}


# By type of task: texts, pairs and labels, and the label column that needs no choice between several.
COMMON = {TOKENS: (WORDS, (), TAGS, "ner_tags"), MULTI_LABEL: (TEXTS, PAIRS, LABEL_SETS, "labels")}
OF_TEXTS = (TEXTS, PAIRS, LABELS, "label")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The names of the columns.

    Attributes:
        text: The column of the texts.
        text_pair: The column of the second texts of pairs; None for single texts.
        label: The column of the labels; None without labels, or if there are ``indicators``.
        indicators: Columns of 0 and 1, one for each label.
        separator: What separates the labels of a text in the label column; None if they are lists, or if a text has one label.
        group: The column whose equal cells are rows that stay together; None if texts alone decide.
    """

    text: str
    text_pair: str | None = None
    label: str | None = None
    indicators: tuple[str, ...] = ()
    separator: str | None = None
    group: str | None = None

    @property
    def of_labels(self) -> tuple[str, ...]:
        """All columns of labels."""
        return self.indicators if self.label is None else (self.label,)

    def __str__(self) -> str:
        pair = f" with {quoted(self.text_pair)}" if self.text_pair is not None else ""
        label = f", label is column {quoted(self.label)}" if self.label is not None else ""
        if self.indicators:
            label = f", labels are the columns {listed(self.indicators)}"
        group = "" if self.group is None else f", rows with the same {quoted(self.group)} stay together"
        return f"text is column {quoted(self.text)}{pair}{label}{group}"


def choose_columns(
    table: Table,
    *,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    indicator_columns: Sequence[str] = (),
    group_column: str | None = None,
    label_needed: bool = True,
    task_type: str | None = None,
) -> Columns:
    """The columns that the user gives. Missing ones are found by their common names.

    A column named ``text`` or ``label`` takes precedence, unless ``text`` is part of a known pair. Otherwise, exactly one
    common name must be in the table. If the user gives the text column, there is a pair only if the user gives its column, too.
    If the user gives the second column of a pair only, the first is found by its name.
    For token classification, a text is a list of words, and a label is a list of their tags.

    Raises:
        FrostlineError: A column does not exist, is used twice, or is ambiguous.
    """
    named = [("--text-column", text_column), ("--text-pair-column", text_pair_column), ("--label-column", label_column)]
    indicators = [("--indicator-columns", column) for column in indicator_columns]
    for flag, column in (*named, *indicators, ("--group-column", group_column)):
        if column is not None:
            table.require_column(column, f"; pass one of {listed(table.columns)} with {flag}")
    if text_pair_column is not None and task_type == TOKENS:
        raise FrostlineError(
            f"{table.name}: --text-pair-column is for pairs of texts, and tags belong to the words of one sentence; leave it out."
        )
    texts: Sequence[str]
    texts, pairs, labels, preferred = COMMON.get(task_type or "", OF_TEXTS)
    text, pair, label = text_column, text_pair_column, label_column
    if text is None:
        if pair is not None:  # only the first text is looked for, first by the usual name beside that of the second
            names = {name.casefold() for name in table.columns}
            known = [one for one, two in pairs if two == pair.casefold() and one in names]
            texts, pairs = known or list(dict.fromkeys([*texts, *(one for one, _ in pairs)])), ()
        text, of_names = _find_texts(table, {label, pair}, texts, pairs)
        pair = pair or of_names
    if label is None and not indicator_columns:
        label = _find_label(table, {text, pair}, labels, preferred, needed=label_needed)
    for (flag, given), column in zip(named, (text, pair, label), strict=True):
        same = [name for name in table.columns if column and name.casefold() == column.casefold()]
        if given is None and len(same) > 1 and (label_needed or column != label):
            raise FrostlineError(f"{table.name}: the columns {listed(same)} differ in case only; choose with {flag}.")
    chosen = [column for column in (text, pair, label, *indicator_columns) if column is not None]
    if len(set(chosen)) < len(chosen):
        raise FrostlineError(
            f"{table.name}: column {quoted(max(chosen, key=chosen.count))} is chosen for two purposes; name another one."
        )
    of_texts = () if text_column is not None and task_type != TOKENS else (text, pair)
    for column in (*of_texts, *([label] if task_type != CLASSIFICATION else [])):
        if column is not None:
            _refuse_written_lists(table, column, task_type, is_label=column == label)
    return Columns(text=text, text_pair=pair, label=label, indicators=tuple(indicator_columns), group=group_column)


def task_of_lists(table: Table, text_column: str | None, label_column: str | None) -> str | None:
    """The type of a task whose labels are lists; None if there are no lists.

    Lists of words with lists of tags are token classification. Texts with lists of labels are multi-label classification. A
    column that is not given is looked for by its common names.
    """
    by_name, first = {name.casefold(): name for name in table.columns}, table.first(LOOKED_AT)

    def found(given: str | None, names: Sequence[str]) -> list[object]:
        """The first cell that is not missing, of the given column or of each column with one of these names."""
        columns = (
            [by_name[name] for name in names if name in by_name] if given is None else {given} & set(table.columns)
        )
        return [next((cell for cell in first.cells(column) if not is_missing(cell)), None) for column in columns]

    if any(map(is_list, found(text_column, WORDS))):
        return TOKENS
    labels = found(label_column, LABEL_SETS[:2]) or found(label_column, (*TAGS, *LABEL_SETS))
    if not any(map(is_list, labels)):
        return None
    texts = found(text_column, [*TEXTS, *chain.from_iterable(PAIRS)])
    return MULTI_LABEL if any(isinstance(text, str) for text in texts) else TOKENS


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


def missing_tags(table: Table) -> str | None:
    """What to do about a CoNLL file of which no column holds the tags; None for other tables."""
    if table.word_lines is None or CONLL_TAGS in table.columns:
        return None
    if len(table.columns) <= 2:
        return f"{table.name}: its lines have a word and no tag; write the tag after each word, separated by a tab."
    return f"{table.name}: its lines have {len(table.columns)} columns; choose that of the tags with --tag-column, from 2 on."


def _refuse_written_lists(table: Table, column: str, task_type: str | None, *, is_label: bool = False) -> None:
    """Raise an error if most cells of a column are lists that are written as texts, as by pandas in a CSV file."""
    written = LABEL_LIST if is_label else TEXT_LIST
    looked_at = table.first(LOOKED_AT).cells(column)
    cells = [(n, cell) for n, cell in enumerate(looked_at) if isinstance(cell, str) and cell.strip()]
    lists = [n for n, cell in cells if written.fullmatch(cell.strip())]
    if lists and 2 * len(lists) > len(cells):
        otherwise = ", or choose it with --text-column if each is one text" if task_type != TOKENS else ""
        if is_label:
            otherwise = f", or pass --task-type {CLASSIFICATION} if each is one class"
        raise FrostlineError(
            f"{table.location(lists[0], column)}: {quoted(looked_at[lists[0]])} is a list written as a text, and CSV "
            f"files hold no lists; save the table as JSON lines or Parquet, with lists in this column{otherwise}."
        )


def is_list(cell: object) -> bool:
    """Whether a cell is a list of items; a data frame may hold arrays instead."""
    return isinstance(cell, list | tuple) or (hasattr(cell, "tolist") and hasattr(cell, "__len__"))


def items_of(cell: Any, location: str, what: str, remedy: str) -> list[Any]:
    """The items of a cell that must be a list. The error has the location, ``what`` the list holds, and the remedy."""
    if is_list(cell):
        return list(cell)
    found = f"the list of {what} is missing" if cell is None else f"{quoted(cell)} is not a list of {what}"
    if isinstance(cell, str):
        remedy = f"in JSON lines or Parquet, {remedy}"
    elif cell is None and what != "words":
        remedy = f"{remedy}, or leave out all such rows with --skip-unlabelled"
    raise FrostlineError(f"{location}: {found}; {remedy}.")


def _find_texts(
    table: Table, taken: set[str | None], texts: Sequence[str], known_pairs: Sequence[tuple[str, str]]
) -> tuple[str, str | None]:
    """The text column with a common name, and the column of the second text if the texts are pairs."""
    by_name = {name.casefold(): name for name in table.columns if name not in taken}
    pairs = [(by_name[one], by_name[two]) for one, two in known_pairs if one in by_name and two in by_name]
    paired = {name for pair in pairs for name in pair}
    singles = [by_name[name] for name in texts if name in by_name and by_name[name] not in paired]
    if singles and singles[0].casefold() == "text":
        singles = singles[:1]
    found: list[tuple[str, str | None]] = [*pairs, *((name, None) for name in singles)]
    if len(found) == 1:
        return found[0]
    if found:
        choices = " or ".join(listed(name for name in one if name) for one in found)
        raise FrostlineError(
            f"{table.name}: the text could be {choices}; choose with --text-column (and --text-pair-column)."
        )
    if looks_like_conll(table):
        raise FrostlineError(f"{table.name}: its lines look like words with their tags; pass --task-type {TOKENS}.")
    for name in {*WORDS} & by_name.keys():
        _refuse_written_lists(table, by_name[name], TOKENS)
    raise FrostlineError(no_common_name(table, "texts", "--text-column"))


def _find_label(
    table: Table, taken: set[str | None], labels: Sequence[str], preferred: str, *, needed: bool
) -> str | None:
    by_name = {name.casefold(): name for name in table.columns if name not in taken}
    found = [by_name[name] for name in labels if name in by_name]
    if found and (len(found) == 1 or found[0].casefold() == preferred):
        return found[0]
    if not needed:
        return None
    if found:
        raise FrostlineError(f"{table.name}: the label could be {listed(found)}; choose with --label-column.")
    if lack := missing_tags(table):
        raise FrostlineError(lack)
    cells = {
        name: [INDICATORS.get(str(cell).strip().casefold()) for cell in table.cells(name)] for name in by_name.values()
    }
    flags = [name for name, own in cells.items() if None not in own and True in own]
    others = f", or the columns of 0 and 1 with --indicator-columns {comma_joined(flags)}" if len(flags) > 1 else ""
    raise FrostlineError(no_common_name(table, "labels", "--label-column", others))


def no_common_name(table: Table, what: str, flag: str, others: str = "") -> str:
    """That no column has a common name for texts or labels, and what to do."""
    if not others and (reason := misread(table, flag)):
        return reason
    if not others and table.has_header:
        others = ", or the columns of a file without a header with --column-names"
    columns = f"none of its columns ({listed(table.columns)}) has a common name for {what}"
    return f"{table.name}: {columns}; name one with {flag}{others}."


def misread(table: Table, flag: str) -> str | None:
    """That columns are separated otherwise, the first row seems to be an example, or texts are inside objects; else None."""
    only = next(iter(table.columns)) if table.has_header and len(table.columns) == 1 else ""
    if separated := next((one for one in SEPARATORS if one in only), None):
        wanted = "tabs" if separated != "\t" and Path(table.name).suffix.lower() in ENDINGS["TSV"] else "commas"
        return f"{table.name}: its only column is {quoted(only)}; separate the columns by {wanted}, not {quoted(separated)}."
    rows = zip(*(table.cells(name) for name in table.columns), strict=True)
    if table.has_header and (reason := not_a_header(list(table.columns), rows)):
        return f"{table.name}, row 1: {reason}; {NAME_COLUMNS}, or choose with {flag} if row 1 is a header."
    for name in table.columns:
        first: Any = next((cell for cell in table.cells(name) if cell is not None), None)
        inside = next(iter(first), None) if is_list(first) else first
        if isinstance(inside, dict):
            what = "objects" if inside is first else "lists of objects"
            return (
                f"{table.name}: its key {quoted(name)} holds {what} with the keys {listed(inside)}; write a table with an "
                "example in each row, and with these keys as columns."
            )
    return None


def not_a_header(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str | None:
    """Why the first row of a file seems to be an example like the ``rows`` below it; None if it may be a header."""
    if COMMON_NAMES & {name.strip().casefold() for name in names}:
        return None
    odd = next((name for name in names if NUMBER.fullmatch(name.strip()) or len(name.split()) > HEADER_WORDS), None)
    for row in rows if odd is None else ():
        odd = next((name for name, cell in zip(names, row, strict=False) if name.strip() == cell.strip() != ""), None)
        if odd is not None:
            break
    return odd and f"the file seems to have no header, because {quoted(odd)} stands where the name of a column belongs"
