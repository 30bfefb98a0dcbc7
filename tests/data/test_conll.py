"""CoNLL files: sentences, comments, columns of tags, and errors with the number of the line."""

from pathlib import Path

import pytest

from frostline import FrostlineError
from frostline.data.reader import read_table
from frostline.data.table import Table
from loaded import sentence_of

THREE = "-DOCSTART- -X- O\n\nAnna NNP B-person\nsings VBZ O\n"


def read(folder: Path, content: str, *, name: str = "a.conll", tag_column: int | None = None) -> Table:
    (folder / name).write_text(content)
    return read_table(folder / name, of_tokens=True, tag_column=tag_column)


def refusal(folder: Path, content: str, tag_column: int | None = None) -> str:
    return sentence_of(read, folder, content, tag_column=tag_column)


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
        ("# id 0b1\tdomain=en\nAnna _ _ B-person\n\n\n# id 0b2\tdomain=en\nsings _ _ O\n", [["Anna"], ["sings"]]),
        ("#\tO\nmusic\tB-song\n", [["#", "music"]]),
        ("# O\nAnna B-person\n# O\n\nsings O\n", [["#", "Anna", "#"], ["sings"]]),
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


GERMEVAL = (
    "#\thttp://de.wikipedia.org\t[2009]\n1\tAnna\tB-PER\tO\n2\tsingt\tO\tO\n\n#\thttp://x\t[2010]\n1\tRom\tB-LOC\tO\n"
)
CONLLU = (
    "# text = au chat\n1-2\tau\t_\t_\n1\ta\tADP\t0\n2\tle\tDET\t1\n2.1\tle\t_\t_\n3\tchat\tNOUN\t1\n\n#\n1\tb\tX\t0\n"
    "\n1-2\tcd\t_\t_\n"  # no word
)
NUMBERED = {  # the first column is no word, and the words are elsewhere
    "GermEval": (GERMEVAL, 2, 3, [["Anna", "singt"], ["Rom"]], [["B-PER", "O"], ["B-LOC"]]),
    "CoNLL-U": (CONLLU, 2, 3, [["a", "le", "chat"], ["b"]], [["ADP", "DET", "NOUN"], ["X"]]),
    "WebAnno": ("1-1\t0-4\tAnna\tO\n1-2\t5-9\tsings\tO\n", 3, 4, [["Anna", "sings"]], [["O", "O"]]),
    "CoNLL-2012": (
        "#begin document (a/b); part 000\na/b 0 0 Anna NNP -\na/b 0 1 sings VBZ -\n\n#end document\n",
        *(4, 5, [["Anna", "sings"]], [["NNP", "VBZ"]]),
    ),
}


@pytest.mark.parametrize("case", NUMBERED)
def test_a_first_column_that_holds_no_words_is_refused_and_the_words_are_chosen(tmp_path: Path, case: str) -> None:
    content, word_column, tag_column, words, tags = NUMBERED[case]
    for given in (None, tag_column):
        sentence = refusal(tmp_path, content, given)
        assert f"seems to number the words or to name their documents; pass --word-column {word_column} ('" in sentence
    path = tmp_path / "a.conllu"
    path.write_text(content)
    table = read_table(path, tag_column=tag_column, word_column=word_column)
    assert table.cells("tokens") == words and table.cells("tags") == tags
    if case == "CoNLL-U":
        assert table.word_lines == [[3, 4, 6], [9]]
        skipped = "ranges and empty nodes of CoNLL-U are no words and are skipped (3: '1-2', '2.1', '1-2')."
        assert table.notes == (f"{path}: {skipped}",)


@pytest.mark.parametrize("content", ["1\tO\n2\tO\n", "1984\tB-x\n", "1\n2\n", "1-1\tO\n", "w1\ta\tO\nw2\tb\tO\n"])
def test_words_that_look_like_numbers_can_be_named(tmp_path: Path, content: str) -> None:
    assert "--word-column 1 if these are the words" in refusal(tmp_path, content)
    (tmp_path / "a.conll").write_text(content)
    table = read_table(tmp_path / "a.conll", word_column=1)
    assert [cell for cells in table.cells("tokens") for cell in cells] == [
        line.split()[0] for line in content.splitlines()
    ]


def test_words_beside_numbers_and_toy_words_are_no_numbers(tmp_path: Path) -> None:
    for content in ("1\tO\nAnna\tO\n", "w1\tO\nw2\tO\n", "!\tO\n?\tO\n", "O\tX\nO\tX\n", "ha\tX\tY\n"):
        assert read(tmp_path, content).cells("tokens") == [[line.split()[0] for line in content.splitlines()]]
    unlabelled = read_table(tmp_path / "a.conll", word_column=1)
    assert list(unlabelled.columns) == ["tokens", "column 2", "column 3"]
    (tmp_path / "b.conll").write_text("1\tAnna\n2\tsings\n")
    assert list(read_table(tmp_path / "b.conll", word_column=2).columns) == ["column 1", "tokens"]
    with pytest.raises(FrostlineError, match="no column of words 3, because the lines have 2"):
        read_table(tmp_path / "b.conll", word_column=3)
    with pytest.raises(FrostlineError, match=r"no column of tags 2, .* give another one than 2, that of the words"):
        read_table(tmp_path / "b.conll", word_column=2, tag_column=2)


def test_errors_name_the_line(tmp_path: Path) -> None:
    assert "line 2: the line has 1 column, and the first line has 2" in refusal(tmp_path, "Anna\tO\nsings\n")
    assert "line 2: the line has no word" in refusal(tmp_path, "Anna\tO\n\tO\n")
    assert "no column of tags 4, because the lines have 3; give one from 2 on" in refusal(tmp_path, THREE, 4)
    assert "has no words" in refusal(tmp_path, "\n\t\n")
