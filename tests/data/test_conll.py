"""CoNLL files: sentences, comments, columns of tags, and errors with the number of the line."""

from pathlib import Path

import pandas as pd
import pytest

from frostline import FrostlineError
from frostline.data.formats.reader import read_table
from frostline.data.table import Table

THREE = "-DOCSTART- -X- O\n\nAnna NNP B-person\nsings VBZ O\n"


def read(folder: Path, content: str, *, name: str = "a.conll", tag_column: int | None = None) -> Table:
    (folder / name).write_text(content)
    return read_table(folder / name, of_tokens=True, tag_column=tag_column)


def refusal(folder: Path, content: str, tag_column: int | None = None) -> str:
    with pytest.raises(FrostlineError) as caught:
        read(folder, content, tag_column=tag_column)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("between", ["\n", "\t\n", "\n\n", "\r\n", "# id = 2\n\n", "\n# a comment\n"])
def test_sentences_end_at_blank_lines_and_at_lone_tabs(tmp_path: Path, between: str) -> None:
    table = read(tmp_path, f"# id = 1\nAnna\tB-person\nsings\tO\n{between}#music\tO\n")
    assert table.cells("tokens") == [["Anna", "sings"], ["#music"]]
    assert table.cells("tags") == [["B-person", "O"], ["O"]]
    assert table.rows[0] == 2 and set(table.columns) == {"tokens", "tags"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("# newdoc\nAnna B-person\nsings O\n\n# sent_id = 2\n# newdoc\nRome B-place\n", [["Anna", "sings"], ["Rome"]]),
        ("# sent_id = 1\nAnna _ _ B-person\n", [["Anna"]]),
        ("# id 0b1\tdomain=en\nAnna _ _ B-person\n\n\n# id 0b2\tdomain=en\nsings _ _ O\n", [["Anna"], ["sings"]]),
        ("# id 1\tdomain=en\nAnna\tB-person\n", [["Anna"]]),
        ("#\tO\nmusic\tB-song\n", [["#", "music"]]),
        ("#\tB-sign\nmusic\tO\n", [["#", "music"]]),
        ("# O\nAnna B-person\n# O\n\nsings O\n", [["#", "Anna", "#"], ["sings"]]),
        ("Anna B-person\n# B-sign\n", [["Anna", "#"]]),
    ],
)
def test_a_comment_before_a_sentence_may_have_as_many_columns_as_words(
    tmp_path: Path, content: str, words: list[list[str]]
) -> None:
    """A word ``#`` begins a sentence if its tag is that of other words, or if a tab follows."""
    assert read(tmp_path, content).cells("tokens") == words


def test_the_column_of_the_tags_is_chosen(tmp_path: Path) -> None:
    assert read(tmp_path, THREE, tag_column=2).cells("tags") == [["NNP", "VBZ"]]
    assert read(tmp_path, THREE, tag_column=3).cells("tags") == [["B-person", "O"]]
    assert list(read(tmp_path, THREE).columns) == ["tokens", "column 2", "column 3"]
    assert read(tmp_path, "Anna\nsings\n").cells("tokens") == [["Anna", "sings"]]


def test_a_text_file_is_read_as_conll_if_the_task_is_given(tmp_path: Path) -> None:
    assert read(tmp_path, "Anna\tO\n", name="a.txt").cells("tags") == [["O"]]
    assert read_table(tmp_path / "a.txt", column_names=["word", "tag"]).cells("tag") == ["O"]


def test_errors_name_the_line(tmp_path: Path) -> None:
    assert "line 2: the line has 1 column, and the first line has 2" in refusal(tmp_path, "Anna\tO\nsings\n")
    assert "line 2: the line has no word" in refusal(tmp_path, "Anna\tO\n\tO\n")
    assert "no column of tags 4, because the lines have 3; give one from 2 on" in refusal(tmp_path, THREE, 4)
    assert "has no words" in refusal(tmp_path, "\n\t\n")
    (tmp_path / "a.csv").write_text("text,label\na,b\n")
    with pytest.raises(FrostlineError, match="--tag-column is for CoNLL files"):
        read_table(tmp_path / "a.csv", tag_column=2)
    with pytest.raises(FrostlineError, match="--column-names is for CSV and TSV files"):
        read_table(tmp_path / "a.conll", column_names=["word", "tag"])
    with pytest.raises(FrostlineError, match="the data: --tag-column is for CoNLL files"):
        read_table(pd.DataFrame({"text": ["a"]}), tag_column=2)
