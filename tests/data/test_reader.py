"""Every file ending and every kind of table in memory, and errors that all formats share."""

from pathlib import Path

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frostline import FrostlineError
from frostline.data.reader import read_table


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


def test_an_unknown_file_ending_is_refused(tmp_path: Path) -> None:
    sentence = refusal(written(tmp_path, "a.xlsx", "?"))
    assert "'.xlsx' is not known" in sentence and ".csv, .tsv, .txt, .jsonl" in sentence


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


WRITTEN = {  # what a file holds, and the encoding that the message names for it
    "cp1252": ("It costs 5 €, “really”", "cp1252"),
    "latin1": ("café noir", "cp1252"),
    "mac_roman": ("the café, don’t go", "mac_roman"),
    "cp850": ("un café très bien", None),
    "cp1250": ("zażółć gęślą jaźń", "cp1250"),
    "cp1251": ("Отличный фильм", "cp1251"),
    "koi8_r": ("Отличный фильм", "koi8_r"),
    "cp1253": ("καλή ταινία", "cp1253"),
    "cp1256": ("فيلم جيد", "cp1256"),
    "cp949": ("정말 좋은 영화예요", "cp949"),
    "euc_kr": ("정말 좋은 영화예요", "cp949"),
    "shift_jis": ("これは良い映画です", "cp932"),
    "euc_jp": ("これは良い映画です", "euc_jp"),
    "gb18030": ("这部电影很好看", "gb18030"),
    "big5": ("這部電影很好看", "big5"),
    "utf-16": ("café noir", "utf-16"),
    "utf-16-le": ("정말 좋은 영화예요", "utf-16-le"),
    "utf-16-be": ("café noir", "utf-16-be"),
    "utf-32": ("café noir", "utf-32"),
}


@pytest.mark.parametrize("encoding", WRITTEN)
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.conll"])
def test_a_file_in_another_encoding_is_refused_and_read_with_its_encoding(
    tmp_path: Path, name: str, encoding: str
) -> None:
    text, named = WRITTEN[encoding]
    word = text.replace(" ", "_")
    lines = {
        ".csv": f'text,label\ngood,1\n"{text}",0\n',
        ".tsv": f"text\tlabel\ngood\t1\n{text}\t0\n",
        ".jsonl": f'{{"text": "good"}}\n{{"text": "{text}"}}\n',
        ".json": f'[\n{{"text": "good"}},\n{{"text": "{text}"}}]\n',
        ".conll": f"good\tO\n{word}\tO\n\n",
    }
    path = written(tmp_path, name, lines[Path(name).suffix].encode(encoding))
    sentence = refusal(path)
    advice = "pass the encoding that the program which wrote it uses with --encoding"
    assert (advice if named is None else f"--encoding {named}") in sentence, sentence
    for one in (encoding, named or encoding):
        if one != "latin1" or "€" not in text:
            table = read_table(path, encoding=one)
            column = "tokens" if name == "a.conll" else "text"
            assert table.cells(column)[-1] == (["good", word] if column == "tokens" else text)
            assert table.notes == ()


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (
            b"text\ncaf\xe9\n",
            None,
            "line 2: byte 8 (0xe9) is not UTF-8; it looks like cp1252 ('café'): pass --encoding cp1252 if this reads right, "
            "else that of the program which wrote it, or save it as UTF-8.",
        ),
        (b"text\n5 \x80\n", None, "(0x80) is not UTF-8; it looks like cp1252 ('€')"),
        (
            "text\ncafé\n".encode() * 3 + b"caf\xe9\n",
            None,
            "is not UTF-8, as in 1 of the 4 lines with other characters than ASCII",
        ),
        ("text\n가나다".encode()[:-1], None, "begins a character that is cut off; the file is not complete"),
        (b"text\ncaf\x81 \x8d\n", "cp1252", "is not cp1252"),
        (b"text\ncaf\xe9\n", "cp949", "line 2: byte 8 (0xe9) is not cp949; it looks like cp1252 ('café')"),
        (b"text\ncaf\xe9\n", "utf-16", "the file is not utf-16; leave out --encoding, or correct it"),
        ("text\na\n".encode("utf-16"), "cp1252", "the file is UTF-16, not cp1252; pass --encoding utf-16"),
        ("text\na\n".encode("utf-16-be"), None, "the file is UTF-16-BE; pass --encoding utf-16-be"),
        (b"text\na\n", "cp1525", "--encoding 'cp1525' is not known; give one such as"),
        (b"text\na\n", "rot13", "--encoding 'rot13' is not known"),
        (b"text\na\n", "a\0b", "--encoding 'a\\x00b' is not known"),
        (b"text\na\n", "", "--encoding '' is not known"),
        (b"text\na\n", "locale", "--encoding 'locale' is not known"),
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
    big_endian = written(tmp_path, "c.csv", "text\na\n".encode("utf-16-be"))
    assert read_table(big_endian, encoding="utf-16").texts("text") == ("a",)
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "d.parquet")
    for source in (tmp_path / "d.parquet", pd.DataFrame({"text": ["a"]})):
        assert "--encoding is for text files; leave it out" in refusal(source, encoding="cp1252")


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0", b"PK\x03\x04\x14\0\x06\0\xe9"])
def test_a_file_that_is_not_text_is_refused(tmp_path: Path, content: bytes) -> None:
    sentence = refusal(written(tmp_path, "a.csv", content))
    assert "this is not a UTF-8 text file; export the table as CSV" in sentence and "iconv" not in sentence


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
