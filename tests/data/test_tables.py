"""Files come out as they stand, and what cannot be read is refused in one sentence."""

import json
import time
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frostline import FrostlineError
from frostline.data import Table, read_table

ODD = [
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


def test_tsv_is_literal(tmp_path: Path) -> None:
    lines = "".join(f"{text}\t{i}\n" for i, text in enumerate(ODD))
    table = read_table(written(tmp_path, "a.tsv", "text\tlabel\n" + lines))
    assert table.texts("text") == tuple(ODD)
    assert table.cells("label") == [str(i) for i in range(len(ODD))]
    assert table.rows.tolist() == list(range(2, len(ODD) + 2))


def test_csv_keeps_every_text(tmp_path: Path) -> None:
    texts = [*ODD, "two\nlines", "two\r\nlines", 'she said "no"']
    cells = "".join('"' + text.replace('"', '""') + f'",{i}\r\n' for i, text in enumerate(texts))
    table = read_table(written(tmp_path, "a.csv", "\ufefftext,label\r\n" + cells))
    assert table.texts("text") == tuple(texts)
    assert table.rows.tolist() == list(range(2, len(texts) + 2))  # a quoted line break makes no new row


def test_json_lines_keep_every_text(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": text, "label": i}, ensure_ascii=False) for i, text in enumerate(ODD))
    table = read_table(written(tmp_path, "a.jsonl", lines))
    assert table.texts("text") == tuple(ODD)
    assert table.rows.tolist() == list(range(1, len(ODD) + 1))


@pytest.mark.parametrize("content", ['[{"text": "a"}, {"text": "b"}]', '{"text": "a"}\n{"text": "b"}\n'])
def test_json_is_a_list_or_lines(tmp_path: Path, content: str) -> None:
    assert read_table(written(tmp_path, "a.json", content)).texts("text") == ("a", "b")


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


def test_the_first_line_of_a_csv_decides_the_separator(tmp_path: Path) -> None:
    semicolons = read_table(written(tmp_path, "a.csv", "text;label\na, b;1\n"))
    tabs = read_table(written(tmp_path, "b.csv", 'text\tlabel\n"a, b\t1\n'))
    assert semicolons.texts("text") == ("a, b",) and tabs.texts("text") == ('"a, b',)


def test_one_column_without_a_separator(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, "a.txt", "text\na, b\n\nc\n")).texts("text") == ("a, b", "", "c")


def test_blank_lines_count_and_are_no_rows(tmp_path: Path) -> None:
    for name, content in {"a.csv": "text,label\n\na,1\n\n", "a.tsv": "text\tlabel\n\na\t1\n\n"}.items():
        table = read_table(written(tmp_path, name, content))
        assert table.texts("text") == ("a",) and table.rows.tolist() == [3]


def test_column_names_for_a_file_without_header(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "x\t1\ty\nx\t0\tz\tmore\tand more\n")
    table = read_table(path, column_names=["source", "label", "text"])
    assert table.texts("text") == ("y", "z") and table.rows.tolist() == [1, 2]
    assert len(table.notes) == 1 and "1 row has more cells than the 3 columns" in table.notes[0]


def test_very_long_texts_and_many_rows(tmp_path: Path) -> None:
    long = "word " * 1_000_000
    table = read_table(written(tmp_path, "a.csv", f"text,label\n{long},1\n"))
    assert table.texts("text") == (long,)
    start = time.perf_counter()
    assert len(read_table(written(tmp_path, "b.csv", "text,label\n" + '"a, b",1\n' * 150_000))) == 150_000
    assert time.perf_counter() - start < 5


def test_names_are_stripped_and_the_nameless_numbered(tmp_path: Path) -> None:
    assert list(read_table(written(tmp_path, "a.csv", ", text ,\n0,a,b\n")).columns) == ["column 1", "text", "column 3"]


def test_data_sets_keep_their_class_names(tmp_path: Path) -> None:
    import datasets

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


def test_missing_file_names_the_near_one(tmp_path: Path) -> None:
    written(tmp_path, "train.csv", "text,label\na,1\n")
    sentence = refusal(tmp_path / "trian.csv")
    assert "trian.csv: there is no such file, the nearest is 'train.csv'; check" in sentence
    assert "no folder" in refusal(tmp_path / "nowhere" / "train.csv")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "this is a folder" in refusal(tmp_path) and "--data" in refusal(tmp_path)


def test_unknown_ending(tmp_path: Path) -> None:
    sentence = refusal(written(tmp_path, "a.xlsx", "?"))
    assert "'.xlsx' is not known" in sentence and ".csv, .tsv, .txt, .jsonl" in sentence


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json"])
@pytest.mark.parametrize("content", ["", "\ufeff"])
def test_empty_file(tmp_path: Path, name: str, content: str) -> None:
    sentence = refusal(written(tmp_path, name, content))
    assert name in sentence and "is empty" in sentence and "give a file" in sentence


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "text,label\n"), ("a.tsv", "text\tlabel"), ("a.json", "[]"), ("a.jsonl", "{}\n")]
)
def test_header_only(tmp_path: Path, name: str, content: str) -> None:
    sentence = refusal(written(tmp_path, name, content))
    assert name in sentence and "there are no rows in it" in sentence and "give a file" in sentence


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json"])
def test_not_utf8_says_where_and_how_to_save(tmp_path: Path, name: str) -> None:
    sentence = refusal(written(tmp_path, name, b"text,label\ngood,1\ncaf\xe9,0\n"))
    assert "line 3: byte 21 (0xe9) is not UTF-8" in sentence and "iconv -f latin1 -t utf-8" in sentence


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_utf16_is_named(tmp_path: Path, encoding: str) -> None:
    sentence = refusal(written(tmp_path, "a.tsv", "text\tlabel\na\t1\n".encode(encoding)))
    assert "UTF-16" in sentence and "iconv -f utf-16" in sentence


