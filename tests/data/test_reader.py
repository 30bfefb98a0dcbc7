"""Every file ending and every kind of table in memory: texts stay as they are, and what is malformed is refused."""

import json
from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frostline.data.columns import choose_columns
from frostline.data.reader import read_table
from loaded import sentence_of

UNUSUAL = [
    '"half a quote', "a, b", "line\u2028separator", "next\x85line", "", "NA", "null", "None", "nan", "가나다", "\0",
    "\r",
]  # fmt: skip


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(source: object, **options: object) -> str:
    return sentence_of(read_table, source, **options)


def test_data_sets_keep_their_class_names(tmp_path: Path) -> None:

    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])})
    dataset = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    chosen = read_table(dataset.select([2, 0]))
    assert chosen.texts("text") == ("c", "a") and chosen.cells("label") == [-1, 1]
    dataset.to_parquet(str(tmp_path / "a.parquet"))
    for table in (chosen, read_table(tmp_path / "a.parquet")):
        assert table.class_names == {"label": ("neg", "pos")}


def test_pandas_and_arrow() -> None:
    frame = pd.DataFrame({"text": ["a", None], "label": pd.Categorical(["x", "y"]), "n": [1, 2]}, index=[7, 7])
    table = read_table(frame)
    assert table.cells("text") == ["a", None] and table.cells("label") == ["x", "y"] and table.cells("n") == [1, 2]
    arrow = pa.table({"text": pa.array(["a", "b"]).dictionary_encode()})
    assert read_table(arrow).texts("text") == ("a", "b")
    views = pa.table({"text": pa.array(["a", "b"], pa.string_view())})  # as other libraries hand them over
    assert read_table(views).take([1]).texts("text") == ("b",)


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "train.csv", "text,label\na,1\n")
    assert "trian.csv: there is no such file (did you mean 'train.csv'?); check" in refusal(tmp_path / "trian.csv")
    assert "no folder" in refusal(tmp_path / "nowhere" / "train.csv")
    assert "this is a folder" in refusal(tmp_path) and "--data" in refusal(tmp_path)


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
ROWS = [{"text": f"t{n}", "label": "ab"[n % 2]} for n in range(3)]
LINES = "\n".join(json.dumps(row, indent=1) for row in ROWS)
IN_QUOTES = "put a text that contains ',' or a line break in double quotes."
REFUSED: list[tuple[str, str | bytes, dict[str, object], str]] = [  # file endings, content, options, part of the sentence
    *((end, content, {}, "the file is empty; give") for end in (".csv", ".tsv", ".jsonl", ".json") for content in ("", "\ufeff")),
    (".csv", "text,label\n", {}, "the file has no rows; give a file"),
    (".tsv", "text\tlabel", {}, "the file has no rows; give a file"),
    (".json", "[]", {}, "the file has no rows; give a file"),
    (".jsonl", "{}\n", {}, "the file has no rows; give a file"),
    (".parquet", "text,label\n", {}, "this is not a Parquet file"),
    *((end, LFS, {}, "pointer of Git LFS instead of the file; get it") for end in (".csv", ".json", ".parquet", ".conll")),
    (".csv", b"\x89PNG\r\n\x1a\n\0\0", {}, "this is not a text file in UTF-8; export the table as CSV"),
    (".xlsx", "?", {}, "'.xlsx' is not known; save the table as one of .csv, .tsv, .txt, .jsonl"),
    # Encodings
    (
        ".csv",
        b"text\ncaf\xe9\n",
        {},
        "line 2: byte 8 (0xe9) is not UTF-8; in cp1252 it reads 'caf\xe9': pass --encoding cp1252 if this is right, else that of "
        "the program that wrote it, or save it as UTF-8.",
    ),
    (".csv", b"text\ncaf\x81 \x8d\n", {"encoding": "cp1252"}, "is not cp1252"),
    (".csv", "text\ncaf\xe9".encode()[:-1], {}, "begins a character that is cut off; the file is not complete"),
    (".csv", b"text\ncaf\xc3\xa9\ncaf\xe9\n", {}, "1 of the 2 lines with other characters than ASCII: the file mixes encodings"),
    (".csv", b"text\ncaf\xe9\n", {"encoding": "cp949"}, "line 2: byte 8 (0xe9) is not cp949; in cp1252 it reads 'caf\xe9'"),
    (".csv", b"text\ncaf\xe9\n", {"encoding": "utf-16"}, "line 2: byte 8 (0xe9) is not utf-16"),
    (".csv", b"text\na\n", {"encoding": "cp1525"}, "--encoding 'cp1525' is not known; give one such as"),
    (".csv", b"text\na\n", {"encoding": "rot13"}, "--encoding 'rot13' is not known"),
    # Rows and columns
    (".csv", 'text,label\n"two\nlines",1\na, b,1\n', {}, f"row 3: the row has 3 cells and the header has 2; {IN_QUOTES}"),
    (".tsv", "text\tlabel\na\t1\na\tb\t1\n", {}, "header has 2; remove the tab or line break from its text, or save the file as"),
    (".csv", "text\tlabel\nfine\tgood\na\tb\tbad\n", {}, "or save the file as .csv with commas."),
    (".csv", "text,label\n\na\n", {}, "row 3: the row has 1 cell and"),
    (".csv", "review_txt,verdict\nfine,good\na, b,bad\n", {}, IN_QUOTES),
    (".csv", "text,2019\n1,2\n1,2,3\n", {}, IN_QUOTES),
    (".csv", 'text,label\ngood,1\n"She" said so,1\nbad,0\n', {}, "row 3: the quotation marks do not match"),
    (".csv", 'text,label\ngood,1\n"never closed,1\nbad,0\n', {}, "or save the file as .tsv, where quotation marks are literal"),
    (".csv", "text,text\na,b\n", {}, "row 1: several columns are named 'text'"),
    (".csv", "a,b\n", {"column_names": ["x", "x"]}, "--column-names: several columns are named 'x'"),
    (".csv", "text,label\na,1\n", {"column_names": ["text", "label"]}, "leave out --column-names"),
    (".tsv", "a\t1\tx\nb\t2\n", {"column_names": [*"123"]}, "row 2: the row has 2 cells and --column-names has 3"),
    (".jsonl", '{"text": "a"}', {"column_names": ["text"]}, "--column-names is for CSV and TSV files"),
    (".conll", "a\tO\n", {"column_names": ["word", "tag"]}, "--column-names is for CSV and TSV files"),
    (".csv", "text,label\na,b\n", {"tag_column": 2}, "--tag-column is for CoNLL files; name the column with --label-column"),
    # JSON
    *((end, '{"text": "a"}\n{"text": "b"\n', {}, "line 2: this is not JSON") for end in (".jsonl", ".json")),
    (".jsonl", '{"text": "a"}\n["b"]\n', {}, "row 2: this is a list; write an object"),
    (".jsonl", '{"text": "a", "label": 0, " label": 1}\n', {}, "row 1: several columns are named 'label'"),
    (".json", '[{"text": "a"}, {"text": "b", "text": "c"}]', {}, "row 2: several columns are named 'text'"),
    (".json", '[{"text": "a"},\n{]', {}, "line 2: this is not JSON"),
    (".json", '{"a": ' * 100_000, {}, "nested too deep"),
    (".jsonl", f'{{"a": {"1" * 5000}}}', {}, "line 1: this is not JSON (a number is too long)"),
    (".json", LINES, {}, "write one object per line or one list of objects"),
    (".json", '[["t0", "a"], ["t1", "b"]]', {}, "row 1: this is a list; write an object"),
    (".json", '"[{}]"', {}, "row 1: this is a str; write an object"),
    (".json", json.dumps(ROWS)[:-9], {}, "line 1: this is not JSON"),
    *(
        (end, json.dumps(content, indent=indent), {}, "the file has one object instead of one for each example; write a list of")
        for end, indent in ((".json", None), (".json", 1), (".jsonl", None))
        for content in (
            {"data": ROWS},
            {"train": ROWS, "test": ROWS},
            {"text": ["t0", "t1"], "label": ["a", "b"]},
            {"text": {"0": "t0", "1": "t1"}, "label": {"0": "a", "1": "b"}},
            {"data": []},
            {"tokens": [["a"], ["b"]], "tags": [["O"], ["O"]]},
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("ending", "content", "options", "message"), REFUSED)
def test_bad_files_are_refused(
    tmp_path: Path, ending: str, content: str | bytes, options: dict[str, object], message: str
) -> None:
    path = written(tmp_path, f"a{ending}", content)
    sentence = refusal(path, **options)
    assert message in sentence and (str(path) in sentence or sentence.startswith("--"))


def test_bad_tables_in_memory_are_refused(tmp_path: Path) -> None:
    dataset, frame = datasets.Dataset.from_dict({"text": ["a"]}), pd.DataFrame({"text": ["a"]})
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "empty.parquet")
    frame.to_parquet(tmp_path / "a.parquet")
    for source, options, message in (
        (datasets.DatasetDict(train=dataset), {}, "one split of it"),
        (pd.Series(["a"]), {}, "a Series is not a table"),
        ([{"text": "a"}], {}, "a list cannot be read as a table"),
        (frame[:0], {}, "no rows"),
        (dataset.select([]), {}, "no rows"),
        (tmp_path / "empty.parquet", {}, "no rows"),
        (pa.table([["a"], ["b"]], names=["text", "text"]), {}, "several columns are named 'text'"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), {}, "several columns are named 'text'"),
        (frame, {"column_names": ["text"]}, "--column-names is for CSV and TSV files"),
        (frame, {"tag_column": 2}, "the data: --tag-column is for CoNLL files"),
        (frame, {"encoding": "cp1252"}, "--encoding is for text files; leave it out"),
        (tmp_path / "a.parquet", {"encoding": "cp1252"}, "--encoding is for text files; leave it out"),
    ):
        assert message in refusal(source, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "row"),
    [
        ('label,text\nyes,a\nno,"I love\nyes,it\nno,so"\nno,b\n', 3),  # two quotation marks that belong to the texts
        ('text,label\n"I love,yes\nit,no\nso",no\na,yes\nb,yes\n', 2),
        ('id;label;text\n1;a;x\n2;b;"so\n3;b;y\n4;b;it"\n5;b;z\n', 3),
        ('text,label\n"Dear all,\nyes, it is,\nno",yes\na,no\nb,yes\n', None),
        ('text,label\n"one\n,\n",\na,\nb,yes\n', None),
    ],
)
def test_rows_that_a_quotation_mark_swallows_are_named(tmp_path: Path, content: str, row: int | None) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    notes = read_table(path).notes
    assert notes == () if row is None else f"a cell has lines that look like rows of their own (row {row})" in notes[0]


