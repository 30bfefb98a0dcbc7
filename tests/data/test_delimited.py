"""CSV and TSV files: texts stay as they are, and malformed rows are refused."""

import time
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from frostline import FrostlineError
from frostline.data.columns import choose_columns
from frostline.data.reader import read_table

UNUSUAL = [
    '"half a quote',
    "a, b",
    "line\u2028separator",
    "next\x85line",
    "",
    "NA",
    "null",
    "None",
    "nan",
    "가나다",
    "\0",
    "\r",
]


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(source: object, **options: object) -> str:
    with pytest.raises(FrostlineError) as caught:
        read_table(source, **options)  # type: ignore[arg-type]
    sentence = str(caught.value)
    assert sentence.endswith(".") and "\n" not in sentence
    return sentence


def test_quotation_marks_in_tsv_are_literal(tmp_path: Path) -> None:
    lines = "".join(f"{text}\t{i}\n" for i, text in enumerate(UNUSUAL))
    table = read_table(written(tmp_path, "a.tsv", "text\tlabel\n" + lines))
    assert table.texts("text") == tuple(UNUSUAL)
    assert table.cells("label") == [str(i) for i in range(len(UNUSUAL))]
    assert table.rows.tolist() == list(range(2, len(UNUSUAL) + 2))


def test_csv_keeps_every_text(tmp_path: Path) -> None:
    texts = [*UNUSUAL, "two\nlines", "two\r\nlines", 'she said "no"']
    cells = "".join('"' + text.replace('"', '""') + f'",{i}\r\n' for i, text in enumerate(texts))
    table = read_table(written(tmp_path, "a.csv", "\ufefftext,label\r\n" + cells))
    assert table.texts("text") == tuple(texts)
    assert table.rows.tolist() == list(range(2, len(texts) + 2))  # a quoted line break does not start a row


def test_the_first_line_of_a_csv_decides_the_separator(tmp_path: Path) -> None:
    semicolons = read_table(written(tmp_path, "a.csv", "text;label\na, b;1\n"))
    tabs = read_table(written(tmp_path, "b.csv", 'text\tlabel\n"a, b\t1\n'))
    assert semicolons.texts("text") == ("a, b",) and tabs.texts("text") == ('"a, b',)


def test_one_column_without_a_separator(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, "a.txt", "text\na, b\n\nc\n")).texts("text") == ("a, b", "", "c")


def test_blank_lines_are_counted_but_are_not_rows(tmp_path: Path) -> None:
    for name, content in {"a.csv": "text,label\n\na,1\n\n", "a.tsv": "text\tlabel\n\na\t1\n\n"}.items():
        table = read_table(written(tmp_path, name, content))
        assert table.texts("text") == ("a",) and table.rows.tolist() == [3]


def test_column_names_for_a_file_without_header(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "x\t1\ty\nx\t0\tz\tmore\tand more\n")
    table = read_table(path, column_names=["source", "label", "text"])
    assert table.texts("text") == ("y", "z") and table.rows.tolist() == [1, 2]
    assert len(table.notes) == 1 and "1 row has more cells than the 3 named columns" in table.notes[0]


def test_very_long_texts_and_many_rows(tmp_path: Path) -> None:
    long = "word " * 1_000_000
    table = read_table(written(tmp_path, "a.csv", f"text,label\n{long},1\n"))
    assert table.texts("text") == (long,)
    start = time.perf_counter()
    assert len(read_table(written(tmp_path, "b.csv", "text,label\n" + '"a, b",1\n' * 150_000))) == 150_000
    assert time.perf_counter() - start < 5


def test_column_names_are_stripped_and_missing_names_are_numbered(tmp_path: Path) -> None:
    assert list(read_table(written(tmp_path, "a.csv", ", text ,\n0,a,b\n")).columns) == ["column 1", "text", "column 3"]


def test_lines_that_end_with_carriage_returns_are_refused(tmp_path: Path) -> None:
    assert "old Macs" in refusal(written(tmp_path, "a.tsv", "text\tlabel\ra\t1\r"))


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("a.csv", 'text,label\n"two\nlines",1\na, b,1\n', "in double quotes"),
        ("a.tsv", "text\tlabel\na\t1\na\tb\t1\n", "remove the tab or line break from"),
    ],
)
def test_a_row_with_too_many_or_too_few_cells_is_refused(tmp_path: Path, name: str, content: str, remedy: str) -> None:
    sentence = refusal(written(tmp_path, name, content))
    assert f"{name}, row 3: the row has 3 cells and the header has 2;" in sentence and remedy in sentence
    assert "row 3: the row has 1 cell and" in refusal(written(tmp_path, name, content.splitlines()[0] + "\n\na\n"))