def test_old_mac_line_ends(tmp_path: Path) -> None:
    assert "old Macs" in refusal(written(tmp_path, "a.tsv", "text\tlabel\ra\t1\r"))


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("a.csv", 'text,label\n"two\nlines",1\na, b,1\n', "in double quotes"),
        ("a.tsv", "text\tlabel\na\t1\na\tb\t1\n", "take the tab or line break out"),
    ],
)
def test_ragged_row(tmp_path: Path, name: str, content: str, remedy: str) -> None:
    sentence = refusal(written(tmp_path, name, content))
    assert f"{name}, row 3: 3 cells where the header has 2;" in sentence and remedy in sentence
    assert "row 3: 1 cells where" in refusal(written(tmp_path, name, content.splitlines()[0] + "\n\na\n"))


def test_too_few_cells_for_the_columns_named(tmp_path: Path) -> None:
    sentence = refusal(written(tmp_path, "a.tsv", "a\t1\tx\nb\t2\n"), column_names=["one", "two", "three"])
    assert "row 2: 2 cells where 3 columns are named" in sentence


def test_column_names_beside_a_header(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "text,label\na,1\n")
    assert "leave out --column-names" in refusal(path, column_names=["text", "label"])
    assert "--column-names" in refusal(written(tmp_path, "a.jsonl", '{"text": "a"}'), column_names=["text"])
    assert "--column-names" in refusal(pd.DataFrame({"text": ["a"]}), column_names=["text"])


@pytest.mark.parametrize("row", ['"She" said so,1', '"never closed,1'])
def test_quotation_marks_that_do_not_add_up(tmp_path: Path, row: str) -> None:
    sentence = refusal(written(tmp_path, "a.csv", f"text,label\ngood,1\n{row}\nbad,0\n"))
    assert "a.csv, row 3: its quotation marks do not add up" in sentence and ".tsv" in sentence


def test_a_column_that_stands_twice(tmp_path: Path) -> None:
    assert "row 1: 'text' stands more than once" in refusal(written(tmp_path, "a.csv", "text,text\na,b\n"))
    assert "--column-names: 'x'" in refusal(written(tmp_path, "b.csv", "a,b\n"), column_names=["x", "x"])
    assert "'text' stands more than once" in refusal(pa.table([["a"], ["b"]], names=["text", "text"]))
    assert "'text' stands more than once" in refusal(pd.DataFrame([["a", "b"]], columns=["text", "text"]))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_broken_json_line(tmp_path: Path, name: str) -> None:
    sentence = refusal(written(tmp_path, name, '{"text": "a"}\n{"text": "b"\n'))
    assert f"{name}, line 2: this is not JSON" in sentence and "correct that line" in sentence
    assert "row 2: a list where an object" in refusal(written(tmp_path, name, '{"text": "a"}\n["b"]\n'))
    assert "line 2: this is not JSON" in refusal(written(tmp_path, "b.json", '[{"text": "a"},\n{]'))
    assert "nested too deep" in refusal(written(tmp_path, name, '{"a": ' * 100_000))


def test_not_a_parquet_file(tmp_path: Path) -> None:
    assert "not a Parquet file" in refusal(written(tmp_path, "a.parquet", "text,label\n"))
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "b.parquet")
    assert "no rows" in refusal(tmp_path / "b.parquet")


def test_what_is_no_table() -> None:
    import datasets

    dataset = datasets.Dataset.from_dict({"text": ["a"]})
    assert "one split of it" in refusal(datasets.DatasetDict(train=dataset))
    assert "a Series is not a table" in refusal(pd.Series(["a"]))
    assert "a list cannot be read as a table" in refusal([{"text": "a"}])
    assert "no rows" in refusal(pd.DataFrame({"text": []})) and "no rows" in refusal(dataset.select([]))


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        (None, "the text is missing; write an empty text or take the row out"),
        (7, "7 is not a text; write it as a text"),
        (["a"], "['a'] is not a text"),
        ({"a": 1}, "{'a': 1} is not a text"),
        ("\ud800", "a lone surrogate"),
    ],
)
def test_a_cell_that_is_no_text(tmp_path: Path, cell: object, what: str) -> None:
    lines = "\n".join(json.dumps({"text": one}) for one in ("fine", cell))
    table: Table = read_table(written(tmp_path, "a.jsonl", lines))
    with pytest.raises(FrostlineError, match=r"a\.jsonl, row 2, column 'text': ") as caught:
        table.texts("text")
    assert what in str(caught.value)