FORMATS = ("a.tsv", "a.jsonl", "a.json", "a.conll")
WRITTEN = {
    "cp1252": "It costs 5 €, “really”",
    "cp949": "정말 좋은 영화예요",
    "cp1251": "Отличный фильм",
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"), "café noir"),
}


@pytest.mark.parametrize(
    ("cells", "row"),
    [
        (["a film", '"He said ""no""."'], "3"),  # as pandas writes it
        (['"A film"', '"a plot"'], "2, 3"),
        (['"A film, or two"', "a plot", '"a plot, or two"'], "2, 4"),  # as a spreadsheet writes it
        (['"A film, or two"', "a plot, too", '"a plot, or two"'], None),
        (['"A film"', "a plot"], None),  # the whole text is a quotation
        (['He said "no".', '"He said ""no""."'], None),  # marks belong to texts, as in published files
    ],
)
def test_quotation_marks_that_a_program_has_added_are_named(tmp_path: Path, cells: list[str], row: str | None) -> None:
    """They stay, because published tab-separated files have them in their texts."""
    table = read_table(written(tmp_path, "t.tsv", "text\tlabel\n" + "".join(f"{cell}\t0\n" for cell in cells)))
    assert table.texts("text") == tuple(cells)
    assert table.notes == () if row is None else f"in quotation marks (row {row}), as programs" in table.notes[0]


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        *(("a.csv", encoding) for encoding in WRITTEN),
        *((name, "utf-16") for name in FORMATS),
        *((name, "cp949") for name in FORMATS),
    ],
)
def test_a_file_in_another_encoding_is_read_with_it_and_refused_without(
    tmp_path: Path, name: str, encoding: str
) -> None:
    """A byte order mark says the encoding, also if another one is given."""
    text = WRITTEN[encoding]
    word = text.replace(" ", "_")
    lines = {
        ".csv": f'text,label\ngood,1\n"{text}",0\n',
        ".tsv": f"text\tlabel\ngood\t1\n{text}\t0\n",
        ".jsonl": f'{{"text": "good"}}\n{{"text": "{text}"}}\n',
        ".json": f'[\n{{"text": "good"}},\n{{"text": "{text}"}}]\n',
        ".conll": f"good\tO\n{word}\tO\n\n",
    }
    path = written(tmp_path, name, lines[Path(name).suffix].encode(encoding))
    marked = encoding in ("utf-16", "utf-32", "utf-8-sig")
    if not marked:
        assert "pass --encoding " in refusal(path)
    for given in (None, "cp1252") if marked else (encoding, encoding.removesuffix("-le").removesuffix("-be")):
        table = read_table(path, encoding=given)
        assert name == "a.conll" or table.texts("text") == ("good", text)
        assert name != "a.conll" or table.cells("tokens") == [["good", word]]


