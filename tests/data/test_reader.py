"""Every file ending and every kind of table in memory: texts stay as they are, and what is malformed is refused."""

import json
from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
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


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".CSV"])
def test_every_ending(tmp_path: Path, ending: str) -> None:
    frame = pd.DataFrame({"text": ["good", "bad"], "label": ["1", "0"]})
    path = tmp_path / f"a{ending}"
    if "json" in ending:
        frame.to_json(path, orient="records", lines=True)
    elif ending == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, sep="," if ending.lower() == ".csv" else "\t", index=False)
    table = read_table(str(path))
    assert table.texts("text") == ("good", "bad") and table.texts("label") == ("1", "0")


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


def test_a_missing_file_is_reported_with_a_similar_name(tmp_path: Path) -> None:
    written(tmp_path, "train.csv", "text,label\na,1\n")
    sentence = refusal(tmp_path / "trian.csv")
    assert "trian.csv: there is no such file (did you mean 'train.csv'?); check" in sentence
    assert "no folder" in refusal(tmp_path / "nowhere" / "train.csv")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "this is a folder" in refusal(tmp_path) and "--data" in refusal(tmp_path)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".json", ".parquet", ".conll"])
def test_a_pointer_of_git_lfs_is_refused(tmp_path: Path, ending: str) -> None:
    content = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    sentence = refusal(written(tmp_path, f"a{ending}", content))
    assert f"pointer of Git LFS instead of the file; get it with `git -C {tmp_path} lfs pull`" in sentence


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json"])
@pytest.mark.parametrize("content", ["", "\ufeff"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str, content: str) -> None:
    sentence = refusal(written(tmp_path, name, content))
    assert name in sentence and "is empty" in sentence and "give a file" in sentence


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "text,label\n"), ("a.tsv", "text\tlabel"), ("a.json", "[]"), ("a.jsonl", "{}\n")]
)
def test_a_file_without_rows_is_refused(tmp_path: Path, name: str, content: str) -> None:
    sentence = refusal(written(tmp_path, name, content))
    assert name in sentence and "the file has no rows" in sentence and "give a file" in sentence


WRITTEN = {
    "cp1252": "It costs 5 €, “really”",
    "cp949": "정말 좋은 영화예요",
    "cp1251": "Отличный фильм",
    "utf-16": "café noir",
    "utf-16-le": "café noir",
    "utf-32": "café noir",
}


@pytest.mark.parametrize("encoding", WRITTEN)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.conll"])
def test_a_file_in_another_encoding_is_refused_and_read_with_its_encoding(
    tmp_path: Path, name: str, encoding: str
) -> None:
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
    assert "pass --encoding " in refusal(path)
    table = read_table(path, encoding=encoding)
    assert table.notes == ()
    if name == "a.conll":
        assert table.cells("tokens") == [["good", word]]
    else:
        assert table.texts("text") == ("good", text)
        without_order = encoding.removesuffix("-le")
        assert read_table(path, encoding=without_order).texts("text") == ("good", text)


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (
            b"text\ncaf\xe9\n",
            None,
            "line 2: byte 8 (0xe9) is not UTF-8; in cp1252 it reads 'café': pass --encoding cp1252 if this is right, else that "
            "of the program that wrote it, or save it as UTF-8.",
        ),
        (b"text\ncaf\x81 \x8d\n", "cp1252", "is not cp1252"),
        ("text\ncafé".encode()[:-1], None, "begins a character that is cut off; the file is not complete"),
        (
            b"text\ncaf\xc3\xa9\ncaf\xe9\n",
            None,
            "as in 1 of the 2 lines with other characters than ASCII: the file mixes",
        ),
        (b"text\ncaf\xe9\n", "cp949", "line 2: byte 8 (0xe9) is not cp949; in cp1252 it reads 'café'"),
        (b"text\ncaf\xe9\n", "utf-16", "the file is not utf-16; leave out --encoding, or correct it"),
        ("text\na\n".encode("utf-16"), "cp1252", "the file is UTF-16, not cp1252; pass --encoding utf-16"),
        (b"text\na\n", "cp1525", "--encoding 'cp1525' is not known; give one such as"),
        (b"text\na\n", "rot13", "--encoding 'rot13' is not known"),
    ],
)
def test_wrong_encodings_are_refused(tmp_path: Path, content: bytes, encoding: str | None, message: str) -> None:
    path = written(tmp_path, "a.csv", content)
    sentence = refusal(path, encoding=encoding)
    assert message in sentence and (str(path) in sentence or "--encoding" in sentence)