def test_a_row_with_fewer_cells_than_column_names_is_refused(tmp_path: Path) -> None:
    sentence = refusal(written(tmp_path, "a.tsv", "a\t1\tx\nb\t2\n"), column_names=["one", "two", "three"])
    assert "row 2: the row has 2 cells and --column-names has 3" in sentence


def test_column_names_are_refused_if_there_is_a_header(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "text,label\na,1\n")
    assert "leave out --column-names" in refusal(path, column_names=["text", "label"])
    assert "--column-names" in refusal(written(tmp_path, "a.jsonl", '{"text": "a"}'), column_names=["text"])
    assert "--column-names" in refusal(pd.DataFrame({"text": ["a"]}), column_names=["text"])


@pytest.mark.parametrize("row", ['"She" said so,1', '"never closed,1'])
def test_unbalanced_quotation_marks_are_refused(tmp_path: Path, row: str) -> None:
    sentence = refusal(written(tmp_path, "a.csv", f"text,label\ngood,1\n{row}\nbad,0\n"))
    assert "a.csv, row 3: the quotation marks do not match" in sentence and ".tsv" in sentence


def test_repeated_columns_are_refused(tmp_path: Path) -> None:
    assert "row 1: several columns are named 'text'" in refusal(written(tmp_path, "a.csv", "text,text\na,b\n"))
    assert "--column-names: several columns are named 'x'" in refusal(
        written(tmp_path, "b.csv", "a,b\n"), column_names=["x", "x"]
    )
    assert "several columns are named 'text'" in refusal(pa.table([["a"], ["b"]], names=["text", "text"]))
    assert "several columns are named 'text'" in refusal(pd.DataFrame([["a", "b"]], columns=["text", "text"]))


MANY = "a fine film,good\na dull film,bad\n" * 2000
WITHOUT_HEADER = {
    "a late row is longer": (
        f"the first film,good\n{MANY}one, two,bad\n",
        "row 4002: the row has 3 cells and row 1 has 2; ",
    ),
    "a late row is shorter": (f"the first film,good\n{MANY}one\n", "row 4002: the row has 1 cell and row 1 has 2; "),
    "a label recurs": (f"the first film,good\n{MANY}", ""),
    "a number stands there": ("a film,1\na plot,0\n", ""),
    "a long text stands there": ("this film is not one that I would see,x\na plot,y\n", ""),
    "two cells are equal": ("1,1\n0,1\n", ""),
}


@pytest.mark.parametrize("ending", ["csv", "tsv", "tabs.csv"])
@pytest.mark.parametrize("case", WITHOUT_HEADER)
def test_a_file_without_a_header_says_so(tmp_path: Path, case: str, ending: str) -> None:
    content, place = WITHOUT_HEADER[case]
    path = written(tmp_path, f"a.{ending}", content if ending == "csv" else content.replace(",", "\t"))
    with pytest.raises(FrostlineError) as caught:
        choose_columns(read_table(path))
    message = str(caught.value)
    assert place in message and "the file seems to have no header, because " in message
    assert "name the columns with --column-names" in message and "save the file" not in message
    assert message.endswith(("--column-names.", ", or choose with --text-column if row 1 is a header."))


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        ("text,label\nfine,good\na, b,bad\n", "put a text that contains ',' or a line break in double quotes."),
        ("text\tlabel\nfine\tgood\na\tb\tbad\n", "or save the file as .csv with commas."),
        ("review_txt,verdict\nfine,good\na, b,bad\n", "put a text that contains ',' or a line break in double quotes."),
        ("text,2019\n1,2\n1,2,3\n", "put a text that contains ',' or a line break in double quotes."),
    ],
)
def test_a_ragged_row_below_a_header_needs_quotes(tmp_path: Path, content: str, remedy: str) -> None:
    assert refusal(written(tmp_path, "a.csv", content)).endswith(remedy)