def test_a_file_that_is_utf8_is_read_as_utf8_whatever_is_given(tmp_path: Path) -> None:
    """A folder may have files of both kinds."""
    for text in ("caf\xe9", "가나다"):
        path = written(tmp_path, "a.csv", f"text\n{text}\n")
        for given in ("cp1252", "utf-16", "utf-8", "UTF8", "utf_8_sig"):
            assert read_table(path, encoding=given).texts("text") == (text,)
    assert read_table(written(tmp_path, "b.csv", "text\na\n"), encoding="cp949").texts("text") == ("a",)


LINES_IN_TEXTS = [*UNUSUAL, "two\nlines", "two\r\nlines", 'she said "no"']
QUOTED = "".join('"' + text.replace('"', '""') + f'",{n}\r\n' for n, text in enumerate(LINES_IN_TEXTS))
LITERAL = "".join(f"{text}\t{n}\n" for n, text in enumerate(UNUSUAL))
JSON_LINES = "".join(
    json.dumps({"text": text, "label": n}, ensure_ascii=False) + "\n" for n, text in enumerate(UNUSUAL)
)


@pytest.mark.parametrize(
    ("name", "content", "texts", "first"),
    [
        ("a.csv", f"\ufefftext,label\r\n{QUOTED}", LINES_IN_TEXTS, 2),  # a quoted line break does not start a row
        ("a.tsv", f"text\tlabel\n{LITERAL}", UNUSUAL, 2),  # quotation marks are literal
        ("a.jsonl", JSON_LINES, UNUSUAL, 1),
    ],
)
def test_every_text_is_kept(tmp_path: Path, name: str, content: str, texts: list[str], first: int) -> None:
    table = read_table(written(tmp_path, name, content))
    assert table.texts("text") == tuple(texts) and list(map(int, table.cells("label"))) == list(range(len(texts)))
    assert table.rows.tolist() == list(range(first, len(texts) + first))


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        ('text, label\n"a, b", "pos"\n', ("a, b", "pos")),
        ("text; label\na; pos\n", ("a", "pos")),
        ("text,label\na, pos\n", ("a", " pos")),
    ],
)
def test_blanks_after_separators_belong_to_no_cell(tmp_path: Path, content: str, cells: tuple[str, str]) -> None:
    table = read_table(written(tmp_path, "a.csv", content))
    assert (*table.texts("text"), *table.texts("label")) == cells
    assert any("a blank follows each separator of row 1" in note for note in table.notes) == (cells[1] == "pos")