def test_a_file_that_is_utf8_is_read_as_utf8_whatever_is_given(tmp_path: Path) -> None:
    """A folder may have files of both kinds."""
    for content in ("text\ncafé\n", "\ufefftext\ncafé\n", "text\n가나다\n"):
        path = written(tmp_path, "a.csv", content)
        table = read_table(path, encoding="cp1252")
        assert table.texts("text") == (content.split("\n")[1],)
        assert table.notes == (f"{path} is UTF-8, so it is not read as cp1252.",)
    for same in ("cp949", "utf-8", "UTF8", "utf_8_sig"):
        assert read_table(written(tmp_path, "b.csv", "text\na\n"), encoding=same).notes == ()
        assert same == "cp949" or read_table(path, encoding=same).notes == ()
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "d.parquet")
    for source in (tmp_path / "d.parquet", pd.DataFrame({"text": ["a"]})):
        assert "--encoding is for text files; leave it out" in refusal(source, encoding="cp1252")


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0", b"PK\x03\x04\x14\0\x06\0\xe9"])
def test_a_file_that_is_not_text_is_refused(tmp_path: Path, content: bytes) -> None:
    sentence = refusal(written(tmp_path, "a.csv", content))
    assert "this is not a UTF-8 text file; export the table as CSV" in sentence


def test_invalid_and_empty_parquet_files_are_refused(tmp_path: Path) -> None:
    assert "not a Parquet file" in refusal(written(tmp_path, "a.parquet", "text,label\n"))
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "b.parquet")
    assert "no rows" in refusal(tmp_path / "b.parquet")


def test_objects_that_are_not_tables_are_refused() -> None:

    dataset = datasets.Dataset.from_dict({"text": ["a"]})
    assert "one split of it" in refusal(datasets.DatasetDict(train=dataset))
    assert "a Series is not a table" in refusal(pd.Series(["a"]))
    assert "a list cannot be read as a table" in refusal([{"text": "a"}])
    assert "no rows" in refusal(pd.DataFrame({"text": []})) and "no rows" in refusal(dataset.select([]))


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


def test_column_names_for_a_file_without_header(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "x\t1\ty\nx\t0\tz\tmore\tand more\n")
    table = read_table(path, column_names=["source", "label", "text"])
    assert table.texts("text") == ("y", "z") and table.rows.tolist() == [1, 2]
    assert len(table.notes) == 1 and "1 row has more cells than the 3 named columns" in table.notes[0]


def test_column_names_are_stripped_and_missing_names_are_numbered(tmp_path: Path) -> None:
    assert list(read_table(written(tmp_path, "a.csv", ", text ,\n0,a,b\n")).columns) == ["column 1", "text", "column 3"]


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