def test_column_names_for_a_file_without_header(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "x\t1\ty\nx\t0\tz\tmore\tand more\n")
    table = read_table(path, column_names=["source", "label", "text"])
    assert table.texts("text") == ("y", "z") and table.rows.tolist() == [1, 2]
    assert len(table.notes) == 1 and "1 row has more cells than the 3 named columns" in table.notes[0]


def test_column_names_are_stripped_and_missing_names_are_numbered(tmp_path: Path) -> None:
    assert list(read_table(written(tmp_path, "a.csv", ", text ,\n0,a,b\n")).columns) == ["column 1", "text", "column 3"]


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
    message = sentence_of(lambda: choose_columns(read_table(path)))
    assert place in message and "the file seems to have no header, because " in message
    assert "name the columns with --column-names" in message and "save the file" not in message
    assert message.endswith(("--column-names.", ", or choose with --text-column if row 1 is a header."))


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    "row",
    [{"text": "a", "labels": ["x"]}, {"tokens": ["a", "b"], "tags": ["O", "O"]}, {"text": "a", "meta": {"id": [1]}}],
)
def test_one_object_is_a_row(tmp_path: Path, row: dict[str, object], indent: int | None) -> None:
    table = read_table(written(tmp_path, "a.json", json.dumps(row, indent=indent)))
    assert len(table) == 1 and {name: table.cells(name)[0] for name in table.columns} == row


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        (["a"], "['a'] is not a text; write a text, or name another column"),
        ({"a": 1}, "{'a': 1} is not a text; write one of its values ('a'), or name another column"),
        ("\ud800", "the text contains half a character (a lone surrogate)"),
    ],
)
def test_a_cell_that_is_not_a_text_is_refused(tmp_path: Path, cell: object, what: str) -> None:
    lines = "\n".join(json.dumps({"text": one}) for one in ("fine", cell))
    (tmp_path / "a.jsonl").write_text(lines)
    table = read_table(tmp_path / "a.jsonl")
    assert f"a.jsonl, row 2, column 'text': {what}" in sentence_of(table.texts, "text")