def test_json_lines_keep_every_text(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": text, "label": i}, ensure_ascii=False) for i, text in enumerate(UNUSUAL))
    table = read_table(written(tmp_path, "a.jsonl", lines))
    assert table.texts("text") == tuple(UNUSUAL)
    assert table.rows.tolist() == list(range(1, len(UNUSUAL) + 1))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_an_invalid_line_is_refused(tmp_path: Path, name: str) -> None:
    sentence = refusal(written(tmp_path, name, '{"text": "a"}\n{"text": "b"\n'))
    assert f"{name}, line 2: this is not JSON" in sentence and "correct that line" in sentence
    assert "row 2: this is a list; write an object" in refusal(written(tmp_path, name, '{"text": "a"}\n["b"]\n'))
    assert "line 2: this is not JSON" in refusal(written(tmp_path, "b.json", '[{"text": "a"},\n{]'))
    assert "nested too deep" in refusal(written(tmp_path, name, '{"a": ' * 100_000))


ROWS = [{"text": f"t{n}", "label": "ab"[n % 2]} for n in range(3)]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    "content",
    [
        {"data": ROWS},
        {"train": ROWS, "test": ROWS},
        {"text": ["t0", "t1"], "label": ["a", "b"]},
        {"text": {"0": "t0", "1": "t1"}, "label": {"0": "a", "1": "b"}},
        {"data": []},
        {"version": "1", "data": ROWS},
        {"tokens": [["a"], ["b"]], "tags": [["O"], ["O"]]},
    ],
)
def test_one_object_with_all_examples_is_refused(
    tmp_path: Path, content: dict[str, object], indent: int | None
) -> None:
    for name in ("a.json", "a.jsonl"):
        sentence = refusal(written(tmp_path, name, json.dumps(content, indent=indent)))
        assert f"{name}: the file has one object instead of one for each example; write a list of objects" in sentence


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        ("\n".join(json.dumps(row, indent=1) for row in ROWS), "write one object per line or one list of objects"),
        ('[["t0", "a"], ["t1", "b"]]', "row 1: this is a list; write an object"),
        ('"[{}]"', "row 1: this is a str; write an object"),
        (json.dumps(ROWS)[:-9], "line 1: this is not JSON"),
        ('{"text": "a", " text": "b"}', "row 1: several columns are named 'text'"),
    ],
)
def test_other_json_is_refused_with_the_reason(tmp_path: Path, content: str, remedy: str) -> None:
    assert remedy in refusal(written(tmp_path, "a.json", content))


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
        ("\ud800", "a lone surrogate"),
    ],
)
def test_a_cell_that_is_not_a_text_is_refused(tmp_path: Path, cell: object, what: str) -> None:
    lines = "\n".join(json.dumps({"text": one}) for one in ("fine", cell))
    (tmp_path / "a.jsonl").write_text(lines)
    table = read_table(tmp_path / "a.jsonl")
    with pytest.raises(FrostlineError, match=r"a\.jsonl, row 2, column 'text': ") as caught:
        table.texts("text")
    assert what in str(caught.value)


def test_the_first_rows_keep_their_row_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\na\nb\nc\n")
    table = read_table(tmp_path / "a.csv").first(2)
    assert (
        len(table) == 2
        and table.texts("text") == ("a", "b")
        and table.location(1, "text").endswith("row 3, column 'text'")
    )


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("a.csv", "text;label\na, b;1\n", ("a, b",)),  # the first line decides the separator
        ("a.csv", 'text\tlabel\n"a, b\t1\n', ('"a, b',)),
        ("a.csv", "text,label\n\na,1\n\n", ("a",)),  # blank lines are no rows, except in a table with one column
        ("a.tsv", "text\tlabel\n\na\t1\n\n", ("a",)),
        ("a.txt", "text\na, b\n\nc\n", ("a, b", "", "c")),
        ("a.json", '[{"text": "a"}, {"text": "b"}]', ("a", "b")),
        ("a.json", '{"text": "a"}\n{"text": "b"}\n', ("a", "b")),
    ],
)
def test_forms_of_a_format(tmp_path: Path, name: str, content: str, texts: tuple[str, ...]) -> None:
    assert read_table(written(tmp_path, name, content)).texts("text") == texts


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.xlsx", "?", {}, "'.xlsx' is not known; save the table as one of .csv, .tsv, .txt, .jsonl"),
        ("a.tsv", "text\tlabel\ra\t1\r", {}, "old Macs"),
        ("a.tsv", "a\t1\tx\nb\t2\n", {"column_names": [*"123"]}, "row 2: the row has 2 cells and --column-names has 3"),
    ],
)
def test_other_files_that_are_refused(
    tmp_path: Path, name: str, content: str, options: dict[str, object], message: str
) -> None:
    assert message in refusal(written(tmp_path, name, content), **options)