def test_the_first_rows_keep_their_row_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\na\nb\nc\n")
    table = read_table(tmp_path / "a.csv").first(2)
    assert len(table) == 2 and table.texts("text") == ("a", "b")
    assert table.location(1, "text").endswith("row 3, column 'text'")


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("a.csv", "text;label\na, b;1\n", ("a, b",)),  # the first line decides the separator
        ("a.csv", 'text\tlabel\n"a, b\t1\n', ('"a, b',)),
        ("a.csv", "text,label\n\na,1\n\n", ("a",)),  # blank lines are no rows, except in a table with one column
        ("a.tsv", "text\tlabel\n\na\t1\n\n", ("a",)),
        ("a.txt", "text\na, b\n\nc\n", ("a, b", "", "c")),
        ("a.CSV", "text,label\na,1\n", ("a",)),
        ("a.ndjson", '{"text": "a"}\n{"text": "b"}\n', ("a", "b")),
        ("a.json", '[{"text": "a"}, {"text": "b"}]', ("a", "b")),
        ("a.json", '{"text": "a"}\n{"text": "b"}\n', ("a", "b")),
    ],
)
def test_forms_of_a_format(tmp_path: Path, name: str, content: str, texts: tuple[str, ...]) -> None:
    assert read_table(written(tmp_path, name, content)).texts("text") == texts
